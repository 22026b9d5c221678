// An entity and what is around it, to unfold, to click through and to ask further questions from.

import * as api from "./api.js";
import { connections } from "./connect.js";
import { byId, clear, el, icon } from "./dom.js";
import { drawSvg } from "./draw.js";
import { UNLIKELY, count, percent, plural } from "./format.js";
import { entityForm } from "./names.js";
import { Neighbours } from "./neighbours.js";
import { asFacts, current, go, question } from "./state.js";
import { trouble } from "./trouble.js";
import { folded } from "./why.js";

const ONWARD = 8; // questions shown at first

export class Around {
	constructor() {
		this.dialog = byId("around");
		this.dialog.addEventListener("close", () => this.onClose());
		// A click beside the sheet is one on the dialog itself.
		this.dialog.addEventListener("click", (event) => event.target === this.dialog && this.dialog.close());
		this.canvas = el("div.canvas", { id: "neighbours", tabindex: "0", role: "group", "aria-label": "Neighbours" });
		new ResizeObserver(() => this.canvas.clientWidth !== this.room && this.draw()).observe(this.canvas);
		this.onward = el("section.onward");
	}

	/** Opens, updates or closes the sheet to match the address. */
	show({ around, to, facts, model, view }, fused) {
		const wanted = view === "ask" ? around : "";
		const key = JSON.stringify([wanted, to, facts]);
		if (key === this.key) return;
		this.waiting?.abort();
		Object.assign(this, { key, shown: wanted, model, fused, neighbours: null });
		if (wanted) this.load(wanted, to);
		else if (this.dialog.open) this.dialog.close();
	}

	onClose() {
		// The event comes late: another sheet may be open by now.
		if (this.shown && !this.dialog.open) go({ around: "", to: "" });
	}

	async load(entity, to) {
		this.waiting = new AbortController();
		const { signal } = this.waiting;
		const body = el("div.sheet-body", { "aria-busy": "true" }, el("p.quiet", "Looking around …"));
		const words = to ? `How are ${entity} and ${to} connected?` : entity;
		const title = el("h2", { id: "around-title", tabindex: "-1" }, words);
		const close = { "aria-label": "Close", onclick: () => this.dialog.close() };
		clear(this.dialog, el("button.tool.close", close, icon("close")), title, body);
		this.dialog.classList.toggle("wide", !to);
		if (!this.dialog.open) this.dialog.showModal();
		title.focus();
		try {
			const content = await (to ? this.connected(entity, to, signal) : this.around(entity, signal));
			if (signal.aborted) return;
			body.removeAttribute("aria-busy");
			clear(body, content);
			this.draw();
		} catch (error) {
			if (!api.wasCancelled(error))
				trouble(body, error, {
					onName: (name) => go(to ? { to: name } : { around: name }),
					onRetry: () => this.load(entity, to),
				});
		}
	}

	async around(entity, signal) {
		const neighbours = new Neighbours(this.model, signal);
		const [found] = await Promise.all([neighbours.begin(entity), this.askFurther(entity, signal)]);
		this.neighbours = neighbours;
		const edges = found.groups.reduce((sum, one) => sum + one.count, 0);
		const doubtful = folded(() => api.doubtful(this.model, entity), doubts);
		return [
			el("p.quiet", `${plural(edges, "edge")}. Choose a relation or a name to unfold it, or to fold it again.`),
			this.canvas,
			this.onward,
			el("details.fold", el("summary", "As a list"), list(found)),
			this.fused &&
				el("details.fold", { ontoggle: doubtful.open }, el("summary", "Doubtful facts"), doubtful.node),
		];
	}

	async connected(first, second, signal) {
		const facts = asFacts(current());
		const found = await api.connect(this.model, { first, second, facts }, signal);
		return [...connections(found), this.pair(first, "Connected to another one …")];
	}

	pair(entity, label) {
		const take = (to) => go({ around: entity, to });
		return entityForm({ id: "connect-to", label, placeholder: "name an entity" }, take).node;
	}

