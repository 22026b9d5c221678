// Draws a scene on the page, with the style sheet, or into a file, with its own colours and a title.

import { shown, svg } from "./dom.js";
import { FONT, LABEL, NAME } from "./scene.js";

/** Colours of files: readable on white paper. */
const PAPER = {
	ink: "#1c1f1e",
	faint: "#66706c",
	accent: "#0d6b5d",
	surface: "#ffffff",
	line: "#b9c0bd",
	soft: "#eef3f1",
};
const TITLE = 54; // height of the title of a file
const SOURCE = 24;

/** The scene as an element. `onNode(name)`: nodes are buttons. `about`: {title, subtitle, source}, for a file. */
export function drawSvg(scene, { onNode, about } = {}) {
	const paint = about ? (part, thing) => looks(part, thing) : () => ({});
	const parts = [
		scene.edges.map((edge) => drawEdge(edge, paint)),
		scene.nodes.map((node) => drawNode(node, paint, onNode)),
	];
	const width = about ? Math.max(scene.width, 420) : scene.width;
	const height = scene.height + (about ? TITLE + SOURCE : 0);
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
		about ? [svg("rect", { width, height, fill: PAPER.surface }), titles(about, width, height)] : null,
		about ? svg("g", { transform: `translate(${(width - scene.width) / 2} ${TITLE})` }, parts) : parts.flat(),
	);
}

function titles({ title, subtitle, source }, width, height) {
	const line = (text, y, size, fill, weight = 400) =>
		svg("text", { x: 14, y, "font-size": size, fill, "font-weight": weight, textLength: null }, text);
	return [
		line(title, 24, 15, PAPER.ink, 600),
		line(subtitle, 43, 12.5, PAPER.accent),
		line(source, height - 9, 10.5, PAPER.faint),
	];
}

function drawEdge(edge, paint) {
	const text = (words, y, strong) =>
		svg(
			"text",
			{
				class: strong ? "strong" : "",
				x: edge.x,
				y,
				"text-anchor": "middle",
				"font-size": LABEL.size,
				...paint(strong ? "strong" : "label", edge),
			},
			words,
		);
	const inferred = edge.is_fact ? "" : `, inferred with probability ${edge.probability}`;
	return svg(
		"g",
		{ class: `edge ${edge.is_fact ? "known" : "inferred"}${edge.lit ? " lit" : ""}`, "data-step": edge.step },
		svg("title", `${edge.head} – ${edge.relation} – ${edge.tail}${inferred}`),
		svg("path.line", { d: edge.d, ...paint("line", edge) }),
		svg("path.tip", { d: edge.tip, ...paint("tip", edge) }),
		edge.lines.map((line, place) => text(line, edge.y - (edge.lines.length - 1 - place) * LABEL.line, false)),
		edge.probability ? text(edge.probability, edge.below, true) : null,
	);
}

function drawNode(node, paint, onNode) {
	const button = onNode && {
		tabindex: "0",
		role: "button",
		"aria-label": `${shown(node.name)}: look around`,
		onclick: () => onNode(node.name),
		onkeydown: (event) => {
			if (event.key !== "Enter" && event.key !== " ") return;
			event.preventDefault();
			onNode(node.name);
		},
	};
	const top = node.y - (node.lines.length * NAME.line) / 2 + 12.7;
	return svg(
		"g",
		{ class: `node ${node.kind}${node.lit ? " lit" : ""}`, ...button },
		svg("title", node.name),
		svg("rect", {
			x: node.x - node.width / 2,
			y: node.y - node.height / 2,
			width: node.width,
			height: node.height,
			rx: 11,
			...paint("box", node),
		}),
		node.lines.map((line, place) =>
			svg(
				"text",
				{
					x: node.x,
					y: top + NAME.line * place,
					"text-anchor": "middle",
					"font-size": NAME.size,
					"font-weight": node.weight,
					...paint("name", node),
				},
				line,
			),
		),
	);
}

/** The style of one part of a file. */
function looks(part, { kind, lit, is_fact: isFact }) {
	const goal = kind === "goal";
	const colour = lit ? PAPER.accent : PAPER.line;
	const styles = {
		name: { fill: goal ? PAPER.surface : lit ? PAPER.ink : PAPER.faint },
		box: {
			fill: goal ? PAPER.accent : kind === "start" ? PAPER.soft : PAPER.surface,
			stroke: goal || lit ? PAPER.accent : PAPER.line,
			"stroke-width": 1.4,
		},
		line: {
			fill: "none",
			stroke: colour,
			"stroke-width": lit ? 2 : 1.4,
			"stroke-dasharray": isFact ? null : "6 5",
		},
		tip: { fill: colour },
		label: { fill: lit ? PAPER.ink : PAPER.faint },
		strong: { fill: lit ? PAPER.accent : PAPER.faint, "font-weight": 600 },
	};
	return styles[part];
}
