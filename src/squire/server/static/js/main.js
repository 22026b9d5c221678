// Connects the parts: the address determines the view, and each part shows its share of it.

import { Around } from "./around.js";
import { AnswerList, legendRows } from "./answers.js";
import * as api from "./api.js";
import { Ask } from "./ask.js";
import { announce, byId, clear, el } from "./dom.js";
import { EvidencePanel } from "./evidence.js";
import { plural } from "./format.js";
import { copyLink, saveAnswers } from "./export.js";
import { Judge } from "./judge.js";
import { onKeys } from "./keys.js";
import { showQuality } from "./quality.js";
import { Review } from "./review.js";
import { Seek } from "./seek.js";
import { QUESTION, VIEWS, asFacts, changed, current, go, question, subscribe } from "./state.js";
import { trouble } from "./trouble.js";
import { themeSwitch } from "./theme-switch.js";

class Page {
	constructor() {
		this.ask = new Ask({ chosen: () => this.found && this.evidence.answer?.entity });
		this.seek = new Seek((name) => this.choose(name));
		this.list = new AnswerList({
			onChoose: (entity, byHand) => this.choose(entity, byHand),
			onEnter: () => this.toEvidence(),
			tail: this.seek.node,
		});
		this.evidence = new EvidencePanel({ saveAnswers: () => this.found && saveAnswers(this.found) });
		this.around = new Around();
		this.judge = new Judge(byId("judge-view"));
		this.review = new Review(byId("review-view"));
		this.cards = new Map();
		clear(byId("help-grades"), legendRows());
		byId("help").addEventListener("click", () => byId("help-dialog").showModal());
		byId("model").addEventListener("change", (event) => go({ model: event.target.value, ...BLANK }));
		byId("skip").addEventListener("click", (event) => (event.preventDefault(), byId("main").focus()));
		for (const link of [byId("brand"), ...document.querySelectorAll("[data-view]")]) {
			link.addEventListener("click", (event) => this.onView(event, link.dataset.view));
		}
		themeSwitch(byId("theme"));
		onKeys({
			"/": () => (go({ view: "ask", around: "", to: "" }), this.ask.focus()),
			"?": () => byId("help-dialog").open || byId("help-dialog").showModal(),
			f: () => current().view === "ask" && this.ask.flip(),
			j: () => this.list.step(1),
			k: () => this.list.step(-1),
			p: () => this.evidence.nextPath(),
			c: () => copyLink(),
		});
	}

	async start() {
		try {
			this.models = await api.models();
		} catch (error) {
			return trouble(byId("trouble"), error, { onRetry: () => this.start() });
		}
		const picker = byId("model");
		clear(
			picker,
			this.models.map((one) => el("option", { value: one.name }, one.name)),
		);
		picker.hidden = this.models.length < 2;
		byId("model-name").hidden = this.models.length > 1;
		subscribe((now) => this.render(now));
		if (!location.hash) await this.begin();
		return this.render(current());
	}

	/** The first thing that a visitor sees is a question that is answered already. */
	async begin() {
		const model = this.usual();
		const [first] = (await this.load(model))?.examples ?? [];
		if (first?.answer) go({ ...question(first.head, first.relation, ""), model }, { replace: true });
	}

	onView(event, view) {
		if (event.ctrlKey || event.metaKey || event.shiftKey) return; // opens in a new tab, like any link
		event.preventDefault();
		go(view ? { view, around: "", to: "" } : { view: "ask", ...BLANK, model: this.card?.name ?? "" });
	}

	async render(now) {
		if (!now.model) return go({ model: this.usual() }, { replace: true });
		for (const view of VIEWS) {
			byId(`${view}-view`).hidden = now.view !== view;
			const link = document.querySelector(`[data-view=${view}]`);
			link.ariaCurrent = now.view === view ? "page" : null;
		}
		const card = await this.load(now.model);
		if (current() !== now) return undefined; // the view has changed in the meantime
		if (card !== this.card) this.describe(card);
		this.title(now);
		if (card) await this.showView(now, card);
		return this.around.show(current(), card?.fused);
	}

	async showView(now, card) {
		const entered = now.view !== this.entered;
		this.entered = now.view;
		if (now.view === "quality") showQuality(byId("quality-view"), card);
		const part = this[now.view]; // of review and judge
		if (part?.open && (entered || part.model !== now.model)) part.open(now.model);
		if (now.view !== "ask") return;
		this.ask.show(now);
		if (changed(QUESTION, now, this.shown ?? {})) await this.answer(now);
		else this.showChosen(now);
	}

	usual() {
		return (this.models.find((one) => one.default) ?? this.models[0])?.name ?? "none";
	}

	/** The card of a model, fetched once; null after showing an error if there is none. */
	async load(model) {
		if (!this.cards.has(model)) this.cards.set(model, api.card(model));
		try {
			return await this.cards.get(model);
		} catch (error) {
			this.cards.delete(model);
			byId("found").hidden = true;
			byId("ask-view").hidden = false; // where errors are shown
			trouble(byId("trouble"), error, { onRetry: () => this.render(current()) });
			return null;
		}
	}

	describe(card) {
		this.card = card;
		this.shown = null;
		if (!card) return;
		clear(byId("trouble"));
		byId("model").value = card.name;
		byId("model-name").textContent = card.name;
		const size = [plural(card.entities, "entity", "entities"), plural(card.facts, "fact")];
		byId("model-facts").textContent = size.join(" · ");
		this.ask.describe(card);
		this.seek.describe(card);
	}

	title({ view, head, relation, tail, reverse }) {
		const question = relation ? `${reverse ? "?" : head} · ${relation} · ${reverse ? tail : "?"}` : "";
		document.title = [
			view === "ask" ? question : { quality: "Quality", review: "Review", judge: "Judge paths" }[view],
			"SQUIRE",
		]
			.filter(Boolean)
			.join(" – ");
	}

