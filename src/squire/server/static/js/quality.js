// How good the model is, beside the rules and the most frequent answer.

import { gradeBadge } from "./answers.js";
import { clear, el, figuresTable } from "./dom.js";
import { GRADES, count, metric, percent, plural } from "./format.js";
import { reliabilityCurve } from "./reliability.js";

const METRICS = [
	["mrr", "MRR"],
	["hits1", "Hits@1"],
	["hits3", "Hits@3"],
	["hits10", "Hits@10"],
];
const ROWS = {
	paths: "This model, by its paths",
	fused: "This model, all evidence",
	"rules+frequency": "Rules and frequency",
	rules: "Rules alone",
	frequency: "The most frequent answer",
};

export function showQuality(place, card) {
	const results = card.quality ?? [];
	clear(
		place,
		el(
			"div.page-column",
			el("h1", `How good is ${card.name}?`),
			el(
				"p.lead",
				"The model was asked for facts that it had not seen. The last row does no reasoning: it always guesses the " +
					"most frequent answer. The difference is what the model adds.",
			),
			results.length ? results.map(result) : nothing(card),
			about(card),
		),
	);
}

function nothing(card) {
	return el(
		"div.card",
		el("h2", "Not evaluated yet"),
		el(
			"p",
			"This model has not been evaluated, so do not rely on its ranking. Run ",
			el("code", `squire evaluate ${card.name}`),
			" with its run folder, then reload.",
		),
	);
}

/** `world|split:test|method:paths|…` -> {dataset, split, method, …} */
export function readSignature(signature) {
	const [dataset, ...parts] = signature.split("|");
	return { dataset, ...Object.fromEntries(parts.map((part) => part.split(/:(.*)/s))) };
}

function result(one) {
	const signatures = one.rows.map((row) => readSignature(row.signature));
	const first = signatures[0];
	const asked = first.side === "both" ? "heads and tails" : "tails";
	return el(
		"section.card",
		el("h2", `${first.dataset}, ${first.split} questions`),
		el(
			"p.quiet",
			`${count(one.rows[0].queries)} questions for ${asked}; other right answers filtered, ties ranked ` +
				`${first.ties ?? "realistic"}. Below each figure: its 95 % interval.`,
		),
		figuresTable(
			"Quality beside the rules and the most frequent answer",
			METRICS.map(([, name]) => name),
			one.rows.map((row, place) => tableRow(row, signatures[place])),
		),
		el(
			"p.quiet",
			"MRR: the mean of 1 / rank of the right answer. Hits@10: how often it is among the first ten. 1 is " +
				"perfect. Clearly: the intervals do not overlap.",
		),
		verdict(one.rows, signatures),
		evidence(one.evidence),
		reliability(one.reliability),
		el(
			"details",
			{ open: true },
			el("summary", "Signatures"),
			el(
				"ul.signatures",
				one.rows.map((row) => el("li", el("code", row.signature))),
			),
		),
	);
}

/** The table in a sentence. If the intervals overlap, a difference may be sampling noise. */
function verdict(rows, signatures) {
	const ours = rows[signatures.findIndex(isOurs)];
	if (!ours?.intervals?.mrr) return null;
	const words = rows.flatMap((row, place) => {
		if (isOurs(signatures[place]) || !row.intervals?.mrr) return [];
		const [low, high] = ours.intervals.mrr;
		const how =
			low > row.intervals.mrr[1]
				? "clearly better than"
				: high < row.intervals.mrr[0]
					? "clearly worse than"
					: "not clearly different from";
		return [`${how} ${(ROWS[signatures[place].method] ?? signatures[place].method).toLowerCase()}`];
	});
	return words.length ? el("p.verdict-line", `By MRR this model is ${words.join("; it is ")}.`) : null;
}

const isOurs = (signature) => ["paths", "fused"].includes(signature.method);

function tableRow(row, signature) {
	const cell = ([key]) => {
		const interval = row.intervals?.[key];
		return el(
			"td",
			el("span.figure", metric(row[key])),
			interval ? el("span.interval", `${metric(interval[0])} – ${metric(interval[1])}`) : null,
		);
	};
	return el(
		"tr",
		{ class: isOurs(signature) ? "ours" : "" },
		el("th", { scope: "row", title: row.signature }, ROWS[signature.method] ?? signature.method),
		METRICS.map(cell),
	);
}

function evidence(shares) {
	const found = Object.entries(shares ?? {});
	if (!found.length) return null;
	return el(
		"div.shares",
		el("h3", "Evidence for the first ten answers"),
		el(
			"dl.legend",
			found.map(([grade, share]) =>
				el("div", el("dt", gradeBadge(grade)), el("dd", el("b", percent(share)), ` ${GRADES[grade]?.[1] ?? ""}`)),
			),
		),
	);
}

function reliability(curves) {
	// Curves of each kind of question are in the JSON only.
	const found = Object.entries(curves ?? {}).filter(
		([name, curve]) => name.includes("first") && curve?.confidence?.length,
	);
	if (!found.length) return null;
	return el(
		"div",
		el("h3", "Is its confidence reliable?"),
		el(
			"p.quiet",
			"On the diagonal, 60 % of the answers that are called 60 % likely are true. Below it the model is too sure, " +
				"above it not sure enough. Benchmark questions all have a missing answer; most ordinary ones have none.",
		),
		el(
			"div.curves",
			found.map(([name, curve]) => reliabilityCurve(name, curve)),
		),
	);
}

function about(card) {
	return el(
		"section.card",
		el("h2", "About this model"),
		el("p", card.description),
		el("p.quiet", `Trained for ${plural(card.step ?? 0, "step")}; squire ${card.version}.`),
	);
}
