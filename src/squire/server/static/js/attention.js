// Attention along the path as a heat map: one layer, and one head or the mean of all.

import * as api from "./api.js";
import { clear, el } from "./dom.js";
import { current } from "./state.js";

export class AttentionMap {
	constructor() {
		this.body = el("div.attention-body");
		this.node = el("details.attention", { id: "attention" }, el("summary", "Where the model looked"), this.body);
		this.node.addEventListener("toggle", () => this.node.open && this.load());
	}

	/** Sets the answer; nothing is fetched before the section is opened. */
	offer(question) {
		this.waiting?.abort();
		this.question = question;
		this.data = null;
		clear(this.body);
		if (this.node.open) this.load();
	}

	async load() {
		if (this.data) return;
		this.waiting?.abort();
		this.waiting = new AbortController();
		const { signal } = this.waiting;
		clear(this.body, el("p.quiet", "Looking over its shoulder …"));
		try {
			const data = await api.attention(current().model, this.question, signal);
			if (signal.aborted) return;
			this.data = data;
			this.build();
		} catch (error) {
			if (!api.wasCancelled(error)) clear(this.body, el("p.quiet", error.message));
		}
	}

	build() {
		const layers = this.data.weights.length;
		const heads = this.data.weights[0].length;
		const numbered = (n) => Array.from({ length: n }, (_, i) => el("option", { value: i }, i + 1));
		this.layer = el("select", { onchange: () => this.draw() }, numbered(layers));
		this.layer.value = String(layers - 1);
		this.head = el(
			"select",
			{ onchange: () => this.draw() },
			el("option", { value: "mean" }, "mean of all"),
			numbered(heads),
		);
		this.table = el("table.heat");
		clear(
			this.body,
			el(
				"p.quiet",
				"While writing the path to this answer, each token (row) looks at the question and at what it has " +
					"written so far (columns). Each row adds up to 1.",
			),
			el(
				"div.heat-picks.quiet",
				el("label.pick", el("span", "Layer"), this.layer),
				el("label.pick", el("span", "Attention head"), this.head),
			),
			el("div.heat-scroll", { tabindex: "0", role: "group", "aria-label": "Attention" }, this.table),
		);
		this.draw();
	}

	weights() {
		const layer = this.data.weights[Number(this.layer.value)];
		if (this.head.value !== "mean") return layer[Number(this.head.value)];
		return layer[0].map((row, i) =>
			row.map((_, j) => layer.reduce((sum, head) => sum + head[i][j], 0) / layer.length),
		);
	}

	draw() {
		const { tokens, query_tokens: asked } = this.data;
		const weights = this.weights();
		const which = `layer ${this.layer.selectedOptions[0].text}, head ${this.head.selectedOptions[0].text}`;
		const column = (token, j) => {
			const look = j < asked ? "asked" : "";
			return el("th", { scope: "col", title: this.word(j), class: look }, el("span", token));
		};
		const row = (token, i) =>
			el(
				"tr",
				el("th", { scope: "row", title: token }, token),
				tokens.map((_, j) => (j > i ? unseen() : this.cell(i, j, weights[i][j]))),
			);
		clear(
			this.table,
			el("caption.unseen", `Attention of the path’s tokens in ${which}`),
			el("thead", el("tr", el("td"), tokens.map(column))),
			el("tbody", tokens.map(row).slice(asked)), // the question's own tokens see only each other
		);
	}

	word(place) {
		const { tokens, query_tokens: asked } = this.data;
		return place < asked ? `${tokens[place]} (asked)` : tokens[place];
	}

	cell(i, j, value) {
		const says = `${this.word(i)} looks at ${this.word(j)}: ${value.toFixed(2)}`;
		const node = el("td", { title: says }, value.toFixed(2).replace(/^0/, ""));
		node.style.setProperty("--heat", String(value));
		return node;
	}
}

const unseen = () => el("td.never", el("span.unseen", "not seen"));
