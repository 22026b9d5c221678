// Draws a scene on the page, or into a file: with the same style, in light colours, under a title.

import { el, shown, svg } from "./dom.js";
import { FONT, LABEL, NAME } from "./scene.js";

const [TITLE, SOURCE] = [54, 24]; // heights of what a file says above and below the drawing
const STYLES = ["fill", "stroke", "stroke-width", "stroke-dasharray", "font-weight"];

/** The scene as an element. `onNode(node)`: nodes are buttons. */
export function drawSvg(scene, { onNode } = {}) {
	const { width, height } = scene;
	return svg(
		"svg.paths",
		{
			viewBox: `0 0 ${width} ${height}`,
			width,
			height,
			role: onNode ? "group" : "img",
			"aria-label": scene.caption,
			"font-family": FONT,
		},
		scene.edges.map(drawEdge),
		scene.nodes.map((node) => drawNode(node, onNode)),
	);
}

/** The scene for a file: every part has its own colours. `about`: {title, subtitle, source}. */
export function drawFile(scene, { title, subtitle, source }) {
	const width = Math.max(scene.width, 420);
	const height = scene.height + TITLE + SOURCE;
	const drawing = drawSvg(scene);
	const line = (text, kind, y, size) => svg(`text.${kind}`, { x: 14, y, "font-size": size }, text);
	const file = svg(
		"svg.paths.file",
		{ viewBox: `0 0 ${width} ${height}`, width, height, "font-family": FONT },
		svg("rect.ground", { width, height }),
		line(title, "title", 24, 15),
		line(subtitle, "subtitle", 43, 12.5),
		line(source, "source", height - 9, 10.5),
		svg("g", { transform: `translate(${(width - scene.width) / 2} ${TITLE})` }, [...drawing.children]),
	);
	const stage = el("div.unseen", file);
	document.body.append(stage);
	for (const part of file.querySelectorAll("rect, path, text")) {
		const style = getComputedStyle(part);
		for (const name of STYLES) part.setAttribute(name, style.getPropertyValue(name));
	}
	stage.remove();
	return file;
}

function drawEdge(edge) {
	const text = (words, y, kind) =>
		svg(kind, { x: edge.x, y, "text-anchor": "middle", "font-size": LABEL.size }, words);
	const inferred = edge.is_fact ? "" : `, inferred with probability ${edge.probability}`;
	return svg(
		"g",
		{ class: `edge ${edge.is_fact ? "known" : "inferred"}${edge.lit ? " lit" : ""}`, "data-step": edge.step },
		edge.head && svg("title", `${edge.head} – ${edge.relation} – ${edge.tail}${inferred}`),
		svg("path.line", { d: edge.d }),
		svg("path.tip", { d: edge.tip }),
		edge.lines.map((line, place) => text(line, edge.y - (edge.lines.length - 1 - place) * LABEL.line, "text")),
		edge.probability ? text(edge.probability, edge.below, "text.strong") : null,
	);
}

function drawNode(node, onNode) {
	const button = onNode && {
		tabindex: "0",
		role: "button",
		"aria-label": node.says ?? `${shown(node.name)}: look around`,
		"aria-expanded": node.open === undefined ? null : String(node.open),
		onclick: () => onNode(node),
		onkeydown: (event) => {
			if (event.key !== "Enter" && event.key !== " ") return;
			event.preventDefault();
			onNode(node);
		},
	};
	const { x, y, width, height, lines } = node;
	const top = y - (lines.length * NAME.line) / 2 + 12.7;
	const style = { x, "text-anchor": "middle", "font-size": NAME.size, "font-weight": node.weight };
	return svg(
		"g",
		{ class: `node ${node.kind}${node.lit ? " lit" : ""}`, ...button },
		svg("title", node.name ?? node.says),
		svg("rect", { x: x - width / 2, y: y - height / 2, width, height, rx: 11 }),
		lines.map((line, place) => svg("text", { ...style, y: top + NAME.line * place }, line)),
	);
}
