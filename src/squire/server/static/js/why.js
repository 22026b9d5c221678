// Why this score: one bar for each source of evidence, which opens to show what is behind it.

import { el } from "./dom.js";
import { percent, plural } from "./format.js";
import { ruleText } from "./rule-words.js";

/** How strongly a source speaks for or against the answer, in words. */
function strength(share, isFor) {
	const side = isFor ? "for" : "against";
	return share >= 0.5 ? `strongly ${side}` : share >= 0.15 ? side : `slightly ${side}`;
}

const ABOUT = {
	frequency: "How often this is the answer to such questions at all.",
	rules: "Rules that hold in this graph and predict the answer.",
	"similar entities": "Entities that have much in common with this one, and their answers.",
	connections: "How closely the two are connected in the graph.",
	"tail similarity": "How similar this answer is to the known ones.",
	names: "Words that the names have in common.",
	model: "What the model has learned from all paths of the graph.",
};

/** `reasons()`: fetches what is behind this answer, once. `entity(name)`: a name to click. */
export function whyThisScore(sources, reasons, entity) {
	if (!sources.length) return null;
	const most = Math.max(...sources.map((one) => Math.abs(one.contribution)), Number.MIN_VALUE);
	const row = ({ name, contribution }) => {
		const share = Math.abs(contribution) / most;
		const fill = el("span.fill");
		fill.style.width = `${50 * share}%`;
		const body = folded(reasons, (found) => details(name, found, entity), ABOUT[name]);
		return el(
			"details",
			{ class: contribution < 0 ? "source against" : "source", ontoggle: body.open },
			el(
				"summary",
				el("span.source-name", name),
				el("span.signed-bar", { "aria-hidden": "true" }, fill),
				el("span.quiet", strength(share, contribution >= 0)),
			),
			body.node,
		);
	};
	const hangs = folded(reasons, withoutFacts);
	return el(
		"section.sources",
		el("h3", "Why this score"),
		sources.filter((one) => Math.abs(one.contribution) >= 0.02 * most).map(row),
		el("details.source", { ontoggle: hangs.open }, el("summary", el("span", "without single facts")), hangs.node),
	);
}

/** What is shown when it is opened for the first time. */
export function folded(reasons, content, about = "") {
	const node = el("div.reason", { "aria-live": "polite" }, about ? el("p.quiet", about) : null);
	let filled = false;
	const open = async (event) => {
		if (!event.target.open || filled) return;
		filled = true;
		try {
			node.append(...content(await reasons()));
		} catch (error) {
			filled = false;
			node.append(el("p.quiet", error.message));
		}
	};
	return { node, open };
}

function details(name, reasons, entity) {
	const words = (list) => list.map((word) => `“${word}”`).join(", ");
	if (name === "rules") return list(reasons.rules.map(ruleItem), "No rule predicts it.");
	if (name === "similar entities")
		return list(
			reasons.similar.map((one) => similarItem(one, entity)),
			"None of them has this answer.",
		);
	if (name === "connections") return list(reasons.patterns.map(patternItem), "No path of facts leads there.");
	if (name === "names")
		return [
			el("p", reasons.words.length ? `Both names have ${words(reasons.words)}.` : "The two names share no word."),
		];
	return [];
}

/** What the answer hangs on: how likely it would be without single facts. */
function withoutFacts({ losses, confidence }) {
	const row = ({ facts, confidence: left }) =>
		el("li", `Without ${facts.map((fact) => fact.join(" · ")).join(" and ")}: `, el("b", percent(left)));
	if (!losses.length) return [el("p.quiet", "No single fact matters: without any of them it is as likely.")];
	return [el("p", `${percent(confidence)} likely with all facts.`), el("ul", losses.slice(0, 5).map(row))];
}

const list = (items, nothing) => (items.length ? [el("ul", items)] : [el("p.quiet", nothing)]);

export const trueIn = ({ confidence, support, sampled }) =>
	`True in ${sampled ? "about " : ""}${percent(confidence)} of cases (${plural(support, "known example")})`;

const ruleItem = (rule) => el("li", ruleText(rule), el("p.quiet", trueIn(rule)));

const similarItem = (one, entity) =>
	el("li", entity(one.entity), el("p.quiet", `Both: ${one.shared.join(" · ")}`));

const patternItem = ([pattern, count]) => el("li", el("span.hop", pattern), ` ${plural(count, "path")}`);
