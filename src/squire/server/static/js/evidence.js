// The evidence of an answer: a sentence, the paths behind it as a drawing, and why it has its score.

import { gradeBadge } from "./answers.js";
import { AttentionMap } from "./attention.js";
import { announce, byId, clear, el, icon } from "./dom.js";
import { drawSvg } from "./draw.js";
import { copyLink, fileName, savePng, saveSvg } from "./export.js";
import { UNLIKELY, likely, plural, rounded } from "./format.js";
import { ruleText } from "./rule-words.js";
import { goalOf, sceneOf, startOf } from "./scene.js";
import { go, isSupposed } from "./state.js";
import { trueIn, whyThisScore } from "./why.js";

export class EvidencePanel {
	constructor({ saveAnswers }) {
		this.node = byId("evidence");
		this.saveAnswers = saveAnswers;
		this.attention = new AttentionMap();
		this.canvas = el("div.canvas", { id: "drawing", tabindex: "0", role: "group", "aria-label": "Drawing" });
		new ResizeObserver(() => this.onResize()).observe(this.canvas);
	}

	wait() {
		this.answer = null;
		clear(this.node);
	}

	/** Shows the evidence of an answer; `view.path` is the index of the chosen path. `why()`: what is behind it.
	 *  `isFact`: the graph says so, and the answer is what would be said without this fact. */
	show(found, answer, view, { why, isFact = answer?.is_fact, against = [] } = {}) {
		if (!answer) {
			this.answer = null;
			return clear(this.node);
		}
		const isNew = this.answer !== answer;
		Object.assign(this, { answer, found, why, isFact, against });
		this.paths = [answer.evidence, ...(answer.further ?? [])]
			.filter((path) => path?.edges.length)
			.map((path) => ({
				...path,
				edges: path.edges.map((edge) => ({ ...edge, supposed: isSupposed(edge) })),
			}));
		this.chosen = Math.min(view.path, Math.max(this.paths.length - 1, 0));
		if (isNew) this.build(this.chosen > 0, view);
		this.showPath();
		return undefined;
	}

	build(all, view) {
		const { answer, found } = this;
		const fact = {
			head: found.head ?? answer.entity,
			relation: found.relation,
			tail: found.tail ?? answer.entity,
		};
		this.fact = fact;
		this.all = all;
		this.said = el("p.sentence");
		this.tabs = el("div.chips.path-tabs", { role: "group", "aria-label": "Paths" });
		this.detail = el("div.path-detail");
		clear(
			this.node,
			el("button.plain.to-list", { onclick: () => this.toList() }, icon("back"), "All answers"),
			el(
				"header.fact",
				el("h2", this.entity(fact.head), el("span.relation", fact.relation), this.entity(fact.tail)),
				el(
					"div.fact-tags",
					this.isFact ? gradeBadge("fact") : el("span.quiet", likely(answer)),
					answer.evidence && !answer.is_fact ? gradeBadge(answer.evidence.grade) : null,
				),
			),
			this.said,
			this.paths.length && !answer.is_fact
				? el(
						"figure.drawing",
						this.canvas,
						this.tabs,
						el(
							"figcaption.key.quiet",
							el("span.solid", "fact of the graph"),
							el("span.dashed", "inferred, with its probability"),
							el("span.hint", "Choose a name to look around"),
						),
					)
				: null,
			fact.head === fact.tail
				? null
				: el(
						"button.plain.pair",
						{ onclick: () => go({ around: fact.head, to: fact.tail }) },
						icon("link"),
						"How are these two connected?",
					),
			this.against.length
				? [
						el("h3", "Against it"),
						el(
							"ul.against",
							this.against.map((one) => el("li", one)),
						),
					]
				: null,
			whyThisScore(
				answer.sources ?? [],
				() => this.why(),
				(name) => this.entity(name),
			),
			this.detail,
			answer.is_fact || view.facts ? null : this.attention.node,
			this.exports(fact),
		);
		if (!answer.is_fact && !view.facts)
			this.attention.offer({
				head: found.head,
				relation: found.relation,
				tail: found.tail,
				answer: answer.entity,
			});
	}

