// Lays out a graph of paths in pixels, so that page, SVG file and canvas draw the same shapes and texts.

export const FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "Liberation Sans", sans-serif';
const NAME = { size: 13, line: 17 };
const LABEL = { size: 11.5, line: 15 };
const PAD = 12;
const BEND = 22; // along the path, for an edge to change lanes
const MARGIN = 10;
const WIDEST = { name: 118, label: 96 };

const BREAKS = /^.\s|^[\s_/.:#-]|^\p{Ll}\p{Lu}/u;

const pen = document.createElement("canvas").getContext("2d");

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

const SMALLEST = 0.84; // smallest scale; a wider drawing is laid out downward instead

/** Left to right if there is space, else downward. */
export function fittingScene(graph, room, how) {
  const across = sceneOf(graph, how);
  const scene = across.width * SMALLEST <= room - 2 * MARGIN ? across : sceneOf(graph, { ...how, upright: true });
  return { ...scene, scale: Math.min(1, Math.max(SMALLEST, (room - 2 * MARGIN) / scene.width)) };
}

/** `blind`, for judging: all edges look alike, and no probabilities are shown. */
export function sceneOf(graph, { upright = false, chosen = 0, blind = false, caption } = {}) {
  const nodes = graph.nodes.map((node) => sized(node));
  const edges = graph.edges.map((edge) => labelled(edge, blind));
  const place = upright ? columnsDown(graph, nodes, edges) : columnsAcross(graph, nodes, edges);
  const at = (along, across) => (upright ? [across, along] : [along, across]);
  const lit = (thing) => thing.paths.has(chosen);
  const boxes = new Map(
    nodes.map((node) => [node.key, { ...node, along: place.layer(node.layer), across: place.lane(node.lane) }]),
  );
  const drawnEdges = edges
    .map((edge) => drawEdge(edge, boxes, place, at, upright, lit(edge)))
    .sort((a, b) => Number(a.lit) - Number(b.lit)); // the chosen path on top
  const drawnNodes = [...boxes.values()].map((box) => {
    const [x, y] = at(box.along, box.across);
    return { ...box, x, y, lit: lit(box) };
  });
  return {
    width: place.width,
    height: place.height,
    middle: place.lane(0),
    edges: drawnEdges,
    nodes: drawnNodes,
    caption,
    upright,
  };
}

function sized(node) {
  const weight = node.kind === "between" ? 500 : 600;
  const lines = wrap(brief(node.name), NAME.size, WIDEST.name, weight, 3);
  const width = Math.max(...lines.map((line) => widthOf(line, NAME.size, weight)), 24) + 2 * PAD;
  return { ...node, lines, weight, width: Math.ceil(width), height: lines.length * NAME.line + 16 };
}

function labelled(edge, blind) {
  const isFact = blind || edge.is_fact;
  const lines = wrap(brief(edge.relation), LABEL.size, WIDEST.label);
  const probability = isFact ? "" : edge.probability < 0.005 ? "<0.01" : edge.probability.toFixed(2);
  const width = Math.max(...lines.map((line) => widthOf(line, LABEL.size)), widthOf(probability, LABEL.size, 600));
  return { ...edge, is_fact: isFact, lines, probability, labelWidth: width };
}

function columnsAcross(graph, nodes, edges) {
  const wide = layerSizes(graph, nodes, "width");
  const gaps = gapSizes(graph, edges, (edge) => edge.labelWidth + bends(edge) * BEND + 44, 84);
  const tall = Math.max(...nodes.map((node) => node.height), 40) + 34;
  return spots(graph, wide, gaps, tall, false);
}

function columnsDown(graph, nodes, edges) {
  const high = layerSizes(graph, nodes, "height");
  const gaps = gapSizes(
    graph,
    edges,
    (edge) =>
      edge.lines.length * LABEL.line +
      (edge.probability ? LABEL.line : 0) +
      bends(edge) * BEND +
      36 +
      2 * aloof(edge),
    72,
  );
  const aside = Math.max(...nodes.map((node) => node.width), ...edges.map((edge) => edge.labelWidth + 16)) + 14;
  return spots(graph, high, gaps, aside, true);
}

/** Downward, the label of an edge between two lanes is a little lower, so as not to touch its neighbours. */
const aloof = (edge) => (Number.isInteger(edge.run) ? 0 : 24);

/** The number of lane changes of an edge. */
const bends = (edge) => Number(edge.run !== edge.from.lane) + Number(edge.run !== edge.to.lane);

const layerSizes = (graph, nodes, side) =>
  Array.from({ length: graph.layers + 1 }, (_, layer) =>
    Math.max(0, ...nodes.filter((node) => node.layer === layer).map((node) => node[side])),
  );

const gapSizes = (graph, edges, need, least) =>
  Array.from({ length: graph.layers }, (_, gap) =>
    Math.max(least, ...edges.filter((edge) => edge.from.layer === gap).map(need)),
  );

function spots(graph, sizes, gaps, step, upright) {
  const begins = [];
  const bow = graph.edges.some((edge) => edge.far < 1) ? 40 : 0; // beyond the last node
  let along = MARGIN;
  sizes.forEach((size, layer) => {
    begins.push(along);
    along += size + (gaps[layer] ?? 0);
  });
  const [low, high] = graph.lanes;
  const total = [along + MARGIN + bow, (high - low) * step + step + (upright ? 2 : 4)];
  return {
    layer: (layer) => begins[layer] + sizes[layer] / 2,
    gap: (layer) => [begins[layer] + sizes[layer], begins[layer + 1] ?? along],
    lane: (lane) => (lane - low) * step + step / 2 + 2,
    width: Math.ceil(upright ? total[1] : total[0]),
    height: Math.ceil(upright ? total[0] : total[1]),
  };
}

function drawEdge(edge, boxes, place, at, upright, lit) {
  const [a, b] = [boxes.get(edge.from.key), boxes.get(edge.to.key)];
  const half = (box) => (upright ? box.height : box.width) / 2;
  const shape =
    edge.far > 0 ? forward(edge, a, b, half, place, at, upright ? aloof(edge) : 0) : aside(edge, a, b, half, at);
  return { ...edge, ...shape, lit, lineHeight: LABEL.line, size: LABEL.size };
}

/** From a node to one of a later layer: bend to the edge's lane, run there, bend to the other node. */
function forward(edge, a, b, half, place, at, lower) {
  const run = place.lane(edge.run);
  const [begin, end] = [a.along + half(a), b.along - half(b)];
  const first = place.gap(edge.from.layer)[0];
  const last = place.gap(edge.to.layer - 1)[1];
  const curve = [`M${at(begin, a.across).map(short)}`];
  const bend = (from, to, fromAcross, toAcross) => {
    const middle = (from + to) / 2;
    curve.push(`C${[...at(middle, fromAcross), ...at(middle, toAcross), ...at(to, toAcross)].map(short)}`);
  };
  if (run !== a.across)
    (curve.push(`L${at(first, a.across).map(short)}`), bend(first, first + BEND, a.across, run));
  const lastRun = run !== b.across ? last - BEND : end;
  curve.push(`L${at(lastRun, run).map(short)}`);
  if (run !== b.across) (bend(last - BEND, last, run, b.across), curve.push(`L${at(end, b.across).map(short)}`));
  const spot = (run === a.across ? first : first + BEND) + (run === b.across ? last : last - BEND);
  const [x, y] = at(spot / 2 + lower + (edge.backwards ? 3 : -3), run);
  const tip = edge.backwards ? { at: at(begin, a.across), to: -1 } : { at: at(end, b.across), to: 1 };
  return { d: curve.join(""), x, y, tip: arrow(tip.at, at(tip.to, 0)) };
}

/** Backwards, or from a node to itself: a simple arc beside both nodes. Rare. */
function aside(edge, a, b, half, at) {
  const [from, to] = a === b ? [a.across - 14, a.across + 14] : [a.across, b.across];
  const [begin, end] = [a.along + half(a), b.along + half(b)];
  const over = Math.max(begin, end) + 34;
  const points = [...at(over, from), ...at(over, to), ...at(end, to)];
  const [x, y] = at(over - 6, (from + to) / 2);
  const tip = edge.backwards ? at(begin, from) : at(end, to);
  return { d: `M${at(begin, from).map(short)}C${points.map(short)}`, x, y, tip: arrow(tip, at(-1, 0)) };
}

const short = (number) => Math.round(number * 10) / 10;

function arrow([x, y], [dx, dy]) {
  const [wide, long] = [4.2, 8.5];
  const corner = (side) => [x - dx * long + side * dy * wide, y - dy * long + side * dx * wide].map(short);
  return `M${[x, y].map(short)}L${corner(1)}L${corner(-1)}Z`;
}
