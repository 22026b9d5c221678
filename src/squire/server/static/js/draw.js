// Draws a scene on the page (with the style sheet), into an SVG file or onto a canvas (with its own colours).

import { svg } from "./dom.js";
import { FONT } from "./scene.js";

/** Colours of files: readable on white paper. */
const PAPER = {
  ink: "#1c1f1e",
  faint: "#8b928f",
  accent: "#0d6b5d",
  surface: "#ffffff",
  line: "#b9c0bd",
  soft: "#eef3f1",
  onAccent: "#ffffff",
};

/** The scene as an element. `onNode(name)`: nodes are buttons. `standalone`: with colours, for a file. */
export function drawSvg(scene, { onNode, standalone = false } = {}) {
  const paint = standalone ? (thing) => attributes(looks(thing)) : () => ({});
  const size = standalone ? 1 : (scene.scale ?? 1);
  const edges = scene.edges.map((edge) => drawEdge(edge, paint));
  const nodes = scene.nodes.map((node) => drawNode(node, paint, onNode));
  return svg(
    "svg",
    {
      class: "paths",
      viewBox: `0 0 ${scene.width} ${scene.height}`,
      width: scene.width * size,
      height: scene.height * size,
      role: onNode ? "group" : "img",
      "aria-label": scene.caption,
      "font-family": FONT,
    },
    standalone ? svg("rect", { width: scene.width, height: scene.height, fill: PAPER.surface }) : null,
    edges,
    nodes,
  );
}

function drawEdge(edge, paint) {
  const of = (part) => paint({ part, edge });
  const kind = `edge ${edge.is_fact ? "known" : "inferred"}${edge.lit ? " lit" : ""}`;
  return svg(
    "g",
    { class: kind },
    svg(
      "title",
      {},
      `${edge.head} – ${edge.relation} – ` +
        `${edge.tail}${edge.is_fact ? "" : `, inferred with probability ${edge.probability}`}`,
    ),
    svg("path", { class: "line", d: edge.d, ...of("line") }),
    svg("path", { class: "tip", d: edge.tip, ...of("tip") }),
    labelLines(edge).map((line) =>
      svg(
        "text",
        {
          class: line.strong ? "strong" : "",
          x: edge.x,
          y: line.y,
          "text-anchor": "middle",
          "font-size": edge.size,
          ...of(line.strong ? "strong" : "label"),
        },
        line.text,
      ),
    ),
  );
}

/** Relation on the line or above it, probability below. */
function labelLines(edge) {
  const texts = edge.lines.map((text) => ({ text, strong: false }));
  if (edge.probability) texts.push({ text: edge.probability, strong: true });
  const top = edge.y - (texts.length * edge.lineHeight) / 2 + edge.lineHeight * 0.76;
  return texts.map((line, place) => ({ ...line, y: Math.round((top + place * edge.lineHeight) * 10) / 10 }));
}

function drawNode(node, paint, onNode) {
  const of = (part) => paint({ part, node });
  const button = onNode && {
    tabindex: "0",
    role: "button",
    "aria-label": `${node.name}: look around`,
    onclick: () => onNode(node.name),
    onkeydown: (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      onNode(node.name);
    },
  };
  const top = node.y - (node.lines.length * 17) / 2 + 12.7;
  return svg(
    "g",
    { class: `node ${node.kind}${node.lit ? " lit" : ""}`, ...button },
    svg("title", {}, node.name),
    svg("rect", {
      x: node.x - node.width / 2,
      y: node.y - node.height / 2,
      width: node.width,
      height: node.height,
      rx: 11,
      ...of("box"),
    }),
    node.lines.map((line, place) =>
      svg(
        "text",
        {
          x: node.x,
          y: top + 17 * place,
          "text-anchor": "middle",
          "font-size": 13,
          "font-weight": node.weight,
          ...of("name"),
        },
        line,
      ),
    ),
  );
}

/** The style of one part, for files and canvas alike. */
function looks({ part, edge, node }) {
  if (node) {
    const goal = node.kind === "goal";
    if (part === "name") return { fill: goal ? PAPER.onAccent : node.lit ? PAPER.ink : PAPER.faint };
    return {
      fill: goal ? PAPER.accent : node.kind === "start" ? PAPER.soft : PAPER.surface,
      stroke: goal || node.lit ? PAPER.accent : PAPER.line,
      width: 1.4,
    };
  }
  const colour = edge.lit ? PAPER.accent : PAPER.line;
  if (part === "line") return { stroke: colour, width: edge.lit ? 2 : 1.4, dash: edge.is_fact ? null : [6, 5] };
  if (part === "tip") return { fill: colour };
  return {
    fill: part === "strong" && edge.lit ? PAPER.accent : edge.lit ? PAPER.ink : PAPER.faint,
    halo: PAPER.surface,
    weight: part === "strong" ? 600 : 400,
  };
}

function attributes({ fill = "none", stroke, width, dash, halo, weight }) {
  return {
    fill,
    stroke: halo ?? stroke,
    "stroke-width": halo ? 5 : width,
    "stroke-linejoin": halo ? "round" : null,
    "paint-order": halo ? "stroke" : null,
    "stroke-dasharray": dash?.join(" "),
    "font-weight": weight && weight !== 400 ? weight : null,
  };
}

/** The same picture onto a canvas, `scale` times as large. */
export function drawCanvas(scene, scale = 2) {
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [scene.width * scale, scene.height * scale];
  const pen = canvas.getContext("2d");
  pen.scale(scale, scale);
  pen.fillStyle = PAPER.surface;
  pen.fillRect(0, 0, scene.width, scene.height);
  pen.textAlign = "center";
  pen.lineJoin = "round";
  for (const edge of scene.edges) {
    stroke(pen, new Path2D(edge.d), looks({ part: "line", edge }));
    stroke(pen, new Path2D(edge.tip), looks({ part: "tip", edge }));
    for (const line of labelLines(edge))
      write(pen, line.text, edge.x, line.y, edge.size, looks({ part: line.strong ? "strong" : "label", edge }));
  }
  for (const node of scene.nodes) {
    const box = new Path2D();
    box.roundRect(node.x - node.width / 2, node.y - node.height / 2, node.width, node.height, 11);
    stroke(pen, box, looks({ part: "box", node }));
    const top = node.y - (node.lines.length * 17) / 2 + 12.7;
    node.lines.forEach((line, place) =>
      write(pen, line, node.x, top + 17 * place, 13, { ...looks({ part: "name", node }), weight: node.weight }),
    );
  }
  return canvas;
}

function stroke(pen, shape, { fill, stroke: colour, width, dash }) {
  if (fill) {
    pen.fillStyle = fill;
    pen.fill(shape);
  }
  if (!colour) return;
  pen.strokeStyle = colour;
  pen.lineWidth = width;
  pen.setLineDash(dash ?? []);
  pen.stroke(shape);
  pen.setLineDash([]);
}

function write(pen, text, x, y, size, { fill, halo, weight = 400 }) {
  pen.font = `${weight} ${size}px ${FONT}`;
  if (halo) {
    pen.strokeStyle = halo;
    pen.lineWidth = 5;
    pen.strokeText(text, x, y);
  }
  pen.fillStyle = fill;
  pen.fillText(text, x, y);
}
