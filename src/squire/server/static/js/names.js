// Fields in which a name of the graph is typed.

import * as api from "./api.js";
import { Combobox } from "./combobox.js";
import { el } from "./dom.js";
import { count, plural } from "./format.js";
import { current } from "./state.js";

export const entityBox = (how) =>
	new Combobox({
		search: async (q, signal) =>
			(await api.entities(current().model, q, signal)).matches.map((one) => ({
				name: one.name,
				note: plural(one.degree, "edge"),
			})),
		...how,
	});

/** `ends()`: {head, tail}, as far as they are known: relations that fit them come first. */
export const relationBox = (how, ends) =>
	new Combobox({
		search: async (q, signal) => {
			const given = Object.entries(ends()).find(([, name]) => name) ?? [];
			const query = { q, limit: 50 };
			const found = await api
				.relations(current().model, { ...query, [given[0] ?? "head"]: given[1] }, signal)
				.catch((error) => {
					if (error.code !== "unknown_name") throw error;
					return api.relations(current().model, query, signal); // the name is not finished yet
				});
			const some = given[1] && found.matches.some((one) => one.fits);
			return found.matches.map((one) => ({
				name: one.name,
				note: count(one.facts),
				group: some ? (one.fits ? `Fits ${given[1]}` : "Others") : null,
			}));
		},
		...how,
	});

/** A field of its own: `take(name)` when one is chosen or typed. */
export function entityForm(how, take) {
	const box = entityBox({ ...how, onChoose: take });
	const onsubmit = (event) => {
		event.preventDefault();
		if (box.value) take(box.value);
	};
	return { box, node: el("form.seek", { onsubmit }, box.node) };
}
