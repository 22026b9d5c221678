// Judging paths: question, answer and path, without anything that could bias the annotator. Uses the files of
// `squire study annotate`, so that work begun there can be continued here.

import * as api from "./api.js";
import { announce, clear, el, figuresTable, icon } from "./dom.js";
import { drawSvg } from "./draw.js";
import { sceneOf } from "./scene.js";
import { onKeys } from "./keys.js";
import { trouble } from "./trouble.js";

const SCORES = [
	{ score: 1, key: "1", name: "Reasonable", words: "The path is sufficient to deduce the fact." },
	{ score: 0.5, key: "5", name: "Partially", words: "Not sufficient, but it makes the fact likely." },
	{ score: 0, key: "0", name: "Not", words: "Irrelevant to the fact, or it only repeats the question." },
];
const NAME = "squire-annotator";

export class Judge {
	constructor(place) {
		this.body = el("div.page-column");
		place.append(this.body);
		this.before = []; // judged in this session, to go back to
		const scores = SCORES.map(({ key, score }) => [key, () => this.say(score)]);
		onKeys({ ...Object.fromEntries(scores), b: () => this.task && this.back() }, "judge");
	}

	open(model) {
		this.model = model;
		this.task = null;
		this.before = [];
		const name = stored();
		const field = el("input", {
			id: "annotator",
			type: "text",
			required: true,
			value: name,
			autocomplete: "off",
			spellcheck: "false",
		});
		const form = el(
			"form.card.stack",
			{
				onsubmit: (event) => {
					event.preventDefault();
					this.begin(field.value.trim());
				},
			},
			el("label", { for: "annotator" }, "Your name"),
			field,
			el(
				"p.quiet",
				"Each judgement is saved under this name at once. You can stop at any time and continue later, here or with " +
					"‘squire study annotate’.",
			),
			el("div.buttons", el("button.primary", { type: "submit" }, "Begin")),
		);
		this.said = el("div", { role: "alert" });
		clear(
			this.body,
			el("h1", "Do these paths convince you?"),
			el(
				"p.lead",
				"You see a question, its right answer and the model’s path to it. Decide whether the path is a good " +
					"reason. The model’s own scores are hidden, so that they cannot bias you.",
			),
			form,
			this.said,
		);
	}

	async begin(name) {
		this.annotator = name;
		try {
			localStorage.setItem(NAME, name);
		} catch {
			// then the name is asked for again next time
		}
		await this.step(() => api.annotation(this.model, name));
	}

	async step(request) {
		if (this.busy) return;
		this.busy = true;
		try {
			this.standing = await request();
			this.task = this.standing.next;
			if (this.task) this.show(this.task);
			else this.finish();
		} catch (error) {
			trouble(this.said, error);
		} finally {
			this.busy = false;
		}
	}

	show(task, given = null) {
		this.task = task;
		const { total, judged } = this.standing;
		const { head, relation, tail } = task.question;
		const meter = el("progress", { max: total, value: judged, "aria-label": `${judged} of ${total} are judged` });
		const picture = el("div.canvas");
		this.said = el("div", { role: "alert" });
		clear(
			this.body,
			el(
				"div.judge-top",
				meter,
				el("span.quiet", `${judged} of ${total} judged`),
				el("button.plain", { onclick: () => this.finish() }, "Stop here"),
			),
			el(
				"section.card.judged",
				{ "aria-label": "Path to judge" },
				factTitle(task.question),
				el("figure.drawing", picture),
			),
			el(
				"div.verdicts",
				{ role: "group", "aria-label": "Your judgement" },
				SCORES.map((one) => verdict(one, () => this.say(one.score), given === one.score)),
			),
			el(
				"div.judge-foot",
				el(
					"button.plain",
					{ disabled: !this.before.length, onclick: () => this.back() },
					icon("back"),
					"Back to the previous one (b)",
				),
			),
			this.said,
		);
		const how = { blind: true, caption: inWords(task.evidence) };
		picture.append(drawSvg(sceneOf([task.evidence], picture.clientWidth - 16, how)));
		this.body.querySelector("h1").focus({ preventScroll: true });
		announce(`${judged + 1} of ${total}. ${head} ${relation} ${tail}. ${inWords(task.evidence)}`);
	}

	async say(score) {
		if (this.busy || !this.task) return;
		const { task } = this;
		await this.step(async () => {
			const standing = await api.judge(this.model, { annotator: this.annotator, number: task.number, score });
			this.before = [...this.before.filter((one) => one.task.number !== task.number), { task, score }];
			return standing;
		});
	}

	back() {
		const last = this.before.pop();
		if (last) this.show(last.task, last.score);
	}

	finish() {
		this.task = null;
		const { summary, judged, total } = this.standing;
		clear(
			this.body,
			el("h1", judged === total ? "All paths are judged" : "So far"),
			el("p.lead", `${judged} of ${total} paths are judged by ${this.annotator}.`),
			summary ? summaryCard(summary) : null,
			el(
				"div.buttons",
				judged < total
					? el(
							"button.primary",
							{ onclick: () => this.step(() => api.annotation(this.model, this.annotator)) },
							"Continue",
						)
					: null,
				el("button.plain", { onclick: () => this.open(this.model) }, "Another annotator"),
			),
		);
		announce(`${judged} of ${total} paths are judged.`);
	}
}

export const factTitle = ({ head, relation, tail }) =>
	el("h1", { tabindex: "-1" }, head, " ", el("span.relation", relation), " ", el("span.right-answer", tail));

/** A button for a judgement and its key. */
export const verdict = ({ key, name, words }, onclick, pressed) =>
	el(
		"button.verdict",
		{ "aria-pressed": pressed === undefined ? null : String(pressed), onclick },
		el("kbd", key),
		el("b", name),
		el("span.quiet", words),
	);

function summaryCard(summary) {
	const rows = [
		["All questions, 0 where no path leads to the answer", summary.all_questions],
		["Questions with a path", summary.with_path],
		...Object.entries(summary.by_grade).map(([grade, figures]) => [`– ${grade}`, figures]),
	];
	const figure = (value, interval) =>
		el(
			"td",
			el("span.figure", value.toFixed(1)),
			interval ? el("span.interval", `${interval[0].toFixed(1)} – ${interval[1].toFixed(1)}`) : null,
		);
	return el(
		"section.card",
		figuresTable(
			"Interpretability",
			["questions", "score", "reasonable, %"],
			rows.map(([name, one]) =>
				el(
					"tr",
					el("th", { scope: "row" }, name),
					el("td", el("span.figure", one.questions)),
					figure(one.score, one.questions > 1 && one.score_interval),
					figure(one.reasonable, one.questions > 1 && one.reasonable_interval),
				),
			),
		),
		el("p.quiet", "Score: the mean judgement times 100. Below each figure: its 95 % interval."),
		el("p", el("code", summary.signature)),
	);
}

const inWords = (path) => path.edges.map((edge) => `${edge.head}, ${edge.relation}, ${edge.tail}`).join("; ");

function stored() {
	try {
		return localStorage.getItem(NAME) ?? "";
	} catch {
		return "";
	}
}
