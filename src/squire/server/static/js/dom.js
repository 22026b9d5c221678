// Creates elements. Everything that comes from a graph becomes a text node, so no name can become markup.

const SVG = "http://www.w3.org/2000/svg";

/** `el("button.chip", { onclick: ask }, "Austria")`; false and null attributes are left out. */
export const el = (kind, ...rest) => make((tag) => document.createElement(tag), kind, rest);

/** The same for SVG. */
export const svg = (kind, ...rest) => make((tag) => document.createElementNS(SVG, tag), kind, rest);

function make(create, kind, rest) {
	const [tag, ...classes] = kind.split(".");
	const attributes = rest[0]?.constructor === Object ? rest.shift() : {};
	const node = create(tag);
	if (classes.length) node.setAttribute("class", classes.join(" "));
	if (tag === "button") node.type = "button"; // unless it says that it submits
	for (const [name, value] of Object.entries(attributes)) {
		if (value === null || value === undefined || value === false) continue;
		if (typeof value === "function") node.addEventListener(name.slice(2), value);
		else node.setAttribute(name, value === true ? "" : name === "title" ? shown(value) : String(value));
	}
	node.append(...there(rest));
	return node;
}

const there = (children) =>
	children.flat(2).flatMap((child) => {
		if (child === null || child === undefined || child === false) return [];
		return typeof child === "string" ? [shown(child)] : [child];
	});

/** A text with its invisible marks of direction spelled out: they could turn the text around them. */
export const shown = (text) =>
	text.replace(/[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, (mark) => {
		return `⟨U+${mark.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`;
	});

/** An icon, hidden from screen readers. */
export function icon(name) {
	return svg("svg.icon", { viewBox: "0 0 20 20", "aria-hidden": "true" }, svg("path", { d: ICONS[name] }));
}

const ICONS = {
	flip: "M4 7h11m0 0-3-3m3 3-3 3M16 13H5m0 0 3-3m-3 3 3 3",
	search: "M9 3.5a5.5 5.5 0 1 0 0 11 5.5 5.5 0 0 0 0-11Zm4 9.5 3.8 3.8",
	close: "M5 5l10 10M15 5 5 15",
	link: "M8.5 11.5a3 3 0 0 0 4.2 0l2.6-2.6a3 3 0 0 0-4.2-4.2l-.9.9m1.3 2.9a3 3 0 0 0-4.2 0l-2.6 2.6a3 3 0 0 0 4.2 4.2l.9-.9",
	save: "M10 3.5v8.5m0 0-3.5-3.5M10 12l3.5-3.5M4 15.5h12",
	right: "M4 10h12m0 0-4-4m4 4-4 4",
	left: "M16 10H4m0 0 4-4m-4 4 4 4",
	back: "M12.5 4.5 7 10l5.5 5.5",
};

export function clear(node, ...children) {
	node.replaceChildren(...there(children));
	return node;
}

/** A table with row and column headings; it scrolls if it is too wide. */
export function figuresTable(caption, headings, rows) {
	const columns = headings.map((name) => el("th", { scope: "col" }, name));
	return el(
		"div.table-scroll",
		{ tabindex: "0", role: "group", "aria-label": "Figures" },
		el(
			"table.figures",
			el("caption.unseen", caption),
			el("thead", el("tr", el("td"), columns)),
			el("tbody", rows),
		),
	);
}

export const byId = (id) => document.getElementById(id);

/** Whether a key press belongs to a text field. */
export function isTyping(event) {
	const where = event.target;
	return (
		where instanceof HTMLElement &&
		(where.matches("input:not([type=checkbox]):not([type=radio]), textarea, select") || where.isContentEditable)
	);
}

/** Announces something to screen readers; `seen`: to everyone. */
export function announce(words, seen = false) {
	const region = byId("announcer");
	const again = region.textContent === words; // the same text must be announced again
	region.textContent = again ? `${words}\u00a0` : words;
	region.className = seen ? "toast" : "unseen";
	if (seen) setTimeout(() => (region.className = "unseen"), 2200);
}
