// A rule as a sentence: "If X –borders→ A and A –language→ Y, then X –language→ Y".

import { el } from "./dom.js";
import { percent, plural } from "./format.js";

const ATOM = /^(.*)\(([A-Z]), ([A-Z])\)$/s;

/** `r(X, Y) ⇐ s(X, A) ∧ t(A, Y)` -> {head, body} of {relation, from, to}; null if a name cannot be parsed. */
export function parseRule(text) {
  const sides = text.split(" ⇐ ");
  if (sides.length !== 2) return null;
  const atoms = [sides[0], ...sides[1].split(" ∧ ")].map((atom) => ATOM.exec(atom));
  if (atoms.some((atom) => !atom)) return null;
  const [head, ...body] = atoms.map(([, relation, from, to]) => ({ relation, from, to }));
  return { head, body };
}

export function ruleWords(rule) {
  const parsed = parseRule(rule.text);
  const said = parsed ? sentence(parsed) : [el("code", {}, rule.text)];
  return el(
    "div",
    { class: "rule" },
    el("p", { class: "rule-text" }, said),
    el(
      "p",
      { class: "quiet" },
      `This held in ${percent(rule.confidence)} of the cases where its conditions did; ` +
        `${plural(rule.support, "fact")} of the graph follow${rule.support === 1 ? "s" : ""} it.`,
    ),
  );
}

function sentence({ head, body }) {
  const parts = body.flatMap((atom, place) => [
    place === 0 ? "If " : place === body.length - 1 ? " and " : ", ",
    ...fact(atom),
  ]);
  return [...parts, ", then ", ...fact(head), "."];
}

const variable = (name) => el("var", { class: `v${name}` }, name);

const fact = ({ relation, from, to }) => [
  el(
    "span",
    { class: "atom" },
    variable(from),
    " ",
    el("span", { class: "relation" }, relation),
    " ",
    variable(to),
  ),
];
