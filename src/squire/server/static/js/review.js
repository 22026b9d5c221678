// Review: predicted and doubtful facts as cards. Decisions are kept in the run folder, where `squire add` finds them.

import * as api from "./api.js";
import { announce, clear, el, icon } from "./dom.js";
import { likely, plural } from "./format.js";
import { factTitle, verdict } from "./judge.js";
import { onKeys } from "./keys.js";
import { go, question } from "./state.js";
import { trouble } from "./trouble.js";

const CHOICES = [
	{ decision: "accept", key: "a", name: "Accept", words: "It is true." },
	{ decision: "reject", key: "r", name: "Reject", words: "It is wrong." },
	{ decision: "skip", key: "s", name: "Skip", words: "I cannot say." },
];

export class Review {
	constructor(place) {
		this.body = el("div.page-column");
		place.append(this.body);
		const keys = CHOICES.map(({ key, decision }) => [key, () => this.say(decision)]);
		onKeys({ ...Object.fromEntries(keys), u: () => this.undo() }, "review");
	}

	open(model) {
		Object.assign(this, { model, cards: [], start: 0, done: [] }); // done: in this session
		clear(this.body, el("h1", "Looking for facts …"));
		return this.step(() => {});
	}

	/** Does something, fetches cards if there are none left, and shows the first. */
	async step(action) {
		if (this.busy) return;
		this.busy = true;
		const { model } = this;
		try {
			await action();
			while (!this.cards.length && this.start !== null) {
				const { cards, next, progress } = await api.review(model, this.start);
				Object.assign(this, { cards, start: next, progress });
			}
			this.show(this.cards[0]);
		} catch (error) {
			trouble(this.body, error, { onRetry: () => this.step(() => {}) });
		} finally {
			this.busy = false;
			if (model !== this.model) this.open(this.model); // changed meanwhile
		}
	}

	async decide({ head, relation, tail }, decision) {
		this.progress = await api.decide(this.model, { head, relation, tail, decision });
	}

	say(decision) {
		const [card] = this.cards;
		if (card)
			this.step(async () => {
				await this.decide(card, decision);
				this.cards.shift();
				this.done.push({ card, decision });
			});
	}

	undo() {
		const last = this.done.at(-1);
		if (last)
			this.step(async () => {
				await this.decide(last.card, "undo");
				this.cards.unshift(this.done.pop().card);
			});
	}

	show(card) {
		const { accepted, rejected, skipped, counted } = this.progress;
		const count = counted ? ` Confidence takes ${counted} decisions into account.` : "";
		const choices = CHOICES.map((one) => verdict(one, () => this.say(one.decision)));
		clear(
			this.body,
			el("p.quiet", `${accepted} accepted · ${rejected} rejected · ${skipped} skipped.${count} ${this.agreement()}`),
			card ? this.card(card) : el("h1", { tabindex: "-1" }, "Nothing is left to review"),
			card ? el("div.verdicts", { role: "group", "aria-label": "Your decision" }, choices) : null,
			el(
				"div",
				el("button.plain", { disabled: !this.done.length, onclick: () => this.undo() }, icon("back"), "Undo (u)"),
			),
			el(
				"p.quiet",
				"Every decision is saved at once. Add what you accepted with ",
				el("code", "squire add RUN RUN/review/accepted.csv"),
				".",
			),
		);
		this.body.querySelector("h1").focus({ preventScroll: true });
		if (card) announce(card.why);
	}

	card({ head, relation, tail, is_fact: isFact, confidence, why }) {
		const look = () => go({ ...question(head, relation, ""), answer: tail });
		const how = confidence === null ? "predicted" : likely({ confidence });
		return el(
			"section.card.judged",
			{ "aria-label": "Fact to review" },
			factTitle({ head, relation, tail }),
			el("p.quiet", isFact ? `In the graph, but doubtful: without this fact it would be ${how}` : how),
			el("p.sentence", why),
			el("button.plain.pair", { onclick: look }, icon("search"), "See the evidence"),
		);
	}

	/** How many predictions were accepted, and how many should have been. */
	agreement() {
		const judged = this.done.filter(({ card, decision }) => card.confidence !== null && decision !== "skip");
		if (judged.length < 5) return "";
		const expected = judged.reduce((sum, { card }) => sum + card.confidence, 0);
		const yes = judged.filter(({ decision }) => decision === "accept").length;
		return `You accepted ${yes} of the last ${plural(judged.length, "fact")}; ${expected.toFixed(1)} were expected.`;
	}
}
