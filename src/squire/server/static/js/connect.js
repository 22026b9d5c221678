// How two entities are connected: one path of each kind in plain words, and what the paths suggest.

import { el } from "./dom.js";
import { capital, count, percent, plural } from "./format.js";
import { go, isSupposed, question } from "./state.js";

const SHOWN = 6; // kinds of paths at first

export function connections({ groups, suggestions }) {
	if (!groups.length) return [el("p", "No path of up to three facts connects the two.")];
	const rest = groups.slice(SHOWN);
	const kinds = (some) => el("ul.connections", some.map(kind));
	const likely = suggestions.filter((one) => one.confidence >= 0.01);
	return [
		likely.length > 0 && [el("h3", "This suggests"), el("div.chips", likely.slice(0, SHOWN).map(suggestion))],
		el("h3", "Connected by facts, most telling first"),
		kinds(groups.slice(0, SHOWN)),
		rest.length > 0 &&
			el("details", el("summary.quiet", `+ ${plural(rest.length, "more kind")} of paths`), kinds(rest)),
	];
}

const kind = ({ relations, count: paths, sampled, expected, paths: [example] }) =>
	el(
		"li",
		el("p", `${capital(example.clauses.join(""))}.`, example.edges.some(isSupposed) && el("em", " (supposed)")),
		el("p.quiet", `${relations.join(" – ")}: ${sampled ? "about " : ""}${often(paths, expected)}`),
	);

function often(paths, expected) {
	const times = Math.round(paths / Math.max(expected, 1e-12));
	return `${plural(paths, "such path")}${paths > 1 && times > 1 ? `, ${count(times)} times as many as by chance` : ""}`;
}

const suggestion = ({ head, relation, tail, confidence }) =>
	el(
		"button.chip",
		{ onclick: () => go({ ...question(head, relation, ""), answer: tail }) },
		`${head} · ${relation} · ${tail}: ${percent(confidence)} likely`,
	);