	entity(name) {
		const look = () => go({ around: name });
		return el("button.entity", { title: `Look around ${name}`, onclick: look }, name);
	}

	nextPath() {
		if (this.answer && this.paths.length > 1) this.choosePath((this.chosen + 1) % this.paths.length);
	}

	choosePath(place) {
		this.all = true;
		go({ path: place }, { replace: true });
		announce(`Path ${place + 1} of ${this.paths.length}: ${pathText(this.paths[place])}`);
	}

	showPath() {
		if (!this.paths.length) return;
		clear(this.said, this.sentence());
		if (this.answer.is_fact) return;
		const hadFocus = this.tabs.contains(document.activeElement);
		clear(this.tabs, this.picks());
		if (hadFocus) this.tabs.querySelector("[aria-pressed=true]")?.focus();
		this.draw();
		clear(this.detail, this.pathWords(this.paths[this.chosen]));
	}

	/** The best path first; the others on request. */
	picks() {
		const more = this.paths.length - 1;
		if (!more) return [];
		if (!this.all)
			return el("button.chip", { id: "more-paths", onclick: () => this.showAll() }, `+ ${more} more`);
		return this.paths.map((path, place) =>
			el(
				"button.chip",
				{ "aria-pressed": String(place === this.chosen), onclick: () => this.choosePath(place) },
				`Path ${place + 1}`,
				el("i", { class: path.grade, "aria-hidden": "true" }),
			),
		);
	}

	showAll() {
		this.all = true;
		this.showPath();
		this.tabs.querySelector("[aria-pressed=true]")?.focus();
	}

	/** The answer in plain words; each part lights up the step that it tells of. */
	sentence() {
		const { answer, isFact } = this;
		const path = this.paths[this.chosen];
		const parts = [];
		if (answer.is_fact) return `${answer.claim}, says the graph.`;
		const unlikely = answer.confidence !== null && answer.confidence < UNLIKELY;
		if (isFact) {
			const less = unlikely ? "only " : "";
			parts.push(`The graph says so. Without this fact it would be ${less}${likely(answer)}`);
		} else parts.push(answer.claim);
		if (path.grade === "asserted")
			return [...parts, answer.basis ? `, by ${answer.basis}.` : ", says the model, without a path."];
		parts.push(unlikely ? ", although " : ": ");
		const light = (step, is) => () => this.light(step, is);
		path.clauses.forEach((clause, step) => {
			const [, before, words] = /^((?:, (?:and )?)?)(.*)$/s.exec(clause);
			const on = { onmouseenter: light(step, true), onmouseleave: light(step, false) };
			const focus = { onfocus: light(step, true), onblur: light(step, false), tabindex: "0" };
			parts.push(
				before,
				el("span.clause", { "data-step": step, ...on, ...focus }, words, el("sup", `${step + 1}`)),
			);
		});
		return [...parts, "."];
	}

	light(step, is) {
		for (const edge of this.canvas.querySelectorAll(`.edge.lit[data-step="${step}"]`))
			edge.classList.toggle("hot", is);
		this.canvas.classList.toggle("dimmed", is);
	}

	draw() {
		const [best] = this.paths;
		const ends = `from ${startOf(best)} to ${goalOf(best.edges.at(-1))}`;
		const caption = `${plural(this.paths.length, "path")} ${ends}. ${this.paths.map(pathText).join(". ")}`;
		this.room = this.canvas.clientWidth;
		this.scene = sceneOf(this.paths, this.room - 16, { chosen: this.chosen, all: this.all, caption });
		const nodes = () => [...this.canvas.querySelectorAll(".node")];
		const focused = nodes().indexOf(document.activeElement);
		clear(this.canvas, drawSvg(this.scene, { onNode: ({ name }) => go({ around: name }) }));
		nodes()[focused]?.focus();
	}

