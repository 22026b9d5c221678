// Several paths from one entity to another, as one graph: shared nodes and edges once, each path on a lane of its own.
// Places are in layers (how far along) and lanes (how far aside; 0 is the best path's). Pixels are drawing's business.

const SHARED = 0.45; // closer than this in one gap, two labels would touch

export const startOf = (path) => (path.edges[0].backwards ? path.edges[0].tail : path.edges[0].head);
export const goalOf = (edge) => (edge.backwards ? edge.head : edge.tail);

/** `[Evidence]`, best first -> `{nodes, edges, layers, lanes}`. */
export function pathGraph(paths) {
  const layers = Math.max(...paths.map((path) => path.edges.length));
  const graph = { nodes: new Map(), edges: new Map(), layers, taken: new Set() };
  const ends = { start: startOf(paths[0]), goal: goalOf(paths[0].edges.at(-1)) };
  put(graph, "start", ends.start, 0, 0, "start");
  put(graph, ends.goal === ends.start ? "goal" : `=${ends.goal}`, ends.goal, layers, 0, "goal");
  paths.forEach((path, number) => addPath(graph, path, number, ends));
  for (let gap = 0; gap < layers; gap++) spread(graph, gap);
  const lanes = [...graph.nodes.values()]
    .map((node) => node.lane)
    .concat([...graph.edges.values()].map((edge) => edge.run));
  return {
    nodes: [...graph.nodes.values()],
    edges: [...graph.edges.values()],
    layers,
    lanes: [Math.min(...lanes), Math.max(...lanes)],
  };
}

function put(graph, key, name, layer, lane, kind = "between") {
  graph.nodes.set(key, { key, name, layer, lane, kind, paths: new Set() });
  graph.taken.add(`${layer}:${lane}`);
  return graph.nodes.get(key);
}

function addPath(graph, path, number, { start, goal }) {
  const last = path.edges.length;
  const stops = [start, ...path.edges.map(goalOf)];
  const keys = stops.map((name, place) =>
    place === 0 || (name === start && place < last)
      ? "start"
      : name === goal && start === goal
        ? "goal"
        : `=${name}`,
  );
  // New stops stand where the path passes; a shorter path jumps over the last layers, on its lane.
  const fresh = keys.map((key, place) => (graph.nodes.has(key) ? null : place)).filter((place) => place !== null);
  const passed = [];
  for (let layer = last; layer < graph.layers; layer++) if (layer > 0) passed.push(layer);
  const before = fresh.length ? graph.nodes.get(keys[fresh[0] - 1]) : null;
  const lane = freeLane(graph.taken, [...fresh, ...passed], before?.lane ?? 0);
  for (const place of fresh) if (!graph.nodes.has(keys[place])) put(graph, keys[place], stops[place], place, lane);
  for (const layer of passed) graph.taken.add(`${layer}:${lane}`);
  for (const key of keys) graph.nodes.get(key).paths.add(number);
  path.edges.forEach((edge, place) => addEdge(graph, edge, keys[place], keys[place + 1], number, lane));
}

/** The lane nearest to where the path comes from on which all these layers are free; so few edges cross. */
function freeLane(taken, layers, near) {
  const outward = near < 0 ? -1 : 1;
  for (let far = 0; ; far++) {
    for (const lane of far ? [near + outward * far, near - outward * far] : [near]) {
      if (layers.every((layer) => !taken.has(`${layer}:${lane}`))) return lane;
    }
  }
}

function addEdge(graph, edge, from, to, number, lane) {
  const key = JSON.stringify([edge.head, edge.relation, edge.tail, from, to].map(String));
  if (!graph.edges.has(key)) {
    const [a, b] = [graph.nodes.get(from), graph.nodes.get(to)];
    graph.edges.set(key, { ...edge, from: a, to: b, paths: new Set(), lane, run: lane, far: b.layer - a.layer });
  }
  graph.edges.get(key).paths.add(number);
}

/** Edges that leave a layer run side by side: each on the outer lane of its two ends, or near it where one runs already. */
function spread(graph, gap) {
  const taken = [];
  const leaving = [...graph.edges.values()].filter((edge) => Math.min(edge.from.layer, edge.to.layer) === gap);
  const slope = (edge) => Math.abs(edge.from.lane - edge.to.lane);
  for (const edge of leaving.sort((one, other) => slope(one) - slope(other))) {
    const [a, b] = [edge.from.lane, edge.to.lane];
    const outer = edge.far > 1 ? edge.lane : Math.abs(b) > Math.abs(a) ? b : a;
    const wishes = [outer, (a + b) / 2, ...[0.5, 1, 1.5].flatMap((by) => [outer - by, outer + by])];
    edge.run = wishes.find((wish) => taken.every((one) => Math.abs(one - wish) >= SHARED)) ?? outer;
    taken.push(edge.run);
  }
}