	draw() {
		if (!this.neighbours || !this.canvas.isConnected) return;
		this.room = this.canvas.clientWidth;
		const onNode = (node) => this.unfold(node);
		this.scene = this.neighbours.scene(this.room - 16);
		clear(this.canvas, drawSvg(this.scene, { onNode }));
	}

	async unfold(node) {
		const { neighbours } = this;
		const { signal } = this.waiting;
		try {
			const next = await neighbours.click(node);
			if (signal.aborted) return;
			this.draw();
			this.canvas.querySelectorAll(".node")[this.scene.nodes.indexOf(next)]?.focus();
			if (node === neighbours.chosen) await this.askFurther(node.name, signal);
		} catch (error) {
			if (!api.wasCancelled(error)) trouble(this.onward, error);
		}
	}

	/** Questions about an entity that fit it. */
	async askFurther(entity, signal) {
		this.asked = entity;
		const [from, to] = await Promise.all(
			["head", "tail"].map((end) => api.relations(this.model, { [end]: entity, limit: 50 }, signal)),
		);
		if (signal.aborted || this.asked !== entity) return;
		const chips = ({ matches }, words, goal) =>
			matches
				.filter((one) => one.fits)
				.slice(0, ONWARD)
				.map(({ name }) => el("button.chip", { onclick: () => go(goal(name)) }, words(name)));
		const ask = () => el("span.ask-for", { "aria-label": "what" }, "?");
		const there = chips(from, (name) => [`${name} `, ask()], (name) => question(entity, name, ""));
		const here = chips(to, (name) => [ask(), ` ${name}`], (name) => question("", name, entity));
		const group = (label, some) => some.length > 0 && el("div.chips", { role: "group", "aria-label": label }, some);
		clear(
			this.onward,
			el("h3", `Ask further about ${entity}`),
			group(`${entity} as subject`, there),
			group(`${entity} as answer`, here),
			this.pair(entity, `How is ${entity} connected to …`),
			entity !== this.shown && el("button.plain", { onclick: () => go({ around: entity }) }, `Look around ${entity}`),
		);
	}
}

const WAYS = { out: "right", in: "left", both: "flip" };
const WORDS = { out: "from here:", in: "to here:", both: "both ways:" };

/** The same facts for those who cannot see the drawing. */
function list({ edges, groups, left_out: more, entity }) {
	const name = (one) =>
		el("button.entity", { title: one, disabled: one === entity, onclick: () => go({ around: one }) }, one);
	const group = ({ relation, way, count: all }) => {
		const own = edges.filter((one) => one.relation === relation && one.way === way);
		const others = own.map(({ head, tail }) => name(way === "in" ? head : tail));
		return el(
			"div.kind",
			el("dt.quiet", icon(WAYS[way]), el("span.unseen", WORDS[way]), `${relation} (${count(all)})`),
			el("dd", others),
		);
	};
	return [
		el("dl.kinds", groups.map(group)),
		more > 0 && el("p.quiet", `${plural(more, "more edge is", "more edges are")} not shown.`),
	];
}

/** Facts that would be unlikely if they were not in the graph. */
function doubts({ facts, judged, left_out: more }) {
	const fact = ({ head, relation, tail, confidence, against }) =>
		el(
			"li",
			el(
				"button.entity",
				{ onclick: () => go({ ...question(head, relation, ""), answer: tail }) },
				`${head} · ${relation} · ${tail}`,
			),
			`: ${percent(confidence)} likely without itself`,
			el("p.quiet", against),
		);
	const doubtful = facts.filter((one) => one.confidence < UNLIKELY);
	const rest = more ? ` ${plural(more, "fact")} could not be judged.` : "";
	return [
		el("p.quiet", `${plural(judged, "fact")} judged, each as if it were not there; the least likely first.${rest}`),
		doubtful.length ? el("ul", doubtful.map(fact)) : el("p", "None of them looks doubtful."),
	];
}
