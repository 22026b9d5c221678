// The current view and its address. The hash is the only place where the view is stored.

const EMPTY = {
	view: "ask", // one of VIEWS
	model: "",
	head: "",
	relation: "",
	tail: "",
	reverse: false, // whether the head is asked for
	grounded: false,
	ranking: "", // paths or fused; "" for the default of the model
	k: 10,
	answer: "", // the chosen answer
	path: 0, // the chosen path, from 0
	around: "", // the entity whose neighbourhood is open
	to: "", // how that one is connected to this one
	facts: "", // JSON of facts that are supposed: [[head, relation, tail]]
};
export const VIEWS = ["ask", "quality", "review", "judge"];
export const COUNTS = [5, 10, 25, 50];
/** The keys that make up a question. */
export const QUESTION = ["model", "head", "relation", "tail", "grounded", "ranking", "k", "facts"];

let view = parse(location.hash);
const listeners = [];

/** `#/ask?model=world&head=Chechen&relation=written+in` -> a view; invalid parts are ignored. */
export function parse(hash) {
	const [path, query = ""] = hash.replace(/^#\/?/, "").split(/\?(.*)/s);
	const given = new URLSearchParams(query);
	const found = { ...EMPTY, view: VIEWS.includes(path) ? path : "ask" };
	for (const key of ["model", "head", "relation", "tail", "answer", "around", "to"])
		found[key] = given.get(key) ?? "";
	if (supposed({ facts: given.get("facts") }).length) found.facts = given.get("facts");
	found.grounded = given.get("grounded") === "1";
	if (["paths", "fused"].includes(given.get("ranking"))) found.ranking = given.get("ranking");
	if (COUNTS.includes(Number(given.get("k")))) found.k = Number(given.get("k"));
	found.path = Math.max(0, (parseInt(given.get("path") ?? "1", 10) || 1) - 1);
	found.reverse = found.tail !== "" ? found.head === "" : given.get("ask") === "head";
	return found;
}

export function hashOf(one) {
	const query = new URLSearchParams();
	const put = (key, value, when = value !== EMPTY[key]) => when && query.set(key, String(value));
	for (const key of ["model", "head", "relation", "tail"]) put(key, one[key]);
	put("ask", "head", one.reverse && one.tail === "");
	put("grounded", 1, one.grounded);
	for (const key of ["ranking", "k", "facts", "answer"]) put(key, one[key]);
	put("path", one.path + 1, one.path > 0);
	for (const key of ["around", "to"]) put(key, one[key]);
	return `#/${one.view}${query.size ? `?${query}` : ""}`;
}

/** The supposed facts of a view; none if the address is wrong. */
export function supposed({ facts }) {
	try {
		const found = JSON.parse(facts || "[]");
		return found.every((one) => one.length === 3 && one.every((name) => name && typeof name === "string"))
			? found
			: [];
	} catch {
		return [];
	}
}

/** The same as the service takes them. */
export const asFacts = (one) => supposed(one).map(([head, relation, tail]) => ({ head, relation, tail }));

export const current = () => view;

export const isSupposed = ({ head, relation, tail }) =>
	supposed(view).some((fact) => fact.join() === [head, relation, tail].join());

/** Calls `listener(now, before)` on every change. */
export const subscribe = (listener) => listeners.push(listener);

/** Changes the view. `replace`: without an entry in the history. */
export function go(changes, { replace = false } = {}) {
	const before = view;
	const next = { ...view, ...changes };
	const hash = hashOf(next);
	view = next;
	if (hash !== hashOf(before)) history[replace ? "replaceState" : "pushState"](null, "", hash);
	tell(before);
}

function tell(before) {
	for (const listener of listeners) listener(view, before);
}

window.addEventListener("popstate", () => {
	const before = view;
	view = parse(location.hash);
	tell(before);
});

/** A new question, with nothing chosen yet. */
export const question = (head, relation, tail) => ({
	view: "ask",
	head: head ?? "",
	relation,
	tail: tail ?? "",
	reverse: !head && Boolean(tail),
	answer: "",
	path: 0,
	around: "",
	to: "",
});

export const changed = (keys, now, before) => keys.some((key) => now[key] !== before[key]);
