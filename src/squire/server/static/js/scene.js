// Lays out the paths to an answer in pixels, so that page and SVG file draw the same shapes and texts.
//
// Every path is a row between the question's entity on the left and the answer on the right. The best is the first
// row; further rows are below it and leave it where it is. They are joined to the two ends from below, the lowest
// row at the outermost port, so no line crosses another, and labels are above their line. Where a row is too wide,
// the chosen path is drawn downward, with its labels beside the line.

import { shown } from "./dom.js";
import { rounded } from "./format.js";

export const FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "Liberation Sans", sans-serif';
export const NAME = { size: 13, line: 17 };
export const LABEL = { size: 12, line: 15 };
const PAD = 12;
export const MARGIN = 10;
const GAP = 18; // beside a label, with the arrowhead
const APART = 20; // between rows
// Of names and labels in pixels: as wide as there is room for.
const WIDTHS = [
	{ name: 128, label: 112 },
	{ name: 112, label: 88 },
	{ name: 92, label: 74 },
];
const [PORT, PORTS, ROUND] = [14, 12, 9]; // the first port from the corner, their distance, the radius of a bend

const BREAKS = /^.\s|^[\s_/.:#-]|^\p{Ll}\p{Lu}/u;

const pen = document.createElement("canvas").getContext("2d");

export const startOf = (path) => (path.edges[0].backwards ? path.edges[0].tail : path.edges[0].head);
export const goalOf = (edge) => (edge.backwards ? edge.head : edge.tail);

export function widthOf(text, size, weight = 400) {
	pen.font = `${weight} ${size}px ${FONT}`;
	return pen.measureText(text).width;
}

/** Breaks a text into a few lines; names without spaces break anywhere, the rest is cut with an ellipsis. */
export function wrap(text, size, widest, weight = 400, most = 2) {
	const fits = (part) => widthOf(part, size, weight) <= widest;
	if (fits(text)) return [text];
	if (most === 1) return [shorten(text, size, widest, weight)];
	const letters = [...text];
	let cut = letters.length;
	while (cut > 1 && !fits(letters.slice(0, cut).join(""))) cut -= 1;
	let end = cut; // preferably at a space, after punctuation or beforeACapital
	while (end > 1 && !BREAKS.test(letters.slice(end - 1, end + 1).join(""))) end -= 1;
	if (end <= 1) end = cut;
	const rest = letters.slice(end).join("").trim();
	return [letters.slice(0, end).join("").trim(), ...wrap(rest, size, widest, weight, most - 1)];
}

/** The last part of a URL: the beginning says little and takes most of the space. */
export function brief(name) {
	const end = /^\w+:\/\/.*[/#]([^/#]+)[/#]?$/s.exec(name);
	return end ? end[1] : name;
}

function shorten(text, size, widest, weight) {
	const letters = [...text];
	while (letters.length && widthOf(`${letters.join("")}…`, size, weight) > widest) letters.pop();
	return `${letters.join("").trimEnd()}…`;
}

/** A name with the size of its box. */
export function box(name, weight, widest, most) {
	const lines = wrap(brief(shown(name)), NAME.size, widest, weight, most);
	const wide = Math.max(...lines.map((line) => widthOf(line, NAME.size, weight)), 48) + 2 * PAD;
	return { lines, weight, width: Math.ceil(wide), height: lines.length * NAME.line + 16 };
}

/** `[Evidence]`, best first -> a scene. `all`: every path, or the chosen one alone. `blind`, for judging: all edges
 *  look alike, and no probabilities are shown. */
export function sceneOf(paths, room, { chosen = 0, all = false, blind = false, caption } = {}) {
	for (const widest of WIDTHS) {
		const rows = paths.map((path, number) => measured(path, number === chosen, blind, widest));
		const [start, goal] = [rows[0].nodes[0], rows[0].nodes.at(-1)];
		const inner = Math.max(...rows.map((row) => row.width));
		const width = start.width + inner + goal.width + 2 * MARGIN;
		if (width <= room) return { ...across(all ? rows : rows.slice(0, 1), inner, width), caption };
	}
	return { ...downward(measured(paths[chosen], true, blind, WIDTHS[0])), caption };
}

/** A path with the sizes of its boxes and labels. */
function measured(path, lit, blind, widest) {
	const names = [startOf(path), ...path.edges.map(goalOf)];
	const nodes = names.map((name, place) => {
		const kind = place === 0 ? "start" : place === path.edges.length ? "goal" : "between";
		return { name, kind, lit, ...box(name, kind === "between" ? 500 : 600, widest.name, 3) };
	});
	const edges = path.edges.map((edge, step) => {
		const isFact = blind || edge.is_fact;
		const text = `${lit && !blind ? NUMBERS[step] : ""}${brief(shown(edge.relation))}`;
		const lines = wrap(text, LABEL.size, widest.label, 400, 3);
		const probability = edge.supposed ? "supposed" : isFact ? "" : rounded(edge.probability);
		const wide = Math.max(...[...lines, probability].map((line) => widthOf(line, LABEL.size, 600)));
		return { ...edge, text, step, is_fact: isFact, lines, probability, lit, labelWidth: Math.ceil(wide) };
	});
	const between = nodes.slice(1, -1).reduce((sum, node) => sum + node.width, 0);
	const gaps = edges.reduce((sum, edge) => sum + edge.labelWidth + 2 * GAP, 0);
	return { nodes, edges, width: between + gaps };
}

/** What a row takes above and below its line. */
function heights({ nodes, edges }) {
	const boxes = nodes.map((node) => node.height / 2);
	const up = Math.max(...boxes, ...edges.map((edge) => edge.lines.length * LABEL.line + 8));
	return { up, down: Math.max(...boxes, ...edges.map((edge) => (edge.probability ? 22 : 0))) };
}

/** Labels may have more room by now. */
function relaxed(row, slack) {
	const widest = (edge) => edge.labelWidth + slack + 1;
	const edges = row.edges.map((edge) => ({ ...edge, lines: wrap(edge.text, LABEL.size, widest(edge), 400, 3) }));
	return { ...row, edges, slack, ...heights({ ...row, edges }) };
}

const NUMBERS = ["① ", "② ", "③ ", "④ ", "⑤ ", "⑥ ", "⑦ ", "⑧ "];

function across(rows, inner, width) {
	const [start, goal] = [rows[0].nodes[0], rows[0].nodes.at(-1)];
	const left = MARGIN + start.width;
	const right = left + inner;
	const nodes = [];
	const edges = [];
	let y = MARGIN;
	const spread = rows.map((row) => relaxed(row, (inner - row.width) / row.edges.length));
	spread.forEach((row, place) => {
		y += row.up;
		let x = left;
		row.edges.forEach((edge, step) => {
			const gap = edge.labelWidth + 2 * GAP + row.slack;
			const label = { x: x + gap / 2, y: y - 6, below: y + 16 };
			const ends = [x, x + gap];
			const last = step === row.edges.length - 1;
			// The lowest row has the outermost port.
			const port = PORT + (rows.length - 1 - place) * PORTS;
			const from = place && step === 0 ? [MARGIN + port, nodes[0].y + start.height / 2] : null;
			const to = place && last ? [right + goal.width - port, nodes[0].y + goal.height / 2] : null;
			edges.push({ ...edge, ...label, row: place, ...route(ends, y, from, to, edge.backwards) });
			x += gap;
			if (last) return;
			const node = row.nodes[step + 1];
			nodes.push({ ...node, x: x + node.width / 2, y });
			x += node.width;
		});
		if (!place) {
			nodes.unshift({ ...start, lit: true, x: MARGIN + start.width / 2, y });
			nodes.push({ ...goal, lit: true, x: right + goal.width / 2, y });
		}
		y += row.down + APART;
	});
	return { width, height: Math.ceil(y - APART + MARGIN), nodes, edges: litLast(edges) };
}

/** A line from left to right; to and from the ports of lower rows with a rounded corner. */
function route([left, right], y, from, to, backwards) {
	const begin = from
		? `M${from}L${from[0]},${y - ROUND}Q${from[0]},${y} ${from[0] + ROUND},${y}`
		: `M${left},${y}`;
	const end = to ? `L${to[0] - ROUND},${y}Q${to[0]},${y} ${to[0]},${y - ROUND}L${to}` : `L${right},${y}`;
	const tip = backwards
		? arrow(from ?? [left, y], from ? [0, -1] : [-1, 0])
		: arrow(to ?? [right, y], to ? [0, -1] : [1, 0]);
	return { d: begin + end, tip };
}

function downward(row) {
	const widest = Math.max(
		...row.nodes.map((node) => node.width),
		...row.edges.map((edge) => 2 * (edge.labelWidth + 14)),
	);
	const x = MARGIN + widest / 2;
	const nodes = [];
	const edges = [];
	let y = MARGIN;
	row.nodes.forEach((node, place) => {
		nodes.push({ ...node, x, y: y + node.height / 2 });
		y += node.height;
		const edge = row.edges[place];
		if (!edge) return;
		const texts = edge.lines.length + (edge.probability ? 1 : 0);
		const gap = texts * LABEL.line + 26;
		const top = y + (gap - texts * LABEL.line) / 2;
		const label = { x: x + 10 + edge.labelWidth / 2, y: top + edge.lines.length * LABEL.line - 4 };
		const tip = edge.backwards ? arrow([x, y], [0, -1]) : arrow([x, y + gap], [0, 1]);
		edges.push({ ...edge, ...label, below: label.y + LABEL.line, row: 0, d: `M${x},${y}L${x},${y + gap}`, tip });
		y += gap;
	});
	return { width: Math.ceil(widest + 2 * MARGIN), height: Math.ceil(y + MARGIN), nodes, edges };
}

/** The chosen path on top. */
const litLast = (edges) => edges.sort((one, other) => Number(one.lit) - Number(other.lit));

const short = (number) => Math.round(number * 10) / 10;

export function arrow([x, y], [dx, dy]) {
	const [wide, long] = [4.2, 8.5];
	const corner = (side) => [x - dx * long + side * dy * wide, y - dy * long + side * dx * wide].map(short);
	return `M${[x, y].map(short)}L${corner(1)}L${corner(-1)}Z`;
}