	async answer(view) {
		this.waiting?.abort();
		const before = this.found; // stays if the service is away
		this.shown = view;
		this.found = null;
		this.checks = new Map();
		clear(byId("trouble"));
		const asked = view.relation && (view.head || view.tail);
		byId("found").hidden = !asked;
		byId("ask-view").classList.toggle("empty", !asked);
		document.querySelector(".hero").classList.toggle("unseen", Boolean(asked));
		if (!asked) return;
		this.waiting = new AbortController();
		const { signal } = this.waiting;
		const began = performance.now();
		this.busy(true);
		this.seek.reset();
		this.list.wait();
		this.evidence.wait();
		try {
			const found = await api.answer(view.model, this.body(view), signal);
			if (signal.aborted) return;
			this.found = found;
			this.hint(view, signal);
			this.list.show(found, (performance.now() - began) / 1000);
			announce(inWords(found));
			await this.showChosen(current());
			if (this.ask.isDone(view)) this.list.focus();
			if (view.answer && isNarrow()) this.toEvidence(); // a link to an answer shows what supports it
		} catch (error) {
			if (api.wasCancelled(error)) return;
			this.shown = null; // the same question may be asked again
			if (before && error.code !== "unknown_name") this.restore(before);
			else byId("found").hidden = true;
			trouble(byId("trouble"), error, {
				onName: !view.facts && ((name) => this.instead(name, view, /^unknown relation/.test(error.message))),
				onRetry: () => this.render(current()),
			});
		} finally {
			if (!signal.aborted) this.busy(false);
		}
	}

	body(view) {
		const { head, relation, tail, reverse, k, grounded, ranking } = view;
		const ends = reverse ? { head: null, tail } : { head, tail: null };
		const ranked = this.card.fused ? ranking || null : null;
		return { ...ends, relation, k, grounded, ranking: ranked, facts: asFacts(view) };
	}

	/** Replaces an unknown name by one of the graph. */
	instead(name, { head, relation, tail, reverse }, isRelation) {
		if (isRelation) go(question(head, name, tail));
		else go(reverse ? question("", relation, name) : question(name, relation, ""));
	}

	busy(is) {
		byId("progress").hidden = !is;
		byId("found").ariaBusy = String(is);
	}

	/** The answers of before, below the error. */
	restore(found) {
		this.found = found;
		this.list.show(found, 0);
		this.showChosen({ ...current(), answer: "" });
	}

	/** Says so where entities of this kind rarely have the relation. */
	async hint({ model, head, relation, tail }, signal) {
		this.list.hint.hidden = true;
		try {
			const { matches } = await api.relations(model, { q: relation, head, tail, limit: 5 }, signal);
			const own = matches.find((one) => one.name === relation);
			this.list.hint.hidden = !own || own.fits;
			this.list.hint.textContent = `Entities like ${head || tail} rarely have “${relation}”, so answers may make little sense.`;
		} catch {
			// no hint then
		}
	}

	/** The check of an answer to the current question, or what is behind it, fetched once. */
	about(call, entity) {
		const { model, head, relation, tail, reverse } = current();
		const fact = reverse ? { head: entity, relation, tail } : { head, relation, tail: entity };
		const key = `${call.name} ${entity}`;
		if (!this.checks.has(key)) {
			const found = call(model, { ...fact, facts: asFacts(current()) });
			this.checks.set(key, found);
			found.catch(() => this.checks.delete(key));
		}
		return this.checks.get(key);
	}

	/** A candidate has its evidence; a fact, or any other entity, is judged first: as if it were not in the graph. */
	async showChosen(view) {
		const { found } = this;
		if (!found) return;
		const { fused } = this.card;
		const chosen = this.list.select(view.answer, fused);
		const entity = chosen?.entity ?? view.answer;
		if (chosen) this.seek.reset();
		if (chosen && (!chosen.is_fact || !fused))
			return this.evidence.show(found, chosen, view, { why: () => this.about(api.why, entity) });
		if (!fused || !entity) return this.evidence.show(found, this.list.select("", false), view);
		try {
			const check = await this.about(api.check, entity);
			if (this.found !== found || (current().answer && current().answer !== entity)) return;
			if (!chosen) this.seek.show(check);
			const why = () => this.about(api.why, entity);
			const judged = { why, isFact: check.is_fact, against: check.is_fact ? [] : check.against };
			this.evidence.show(found, this.judged(check), view, judged);
		} catch (error) {
			if (chosen) this.evidence.show(found, chosen, view);
			else this.seek.failed(error);
		}
	}

	/** The answer of a check, under the name that the question asks for; always the same object. */
	judged(check) {
		check.shown ??= { ...check.answer, entity: current().reverse ? check.head : check.tail };
		return check.shown;
	}

	choose(entity, byHand = false) {
		go({ answer: entity, path: 0 }, { replace: true });
		if (byHand && isNarrow()) this.toEvidence();
	}

	toEvidence() {
		const panel = byId("evidence");
		panel.focus({ preventScroll: true });
		panel.scrollIntoView({ block: "start" });
	}
}

/** For screen readers. */
function inWords({ facts, answers }) {
	const known = facts.length ? `The graph says: ${facts.map((one) => one.entity).join(", ")}. ` : "";
	if (!answers.length) return `${known}No new answer.`;
	return `${known}${plural(answers.length, "new answer")}; first: ${answers[0].entity}`;
}

const isNarrow = () => matchMedia("(max-width: 60rem)").matches;

const BLANK = {
	head: "",
	relation: "",
	tail: "",
	reverse: false,
	answer: "",
	path: 0,
	around: "",
	to: "",
	facts: "",
};

new Page().start();
