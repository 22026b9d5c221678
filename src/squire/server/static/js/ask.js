// The question form: head, relation and tail, one of them asked for; completion, options and examples.

import { announce, byId, clear, el, icon } from "./dom.js";
import { entityBox, relationBox } from "./names.js";
import { COUNTS, changed, current, go, question } from "./state.js";
import { Suppose } from "./suppose.js";

export class Ask {
	/** chosen(): the answer that is looked at, if any. */
	constructor({ chosen }) {
		this.chosen = chosen;
		this.entity = entityBox({
			id: "entity",
			label: "Subject",
			placeholder: "something you know",
			onChoose: () => this.onEntity(),
		});
		this.relation = relationBox(
			{
				id: "relation",
				label: "Relation",
				placeholder: "how it is related",
				onChoose: () => this.entity.value && this.submit(),
			},
			() => ({ [this.reverse ? "tail" : "head"]: this.entity.value }),
		);
		this.suppose = new Suppose();
		this.reverse = null;
		this.left = el("div.place");
		this.right = el("div.place");
		this.unknown = el("div.field.unknown");
		this.flipper = el("button.tool.flip", { id: "flip", onclick: () => this.flip() }, icon("flip"));
		this.form = el(
			"form",
			{ id: "question", onsubmit: (event) => this.onSubmit(event) },
			el(
				"div.triple",
				this.left,
				el("div.place.middle", this.relation.node),
				this.right,
				el("div.ask-buttons", this.flipper, el("button.primary", { type: "submit", id: "ask-button" }, "Ask")),
			),
			this.options(),
		);
		this.examples = el("div.chips.examples", { id: "examples" });
		clear(byId("ask"), el("div.question", this.form, this.suppose.form, this.suppose.list), this.examples);
		this.place(false);
	}

	options() {
		this.grounded = el("input", {
			type: "checkbox",
			id: "grounded",
			role: "switch",
			onchange: () => this.again({ grounded: this.grounded.checked }),
		});
		const title = "Only follow edges that are facts of the graph";
		this.ranking = el(
			"select",
			{ id: "ranking", onchange: () => this.again({ ranking: this.ranking.value }) },
			el("option", { value: "fused" }, "all evidence"),
			el("option", { value: "paths" }, "paths alone"),
		);
		this.rankingBox = el("label.pick", { hidden: true }, el("span", "Ranked by"), this.ranking);
		this.k = el(
			"select",
			{ id: "k", "aria-label": "How many answers", onchange: () => this.again({ k: Number(this.k.value) }) },
			COUNTS.map((n) => el("option", { value: n }, `${n} answers`)),
		);
		return el(
			"div.options",
			{ role: "group", "aria-label": "Options" },
			el("label.switch", { title }, this.grounded, el("span", "Facts only")),
			this.rankingBox,
			el("span.pick", this.k),
			this.suppose.opener,
		);
	}

	/** Shows the examples of a model, and the ranking option if it is fused. */
	describe(card) {
		this.rankingBox.hidden = !card.fused;
		const [first] = card.examples ?? [];
		if (first) {
			this.entity.input.placeholder = `for example ${first.head}`;
			this.relation.input.placeholder = `for example ${first.relation}`;
		}
		const chips = (card.examples ?? [])
			.slice(0, 6)
			.map(({ head, relation }) =>
				el("button.chip", { onclick: () => go(question(head, relation, "")) }, `${head} · ${relation} · ?`),
			);
		clear(this.examples, chips.length ? [el("span.quiet", "Try"), ...chips] : []);
	}

	/** Fills the fields from the address; text being typed is kept as long as the question is the same. */
	show(view) {
		if (changed(["model", "head", "relation", "tail", "reverse"], view, this.shown ?? {})) {
			this.place(view.reverse);
			this.entity.value = view.reverse ? view.tail : view.head;
			this.relation.value = view.relation;
		}
		this.shown = view;
		this.suppose.show(view);
		this.grounded.checked = view.grounded;
		this.k.value = String(view.k);
		this.ranking.value = view.ranking || "fused";
	}

	place(reverse) {
		if (this.reverse === reverse) return; // moving a field would take its focus
		this.reverse = reverse;
		this.entity.label.textContent = reverse ? "Answer" : "Subject";
		this.entity.list.ariaLabel = this.entity.label.textContent;
		clear(
			this.unknown,
			el("span.label", reverse ? "Subject" : "Answer"),
			el("span.mystery", el("span", { "aria-hidden": "true" }, "?"), el("span.unseen", "asked for")),
		);
		clear(this.left, reverse ? this.unknown : this.entity.node);
		clear(this.right, reverse ? this.entity.node : this.unknown);
		const other = reverse ? "answer" : "subject";
		this.flipper.ariaLabel = `Flip: ask for the ${other}`;
		this.flipper.title = `Flip: ask for the ${other} (f)`;
	}

	flip() {
		const hadFocus = document.activeElement === this.entity.input;
		// The answer that is looked at becomes what is known: flipping (Niger, language, ?) asks who else speaks French.
		const chosen = this.chosen();
		this.place(!this.reverse);
		if (chosen) this.entity.value = chosen;
		announce(`Now the ${this.reverse ? "subject" : "answer"} is asked for.`);
		const was = current();
		const asked = was.relation && (was.head || was.tail) && this.entity.value && this.relation.value;
		if (asked) this.submit();
		else if (hadFocus) this.entity.input.focus();
	}

	/** Whether the question was asked here and nothing else is being typed: then the answers may take the focus. */
	isDone(view) {
		const typed = [this.entity.value, this.relation.value];
		const asked = [view.reverse ? view.tail : view.head, view.relation];
		const here = [this.entity.input, this.relation.input, byId("ask-button")].includes(document.activeElement);
		return here && typed.every((value, place) => value === asked[place]);
	}

	focus() {
		this.entity.input.focus();
		this.form.scrollIntoView({ block: "nearest" });
	}

	onEntity() {
		if (this.relation.value) this.submit();
		else (this.relation.input.focus(), this.relation.look(true));
	}

	onSubmit(event) {
		event.preventDefault();
		this.submit();
	}

	submit() {
		const [end, relation] = [this.entity.value, this.relation.value];
		const missing = !end ? this.entity : !relation ? this.relation : null;
		if (missing) {
			missing.input.focus();
			announce(missing === this.entity ? "Name a subject first." : "Name a relation first.");
			return missing.look(true);
		}
		this.entity.close();
		this.relation.close();
		go(this.reverse ? question("", relation, end) : question(end, relation, ""));
		return undefined;
	}

	/** Changes an option; a question that was asked is asked again at once. */
	again(change) {
		go({ ...change, answer: "", path: 0 }, { replace: !current().relation });
	}
}
