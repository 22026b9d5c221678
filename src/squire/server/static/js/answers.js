// What the graph says, then the ranked list of new answers with their confidence and grade. Arrow keys move through it.

import { byId, clear, el } from "./dom.js";
import { GRADES, count, percent, plural, rounded } from "./format.js";

export class AnswerList {
	/** onChoose(entity): an answer was selected; onEnter(): go to its evidence; `tail` is shown below the list. */
	constructor({ onChoose, onEnter, tail }) {
		Object.assign(this, { onChoose, onEnter, tail });
		this.node = byId("answers");
		this.items = [];
		this.hint = el("p.hint-line", { hidden: true });
	}

	/** Placeholder while the answers are loading. */
	wait() {
		clear(this.node, el("h2", "Looking for answers …"));
		this.items = [];
	}

	show(found, seconds) {
		this.answers = found.answers;
		this.facts = found.facts;
		const best = Math.max(...found.answers.map((one) => one.score), Number.MIN_VALUE);
		const sure = found.answers.some(hasConfidence);
		this.items = found.answers.map((one, place) => this.item(one, place, best));
		this.chips = found.facts.map((one) => this.chip(one));
		const few = found.answers.findIndex((one) => hasConfidence(one) && one.confidence < LEAST);
		this.folded = few < 0 ? found.answers.length : few;
		const list = (items, id, label) => el("ol.list", { role: "listbox", "aria-label": label, id }, items);
		const rest = this.items.slice(this.folded);
		this.rest = rest.length
			? el(
					"details.rest",
					el("summary", `${plural(rest.length, "answer", "answers")} below 1\u202f%`),
					list(rest, "rest-list", "Unlikely answers"),
				)
			: null;
		clear(
			this.node,
			found.facts.length ? this.known(found) : null,
			this.hint,
			el(
				"div.list-head",
				el("h2", found.facts.length ? "Perhaps also" : "Probable answers"),
				el("span.quiet", `${seconds.toFixed(seconds < 1 ? 2 : 1)} s`),
			),
			found.answers.length ? el("p.scale.quiet", sure ? sureOf(found.origin) : UNSURE) : this.nothing(),
			this.folded ? list(this.items.slice(0, this.folded), "answer-list", "Answers, best first") : null,
			!this.folded && rest.length ? el("p.quiet", "Nothing else is likely.") : null,
			this.rest,
			this.tail,
			legend(),
		);
	}

	nothing() {
		return el("p.quiet", "No path leads to a new answer. If “Facts only” is on, switch it off.");
	}

	known({ facts, num_facts: all }) {
		return el(
			"section.known",
			{ "aria-labelledby": "known-title" },
			el("h2", { id: "known-title" }, "The graph says"),
			el("div.chips", this.chips),
			all > facts.length ? el("p.quiet", `… and ${count(all - facts.length)} more`) : null,
		);
	}

	chip({ entity }) {
		const choose = () => this.onChoose(entity, true);
		return el("button.chip.fact-chip", { "aria-pressed": "false", onclick: choose }, entity);
	}

	item(one, place, best) {
		const sure = hasConfidence(one);
		const fill = el("span.fill");
		fill.style.width = `${100 * Math.min(1, Math.max(0.004, sure ? one.confidence : one.score / best))}%`;
		return el(
			"li.answer",
			{
				role: "option",
				id: `answer-${place}`,
				tabindex: "-1",
				"aria-selected": "false",
				"data-place": place,
				onclick: () => this.choose(place, true),
				onkeydown: (event) => this.onKey(event, place),
			},
			el("span.rank", `${one.rank}`),
			el("span.name", { title: one.entity }, one.entity),
			el(
				"span.value",
				sure ? percent(one.confidence) : rounded(one.score, 3),
				el("span.unseen", sure ? " likely, " : ", not a probability, "),
			),
			el("span", { class: sure ? "bar" : "bar relative" }, fill),
			one.evidence ? gradeBadge(one.evidence.grade) : null,
		);
	}

	/** Marks the answer whose evidence is shown, and returns it: by default the first fact (if `factsFirst`) or
	 *  candidate; undefined for an entity that is not in the list. */
	select(entity, factsFirst) {
		const usual = factsFirst ? (this.facts[0] ?? this.answers[0]) : (this.answers[0] ?? this.facts[0]);
		const chosen = entity ? [...this.facts, ...this.answers].find((one) => one.entity === entity) : usual;
		this.chips.forEach((chip, i) => (chip.ariaPressed = String(this.facts[i] === chosen)));
		const place = this.answers.indexOf(chosen);
		this.chosen = Math.max(0, place);
		this.items.forEach((item, i) => {
			item.ariaSelected = String(i === place);
			item.tabIndex = i === this.chosen ? 0 : -1;
		});
		if (this.rest && place >= this.folded) this.rest.open = true;
		return chosen;
	}

	choose(place, byHand = false) {
		if (place < 0 || place >= this.items.length) return;
		if (place >= this.folded) this.rest.open = true;
		this.items[place].focus({ preventScroll: true });
		this.items[place].scrollIntoView({ block: "nearest" });
		this.onChoose(this.answers[place].entity, byHand);
	}

	focus() {
		this.items[this.chosen]?.focus({ preventScroll: true });
	}

	step(by) {
		const none = !this.items.some((item) => item.ariaSelected === "true");
		this.choose(none ? 0 : this.chosen + by);
	}

	onKey(event, place) {
		if (event.altKey || event.ctrlKey || event.metaKey) return;
		const goals = { ArrowDown: place + 1, ArrowUp: place - 1, Home: 0, End: this.items.length - 1 };
		if (event.key in goals) this.choose(goals[event.key]);
		else if (event.key === "Enter" || event.key === " ") this.onEnter();
		else return;
		event.preventDefault();
	}
}

const LEAST = 0.01; // candidates below are folded
const hasConfidence = (one) => one.confidence !== null && one.confidence !== undefined;
const sureOf = ({ decisions }) =>
	`Bars show the probability that an answer is true, calibrated on held-out facts${
		decisions ? ` and ${plural(decisions, "decision")} of reviewers` : ""
	}.`;
const UNSURE = "Bars compare scores within this list. A score is not the probability that an answer is true.";

/** A grade, with the line style of its edges: solid, dashed or dotted. */
export function gradeBadge(grade) {
	return el(
		"span",
		{ class: `grade ${grade}`, title: GRADES[grade][1] },
		el("i", { "aria-hidden": "true" }),
		GRADES[grade][0],
	);
}

export function legendRows() {
	return Object.entries(GRADES).map(([grade, [, words]]) =>
		el("div", el("dt", gradeBadge(grade)), el("dd", words)),
	);
}

const legend = () => el("dl.legend", { "aria-label": "Grades of evidence" }, legendRows());
