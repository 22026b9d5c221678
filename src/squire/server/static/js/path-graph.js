// Merges several paths between two entities into one graph: shared nodes and edges once, each path on its own lane.
// Nodes have a layer (along the path) and a lane (across it; 0 for the best path). `scene.js` turns them into pixels.

const APART = 0.45; // labels closer than this in one gap would touch

export const startOf = (path) => (path.edges[0].backwards ? path.edges[0].tail : path.edges[0].head);
export const goalOf = (edge) => (edge.backwards ? edge.head : edge.tail);

/** `[Evidence]`, best first -> `{nodes, edges, layers, lanes}`. */
export function pathGraph(paths) {
  const graph = { nodes: new Map(), edges: new Map(), taken: new Set() };
  const walks = paths.map((path) => walkOf(path));
  walks.forEach((walk, number) => addWalk(graph, walk, number));
  const layers = setLayers(graph);
  for (const walk of walks) setLanes(graph, walk);
  for (let gap = 0; gap < layers; gap++) spread(graph, gap);
  const [nodes, edges] = [[...graph.nodes.values()], [...graph.edges.values()]];
  const lanes = [...nodes.map((node) => node.lane), ...edges.map((edge) => edge.run)];
  return { nodes, edges, layers, lanes: [Math.min(...lanes), Math.max(...lanes)] };
}

/** The keys of a path's nodes and edges. If the answer is the question's own entity, there are two nodes for it. */
function walkOf(path) {
  const [start, goal] = [startOf(path), goalOf(path.edges.at(-1))];
  const stops = [start, ...path.edges.map(goalOf)];
  const keys = stops.map((name, place) => {
    if (place === stops.length - 1) return "goal";
    if (name === start) return "start";
    return name === goal ? "goal" : `=${name}`;
  });
  const edges = path.edges.map((edge, place) => {
    const ends = [keys[place], keys[place + 1]];
    return { ...edge, from: ends[0], to: ends[1], key: JSON.stringify([...ends, edge.relation, edge.backwards]) };
  });
  return { stops, keys, edges };
}

function addWalk(graph, { stops, keys, edges }, number) {
  keys.forEach((key, place) => {
    const kind = key === "start" || key === "goal" ? key : "between";
    if (!graph.nodes.has(key))
      graph.nodes.set(key, { key, name: stops[place], kind, lane: null, paths: new Set() });
    graph.nodes.get(key).paths.add(number);
  });
  for (const edge of edges) {
    if (!graph.edges.has(edge.key)) {
      const ends = { from: graph.nodes.get(edge.from), to: graph.nodes.get(edge.to) };
      graph.edges.set(edge.key, { ...edge, ...ends, paths: new Set(), isForward: isForward(graph, ends) });
    }
    graph.edges.get(edge.key).paths.add(number);
  }
}

/** Whether an edge leads forward, from start to goal; one that would close a cycle does not. */
function isForward(graph, { from, to }) {
  if (from.kind === "goal" || to.kind === "start" || from === to) return false;
  const seen = new Set();
  const reaches = (node) => {
    if (node === from) return true;
    if (seen.has(node)) return false;
    seen.add(node);
    return [...graph.edges.values()].some((edge) => edge.isForward && edge.from === node && reaches(edge.to));
  };
  return !reaches(to);
}

/** A node comes after all nodes that lead to it; the goal comes last. */
function setLayers(graph) {
  const forward = [...graph.edges.values()].filter((edge) => edge.isForward);
  const layer = new Map();
  const layerOf = (node) => {
    if (!layer.has(node)) {
      const before = forward.filter((edge) => edge.to === node).map((edge) => layerOf(edge.from));
      layer.set(node, node.kind === "start" ? 0 : Math.max(0, ...before) + 1);
    }
    return layer.get(node);
  };
  for (const node of graph.nodes.values()) node.layer = layerOf(node);
  const goal = graph.nodes.get("goal");
  const others = [...graph.nodes.values()].filter((node) => node !== goal);
  goal.layer = Math.max(goal.layer, ...others.map((node) => node.layer + 1));
  for (const edge of graph.edges.values()) edge.far = edge.isForward ? edge.to.layer - edge.from.layer : 0;
  return goal.layer;
}

/** Puts the part of a path that no other path has on one lane: its own nodes, and the layers its edges pass. */
function setLanes(graph, { keys, edges }) {
  const fresh = keys.map((key) => graph.nodes.get(key)).filter((node) => node.lane === null);
  const own = edges.map(({ key }) => graph.edges.get(key)).filter((edge) => edge.run === undefined);
  const passed = own.flatMap(({ from, far }) =>
    Array.from({ length: Math.max(0, far - 1) }, (_, i) => from.layer + i + 1),
  );
  const before = own.length ? own[0].from.lane : null; // where it leaves the earlier paths
  const between = fresh.filter((node) => node.kind === "between");
  const layers = new Set([...between.map((node) => node.layer), ...passed]);
  const lane = freeLane(graph.taken, [...layers], before ?? 0);
  for (const node of fresh) node.lane = node.kind === "between" ? lane : 0;
  for (const layer of layers) graph.taken.add(`${layer}:${lane}`);
  for (const edge of own) edge.run = edge.lane = lane;
}

/** The nearest lane on which all these layers are free, so that few edges cross. */
function freeLane(taken, layers, near) {
  const outward = near < 0 ? -1 : 1;
  for (let far = 0; ; far++) {
    for (const lane of far ? [near + outward * far, near - outward * far] : [near]) {
      if (layers.every((layer) => !taken.has(`${layer}:${lane}`))) return lane;
    }
  }
}

/** Edges that leave a layer run side by side: on the outer lane of their ends, or beside it if that is taken. */
function spread(graph, gap) {
  const taken = [];
  const leaving = [...graph.edges.values()].filter((edge) => edge.far > 0 && edge.from.layer === gap);
  const haste = (edge) => (edge.far > 1 ? -1 : Math.abs(edge.from.lane - edge.to.lane)); // edges over several layers keep their lane
  for (const edge of leaving.sort((one, other) => haste(one) - haste(other))) {
    const [a, b] = [edge.from.lane, edge.to.lane];
    const outer = edge.far > 1 ? edge.lane : Math.abs(b) > Math.abs(a) ? b : a;
    const wishes = [outer, (a + b) / 2, ...[0.5, 1, 1.5].flatMap((by) => [outer - by, outer + by])];
    const free = wishes.find((wish) => taken.every((one) => Math.abs(one - wish) >= APART));
    edge.run = edge.far > 1 ? outer : (free ?? outer);
    taken.push(edge.run);
  }
}
