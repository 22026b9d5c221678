// A rule as a sentence: "If X –borders→ A and A –language→ Y, then X –language→ Y".

import { el } from "./dom.js";

// Variables are capital letters or "anything"; the other end may be an entity.
const ATOMS = [/^(.*?)\(([A-Z]|anything), (.+)\)$/s, /^(.*)\((.+), ([A-Z]|anything)\)$/s];

/** `r(X, Y) ⇐ s(X, A) ∧ t(A, Y)` -> {head, body} of {relation, from, to}; null if a name cannot be parsed. */
export function parseRule(text) {
	const sides = text.split(" ⇐ ");
	if (sides.length !== 2) return null;
	const atoms = [sides[0], ...sides[1].split(" ∧ ")].map((atom) => ATOMS[0].exec(atom) ?? ATOMS[1].exec(atom));
	if (atoms.some((atom) => !atom)) return null;
	const [head, ...body] = atoms.map(([, relation, from, to]) => ({ relation, from, to }));
	return { head, body };
}

export function ruleText({ text }) {
	const parsed = parseRule(text);
	return el("p.rule-text", parsed ? sentence(parsed) : el("code", text));
}

function sentence({ head, body }) {
	const parts = body.flatMap((atom, place) => [
		place === 0 ? "If " : place === body.length - 1 ? " and " : ", ",
		fact(atom),
	]);
	return [...parts, ", then ", fact(head), "."];
}

const fact = ({ relation, from, to }) => el("span.atom", end(from), ` ${relation} `, end(to));

const end = (name) => (/^[A-Z]$/.test(name) ? el("var", name) : el("b", name));
