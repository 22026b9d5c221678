// A text field with completion: the ARIA combobox pattern. Knows nothing about graphs.

import { clear, el } from "./dom.js";
import { wasCancelled } from "./api.js";

const PAUSE = 90; // ms after the last letter: fewer requests, without a noticeable delay

export class Combobox {
	/**
	 * search(text, signal) -> [{name, note, group}], best first; onChoose(name) when one is taken.
	 * Typing on after a choice is fine: the value is whatever the field says.
	 */
	constructor({ id, placeholder, search, onChoose, label }) {
		this.search = search;
		this.onChoose = onChoose;
		this.options = [];
		this.active = -1;
		this.wantsFirst = false; // Enter was pressed before the completions came
		this.label = el("label", { for: id }, label);
		this.input = el("input", {
			id,
			type: "text",
			role: "combobox",
			placeholder,
			"aria-autocomplete": "list",
			"aria-expanded": "false",
			"aria-controls": `${id}-list`,
			autocomplete: "off",
			autocapitalize: "off",
			spellcheck: "false",
			oninput: () => this.look(),
			onkeydown: (event) => this.onKey(event),
			onfocus: () => this.input.select(),
			onclick: () => this.isOpen || this.look(true),
			onblur: () => this.close(),
		});
		this.list = el("ul", {
			id: `${id}-list`,
			role: "listbox",
			"aria-label": label,
			class: "completions",
			hidden: true,
		});
		this.list.addEventListener("pointerdown", (event) => event.preventDefault()); // the field keeps the focus
		this.list.addEventListener("click", (event) => {
			const option = event.target.closest("[role=option]");
			if (option) this.choose(Number(option.dataset.place));
		});
		this.node = el("div.field.combobox", this.label, this.input, this.list);
	}

	get value() {
		return this.input.value.trim();
	}

	set value(text) {
		this.input.value = text;
		this.input.title = text; // shows a long name in full
	}

	get isOpen() {
		return !this.list.hidden;
	}

	/** Completions of the typed text; with `all`, the completions of an empty field. */
	look(all = false) {
		this.cancel();
		this.wantsFirst = false;
		this.waiting = new AbortController();
		const { signal } = this.waiting;
		this.timer = setTimeout(
			async () => {
				try {
					const found = await this.search(all ? "" : this.value, signal);
					if (!signal.aborted && document.activeElement === this.input)
						this.show(found, !all && this.value !== "");
				} catch (error) {
					if (wasCancelled(error)) return;
					this.close(); // typing works without completions
					if (error.code === "unreachable") this.away();
				} finally {
					if (this.waiting?.signal === signal) this.waiting = null;
				}
			},
			all ? 0 : PAUSE,
		);
	}

	/** Typing while the service is away says so. */
	away() {
		clear(this.list, el("li", { role: "presentation", class: "group" }, "Can’t reach the service"));
		this.list.hidden = false;
	}

	show(found, pickFirst) {
		this.options = found;
		const typed = this.value;
		let group = null;
		const rows = found.flatMap((one, place) => {
			const heading =
				one.group && one.group !== group ? [el("li", { role: "presentation", class: "group" }, one.group)] : [];
			group = one.group;
			return [
				...heading,
				el(
					"li",
					{
						role: "option",
						id: `${this.list.id}-${place}`,
						"data-place": place,
						"aria-selected": "false",
						title: one.name,
					},
					el("span.name", one.name),
					one.note ? el("span.note", one.note) : null,
				),
			];
		});
		if (!found.length) rows.push(el("li", { role: "presentation", class: "group" }, "No match"));
		clear(this.list, rows);
		this.list.hidden = false;
		this.input.ariaExpanded = "true";
		const same = found.findIndex((one) => one.name.toLowerCase() === typed.toLowerCase());
		this.move(pickFirst && found.length ? Math.max(same, 0) : -1);
		if (this.wantsFirst && this.active >= 0) this.choose(this.active);
	}

	move(place) {
		const before = this.item(this.active);
		if (before) before.ariaSelected = "false";
		this.active = place;
		const item = place >= 0 ? this.item(place) : null;
		if (item) item.ariaSelected = "true";
		item?.scrollIntoView({ block: "nearest" });
		if (item) this.input.setAttribute("aria-activedescendant", item.id);
		else this.input.removeAttribute("aria-activedescendant");
	}

	item(place) {
		return this.list.querySelector(`[data-place="${place}"]`);
	}

	choose(place) {
		const { name } = this.options[place];
		this.value = name;
		this.close();
		this.onChoose(name);
	}

	cancel() {
		clearTimeout(this.timer);
		this.waiting?.abort();
		this.waiting = null;
	}

	close() {
		this.cancel();
		this.wantsFirst = false;
		this.list.hidden = true;
		this.input.ariaExpanded = "false";
		this.move(-1);
		this.options = [];
	}

	onKey(event) {
		if (event.isComposing || event.altKey || event.ctrlKey || event.metaKey) return;
		const last = this.options.length - 1;
		const turn = (to) => (this.isOpen ? last >= 0 && this.move(to) : this.look(this.value === ""));
		const steps = {
			ArrowDown: () => turn(this.active < last ? this.active + 1 : 0),
			ArrowUp: () => turn(this.active > 0 ? this.active - 1 : last),
			Escape: () => (this.isOpen ? this.close() : (this.value = "")),
			Enter: () => (this.isOpen && this.active >= 0 ? this.choose(this.active) : this.enterEarly()),
		};
		const step = steps[event.key];
		if (step && step() !== PASS) event.preventDefault();
	}

	/** If completions are loading, takes the first one when they arrive; otherwise Enter submits the form. */
	enterEarly() {
		if (!this.waiting || this.value === "") return PASS;
		this.wantsFirst = true;
		return true;
	}
}

const PASS = Symbol("not for the field");
