// Checks any other answer: whether the graph has it, how likely it is, and what speaks against it.

import { clear, el } from "./dom.js";
import { count, percent } from "./format.js";
import { entityForm } from "./names.js";

export class Seek {
	/** onFound(name): an answer to check. */
	constructor(onFound) {
		this.onFound = onFound;
		const how = { id: "seek", label: "Check another answer", placeholder: "name an entity" };
		const { box, node } = entityForm(how, (name) => this.look(name));
		this.said = el("p.quiet", { role: "status" });
		node.append(this.said);
		Object.assign(this, { box, node });
	}

	/** Only models with a fusion know how likely a fact is. */
	describe({ fused }) {
		this.node.hidden = !fused;
	}

	reset() {
		this.box.value = "";
		clear(this.said);
	}

	/** The address names the answer; whoever shows it fetches its check. */
	look(name) {
		this.said.textContent = "Looking …";
		this.onFound(name);
	}

	show(check) {
		this.said.textContent = inWords(check);
	}

	failed(error) {
		this.said.textContent = error.message;
	}
}

function inWords({ head, relation, tail, is_fact: isFact, confidence, answer }) {
	const fact = `${head} · ${relation} · ${tail}`;
	const likely = `${percent(confidence)} likely`;
	if (isFact) return `${fact} is in the graph; without it, ${likely}.`;
	return `${fact} is not in the graph; ${likely}, rank ${count(answer.rank)} of the new answers.`;
}
