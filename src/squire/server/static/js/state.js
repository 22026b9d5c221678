// What is looked at, and the address that brings it back. The hash is the only place where this is kept.

const EMPTY = {
  view: "ask", // ask, quality or judge
  model: "",
  head: "",
  relation: "",
  tail: "",
  reverse: false, // is the head asked for?
  known: false,
  grounded: false,
  ranking: "", // "" is the model's own; else paths or fused
  k: 10,
  answer: "", // the chosen answer
  path: 0, // the chosen path of it, from 0
  around: "", // the entity whose neighbourhood is open
};
const VIEWS = ["ask", "quality", "judge"];
export const COUNTS = [5, 10, 25, 50];
/** What makes another question of it. */
export const QUESTION = ["model", "head", "relation", "tail", "known", "grounded", "ranking", "k"];

let view = parse(location.hash);
const listeners = [];

/** `#/ask?model=world&head=Chechen&relation=written+in` -> a view; what is not understood is as in an empty one. */
export function parse(hash) {
  const [path, query = ""] = hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  const given = new URLSearchParams(query);
  const found = { ...EMPTY, view: VIEWS.includes(path) ? path : "ask" };
  for (const key of ["model", "head", "relation", "tail", "answer", "around"]) found[key] = given.get(key) ?? "";
  for (const key of ["known", "grounded"]) found[key] = given.get(key) === "1";
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
  put("known", 1, one.known);
  put("grounded", 1, one.grounded);
  for (const key of ["ranking", "k", "answer"]) put(key, one[key]);
  put("path", one.path + 1, one.path > 0);
  put("around", one.around);
  return `#/${one.view}${query.size ? `?${query}` : ""}`;
}

export const current = () => view;

/** Tells who wants to know; `listener(now, before)`. */
export const subscribe = (listener) => listeners.push(listener);

/** Look at something else. `replace`: what moves within a question has no entry of its own, `back` leads before it. */
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

/** One question, asked afresh: nothing chosen yet. */
export const question = (head, relation, tail) => ({
  view: "ask",
  head: head ?? "",
  relation,
  tail: tail ?? "",
  reverse: !head && Boolean(tail),
  answer: "",
  path: 0,
  around: "",
});

export const changed = (keys, now, before) => keys.some((key) => now[key] !== before[key]);
