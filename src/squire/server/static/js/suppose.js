// What if? Facts that are supposed to be true for this question. They are part of the address and change nothing else.

import * as api from "./api.js";
import { announce, clear, el, icon } from "./dom.js";
import { entityBox, relationBox } from "./names.js";
import { current, go, supposed } from "./state.js";

export class Suppose {
	constructor() {
		const box = (id, label, name) =>
			entityBox({ id: `suppose-${id}`, label, placeholder: name, onChoose: () => {} });
		this.head = box("head", "Subject of the supposed fact", "subject");
		this.tail = box("tail", "Answer of the supposed fact", "answer");
		const how = { id: "suppose-relation", label: "Its relation", placeholder: "relation", onChoose: () => {} };
		this.relation = relationBox(how, () => ({ head: this.head.value }));
		this.boxes = [this.head, this.relation, this.tail];
		this.said = el("p.quiet", { role: "status" });
		this.form = el(
			"form.suppose",
			{ id: "suppose", hidden: true, onsubmit: (event) => this.onSubmit(event) },
			this.boxes.map((one) => one.node),
			el("button.plain", { type: "submit" }, "Suppose it"),
			this.said,
		);
		this.opener = el(
			"button.plain",
			{ "aria-expanded": "false", "aria-controls": "suppose", onclick: () => this.toggle() },
			"What if …",
		);
		this.list = el("div.chips.supposed", { role: "group", "aria-label": "Supposed facts" });
	}

	toggle() {
		this.form.hidden = !this.form.hidden;
		this.opener.ariaExpanded = String(!this.form.hidden);
		if (!this.form.hidden) this.head.input.focus();
	}

	async onSubmit(event) {
		event.preventDefault();
		const fact = this.boxes.map((one) => one.value);
		const empty = this.boxes.find((one) => !one.value);
		if (empty) return empty.input.focus();
		this.said.textContent = "";
		try {
			const { matches } = await api.relations(current().model, { q: fact[1], limit: 1 });
			if (matches[0]?.name.toLowerCase() !== fact[1].toLowerCase()) {
				this.said.textContent = `There is no relation “${fact[1]}”. Choose one from the list.`;
				return this.relation.input.focus();
			}
			fact[1] = matches[0].name;
		} catch (error) {
			return (this.said.textContent = error.message);
		}
		for (const one of this.boxes) one.value = "";
		this.take([...supposed(current()), fact]);
		this.head.input.focus();
		return announce(`Supposed: ${fact.join(" ")}`);
	}

	take(facts) {
		go({ facts: facts.length ? JSON.stringify(facts) : "", answer: "", path: 0 });
	}

	show(view) {
		const facts = supposed(view);
		const chip = (fact, place) => {
			const drop = () => (this.take(facts.toSpliced(place, 1)), this.opener.focus());
			return el("button.chip", { title: "Suppose it no longer", onclick: drop }, fact.join(" · "), icon("close"));
		};
		clear(this.list, facts.length ? [el("b", "Supposed to be true:"), facts.map(chip)] : []);
	}
}
