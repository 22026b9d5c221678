// An entity and its facts, to click through and to ask further questions from.

import * as api from "./api.js";
import { connections } from "./connect.js";
import { byId, clear, el, icon } from "./dom.js";
import { plural } from "./format.js";
import { entityForm } from "./names.js";
import { asFacts, current, go, question } from "./state.js";
import { trouble } from "./trouble.js";

const ONWARD = 8; // questions shown at first

export class Around {
	constructor() {
		this.dialog = byId("around");
		this.dialog.addEventListener("close", () => this.onClose());
		// A click beside the sheet is one on the dialog itself.
		this.dialog.addEventListener("click", (event) => event.target === this.dialog && this.dialog.close());
		this.shown = "";
		this.trail = [];
	}

	/** Opens, updates or closes the sheet to match the address. */
	show({ around, to, facts, model, view }) {
		const wanted = view === "ask" ? around : "";
		const key = JSON.stringify([wanted, to, facts]);
		if (key === this.key) return;
		this.waiting?.abort();
		Object.assign(this, { key, shown: wanted });
		if (!wanted) {
			this.trail = [];
			if (this.dialog.open) this.dialog.close();
			return;
		}
		const back = this.trail.indexOf(wanted);
		this.trail = back >= 0 ? this.trail.slice(0, back + 1) : [...this.trail, wanted].slice(-6);
		this.load(model, wanted, to);
	}

	onClose() {
		// The event comes late: another sheet may be open by now.
		if (this.shown && !this.dialog.open) go({ around: "", to: "" });
	}

	async load(model, entity, to) {
		this.waiting = new AbortController();
		const { signal } = this.waiting;
		const body = el("div.sheet-body", { "aria-busy": "true" }, el("p.quiet", "Looking around …"));
		const title = el(
			"h2",
			{ id: "around-title", tabindex: "-1" },
			to ? `How are ${entity} and ${to} connected?` : entity,
		);
		clear(this.dialog, this.bar(), title, body);
		if (!this.dialog.open) this.dialog.showModal();
		title.focus();
		try {
			const content = await (to ? this.connected(model, entity, to, signal) : this.facts(model, entity, signal));
			if (signal.aborted) return;
			body.removeAttribute("aria-busy");
			clear(body, content);
		} catch (error) {
			if (!api.wasCancelled(error))
				trouble(body, error, {
					onName: (name) => go(to ? { to: name } : { around: name }),
					onRetry: () => this.load(model, entity, to),
				});
		}
	}

	async facts(model, entity, signal) {
		const [around, from, to] = await Promise.all([
			api.neighbourhood(model, entity, signal),
			api.relations(model, { head: entity, limit: 50 }, signal),
			api.relations(model, { tail: entity, limit: 50 }, signal),
		]);
		return [
			el("p.quiet", plural(around.degree, "edge")),
			this.onward(entity, from, to),
			this.pair(`How is it connected to …`),
			...this.edges(around),
		];
	}

	async connected(model, first, second, signal) {
		const facts = asFacts(current());
		const found = await api.connect(model, { first, second, facts }, signal);
		return [...connections(found), this.pair("Connected to another one …")];
	}

	pair(label) {
		return entityForm({ id: "connect-to", label, placeholder: "name an entity" }, (to) => go({ to })).node;
	}

	bar() {
		const crumbs = this.trail
			.slice(0, -1)
			.map((name) =>
				el("li", el("button.crumb", { title: name, onclick: () => go({ around: name, to: "" }) }, name)),
			);
		return el(
			"div.sheet-bar",
			crumbs.length
				? el("nav", { "aria-label": "The way here" }, el("ol.crumbs", crumbs))
				: el("span.quiet", "Around"),
			el("button.tool", { "aria-label": "Close", onclick: () => this.dialog.close() }, icon("close")),
		);
	}

	onward(entity, from, to) {
		const fits = (found) => found.matches.filter((one) => one.fits).slice(0, ONWARD);
		const chip = (label, goal) => el("button.chip", { onclick: () => go(goal) }, label);
		const ask = el("span.ask-for", { "aria-label": "what" }, "?");
		const there = fits(from).map((one) =>
			chip([`${one.name} `, ask.cloneNode(true)], question(entity, one.name, "")),
		);
		const here = fits(to).map((one) =>
			chip([ask.cloneNode(true), ` ${one.name}`], question("", one.name, entity)),
		);
		if (!there.length && !here.length) return null;
		return el(
			"section.onward",
			el("h3", "Ask further"),
			there.length ? el("div.chips", { role: "group", "aria-label": `${entity} as subject` }, there) : null,
			here.length ? el("div.chips", { role: "group", "aria-label": `${entity} as answer` }, here) : null,
		);
	}

	edges({ edges, left_out: more, entity }) {
		const groups = new Map();
		for (const edge of edges) {
			const key = JSON.stringify([edge.relation, edge.outgoing]);
			if (!groups.has(key)) groups.set(key, { ...edge, others: [] });
			groups.get(key).others.push(edge.outgoing ? edge.tail : edge.head);
		}
		const group = ({ relation, outgoing, others }) =>
			el(
				"div.kind",
				el(
					"dt",
					el(
						"span.way",
						icon(outgoing ? "right" : "left"),
						el("span.unseen", outgoing ? "from here:" : "to here:"),
					),
					relation,
				),
				el(
					"dd",
					others.map((name) =>
						el(
							"button.entity",
							{ title: name, disabled: name === entity, onclick: () => go({ around: name }) },
							name,
						),
					),
				),
			);
		return [
			el("h3", "Facts"),
			el("dl.kinds", [...groups.values()].map(group)),
			more ? el("p.quiet", `${plural(more, "more edge is", "more edges are")} not shown.`) : null,
		];
	}
}