	onResize() {
		const drawn = this.answer && this.paths.length && !this.answer.is_fact;
		if (drawn && this.canvas.clientWidth !== this.room) this.draw();
	}

	pathWords(path) {
		if (path.grade === "asserted") return [];
		const more = this.answer.paths - this.paths.length;
		const place = this.paths.length > 1 ? `Path ${this.chosen + 1} of ${this.paths.length}` : "The path";
		const figures = [
			path.probability === null ? "" : `path probability ${rounded(path.probability, 3)}, by the model alone`,
			more > 0 ? `${plural(more, "more path leads", "more paths lead")} here` : "",
		];
		return el(
			"details.path-words",
			el("summary", `${place}, step by step`),
			el(
				"ol.steps",
				{ "aria-label": "Steps of the path" },
				path.edges.map((edge) => this.step(edge)),
			),
			path.rule ? [ruleText(path.rule), el("p.quiet", trueIn(path.rule))] : null,
			path.rule ? null : el("p.quiet", "No mined rule has this form; the model found the path itself."),
			el("p.quiet", figures.filter(Boolean).join(" · ")),
		);
	}

	step(edge) {
		return el(
			"li",
			{ class: edge.is_fact ? "step known" : "step inferred" },
			this.entity(edge.head),
			el("span.relation", edge.relation),
			this.entity(edge.tail),
			el(
				"span.quiet",
				edge.supposed ? "supposed" : edge.is_fact ? "fact" : `inferred, ${rounded(edge.probability)}`,
			),
		);
	}

	exports(fact) {
		const button = (words, sign, action) => el("button.plain", { onclick: action }, icon(sign), words);
		const name = fileName(fact);
		const drawn = this.paths.length && !this.answer.is_fact;
		return el(
			"footer.exports",
			{ role: "group", "aria-label": "Export" },
			button("Copy link", "link", copyLink),
			button("Answers as JSON", "save", this.saveAnswers),
			drawn ? button("Drawing as SVG", "save", () => saveSvg(this.scene, name, this.about())) : null,
			drawn ? button("as PNG", "save", () => savePng(this.scene, name, this.about())) : null,
			el("details.origin", el("summary", "How this was computed"), el("p.quiet", originWords(this.found.origin))),
		);
	}

	/** What an exported picture says besides the paths. */
	about() {
		const { head, tail } = this.found;
		const { fact, answer, found, isFact } = this;
		return {
			title: `${head ?? "?"} · ${fact.relation} · ${tail ?? "?"}`,
			subtitle: `${answer.entity}: ${isFact ? "in the graph; without this fact, " : ""}${likely(answer)}`,
			source: `${found.origin.graph} · squire ${found.origin.version}`,
		};
	}

	toList() {
		byId("answers").scrollIntoView({ block: "start" });
		byId("answers").querySelector("[aria-selected=true], [aria-pressed=true]")?.focus({ preventScroll: true });
	}
}

/** `Chechen – language family → …`, for screen readers. */
export function pathText(path) {
	return [
		startOf(path),
		...path.edges.map(
			(edge) =>
				`${edge.backwards ? "←" : "→"} ` +
				`${edge.relation}${edge.is_fact ? "" : ` (inferred, ${rounded(edge.probability)})`} ` +
				`${edge.backwards ? "←" : "→"} ${goalOf(edge)}`,
		),
	].join(" ");
}

function originWords(origin) {
	const how = [
		`model of step ${origin.step}`,
		`beam ${origin.beam}`,
		`up to ${plural(origin.hops, "step")} per path`,
	];
	if (origin.ranking) how.push(`ranked by ${origin.ranking === "fused" ? "all evidence" : "paths"}`);
	return `${origin.graph}: ${how.join(", ")}; squire ${origin.version}.`;
}
