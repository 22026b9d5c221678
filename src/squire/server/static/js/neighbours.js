// The neighbourhood as a drawing that grows: an entity, its relations by direction, the entities behind them, and
// again. It is a tree in columns: the entity in the middle, what leads there on its left, the rest on its right.
// Where there is no room for columns, names are indented below each other.

import * as api from "./api.js";
import { shown } from "./dom.js";
import { MARGIN, arrow, box } from "./scene.js";

const [RELATIONS, ENTITIES] = [12, 6]; // shown at first; more of them by as many
const [APART, GUTTER, TRUNK, INDENT] = [10, 48, 14, 24]; // between names, columns, a name and its line, levels
const COLUMNS = 640; // pixels that columns need
const BACK = { out: "in", in: "out", both: "both" };
const WORDS = { out: "from", in: "to", both: "from and to" };

export class Neighbours {
	constructor(model, signal) {
		Object.assign(this, { model, signal, count: 0 });
	}

	node(kind, name, more) {
		return { kind, name, id: (this.count += 1), kids: [], read: 0, open: false, ...more };
	}

	/** The entity in the middle, with its relations. Returns what the service says of it. */
	async begin(name) {
		this.root = this.chosen = this.node("start", name);
		return this.unfold(this.root);
	}

	/** Shows more of a node, or folds it. Returns the node to go on from. */
	async click(node) {
		if (node.kind === "more") {
			const { length } = node.of.kids;
			await this.unfold(node.of);
			return node.of.kids[length] ?? node.of;
		}
		if (node.kind !== "group") this.chosen = node;
		if (node.open) node.open = false;
		else if (node.kids.length) node.open = true;
		else await this.unfold(node);
		return node;
	}

	async unfold(node) {
		if (node.busy) return null;
		node.busy = true;
		try {
			const found = await (node.kind === "group" ? this.entities(node) : this.relations(node));
			node.open = true;
			return found;
		} finally {
			node.busy = false;
		}
	}

	async relations(node) {
		node.shown = (node.shown ?? 0) + RELATIONS;
		if (node.kids.length) return null;
		const found = await api.neighbourhood(this.model, { entity: node.name, limit: 60 }, this.signal);
		const { via } = node;
		for (const one of found.groups) {
			// The edge that leads here is drawn already.
			const from = via?.relation === one.relation && BACK[via.way] === one.way ? via.of.name : null;
			if (one.count > (from ? 1 : 0)) node.kids.push(this.node("group", one.relation, { ...one, of: node, from }));
		}
		// A single entity need not be unfolded.
		for (const group of node.kids.filter((one) => one.count === 1)) this.take(group, found.edges);
		return found;
	}

	async entities(group) {
		const { relation, way, read: start } = group;
		const query = { entity: group.of.name, relation, way, start, limit: ENTITIES + (group.from ? 1 : 0) };
		this.take(group, (await api.neighbourhood(this.model, query, this.signal)).edges);
	}

	take(group, edges) {
		const own = edges.filter((one) => one.relation === group.relation && one.way === group.way);
		group.read += own.length;
		group.open = own.length > 0;
		for (const { head, tail, way } of own) {
			const name = way === "in" ? head : tail;
			if (name !== group.from) group.kids.push(this.node("between", name, { via: group }));
		}
	}

	/** What is drawn behind a node. */
	behind(node) {
		if (!node.open) return [];
		const all = node.kind === "group" ? node.count - (node.from ? 1 : 0) : node.kids.length;
		const some = node.kids.slice(0, node.shown);
		if (all > some.length) some.push({ kind: "more", of: node, id: `more-${node.id}`, left: all - some.length });
		return some;
	}

	/** The scene for a room of so many pixels. */
	scene(room) {
		const nodes = [];
		const widest = [[], []]; // of each column, to the left and to the right
		const measure = (node, depth, side) => {
			const { text, says } = words(node);
			const weight = node.kind === "start" ? 600 : node.kind === "between" ? 500 : 400;
			Object.assign(node, box(text, weight, Math.min(150, room - depth * INDENT - 60), 2), { says });
			node.lit = node === this.chosen;
			nodes.push(node);
			node.drawn = this.behind(node);
			for (const kid of node.drawn) {
				const its = depth ? side : kid.way === "in" ? 0 : 1;
				Object.assign(kid, { side: its, depth: depth + 1 });
				widest[its][depth] = Math.max(widest[its][depth] ?? 0, measure(kid, depth + 1, its));
			}
			const sides = depth ? [node.drawn] : [0, 1].map((its) => node.drawn.filter((kid) => kid.side === its));
			node.tall = Math.max(node.height, ...sides.map(tallOf));
			return node.width;
		};
		measure(this.root, 0, 1);
		const edges = room >= COLUMNS ? columns(this.root, widest) : indented(nodes);
		const most = (end) => Math.ceil(Math.max(...nodes.map(end)) + MARGIN);
		const width = most((one) => one.x + one.width / 2);
		const height = most((one) => one.y + one.height / 2);
		return { width, height, nodes, edges, caption: `Around ${this.root.name}` };
	}
}

function words(node) {
	if (node.kind === "more") return { text: `+ ${node.left} more`, says: `+ ${node.left} more of ${node.of.name}` };
	if (node.kind !== "group") return { text: node.name, says: `${shown(node.name)}: unfold` };
	const text = node.count > 1 ? `${node.name} (${node.count})` : node.name;
	return { text, says: `${text}, ${WORDS[node.way]} ${shown(node.of.name)}` };
}

const tallOf = (kids) => kids.reduce((sum, kid) => sum + kid.tall + APART, -APART);

/** Places the nodes in columns on both sides of the root; returns the lines. */
function columns(root, widest) {
	const edges = [];
	/** From the middle of the root to the outer end of a column. */
	const reach = (side, column) =>
		widest[side].slice(0, column).reduce((sum, width) => sum + GUTTER + width, root.width / 2);
	const place = (node, kids, side) => {
		if (!kids.length) return;
		const away = side ? 1 : -1;
		const end = reach(side, node.depth ?? 0);
		let y = node.y - tallOf(kids) / 2;
		for (const kid of kids) {
			kid.x = root.x + away * (end + GUTTER + kid.width / 2);
			kid.y = y + kid.tall / 2;
			y += kid.tall + APART;
			place(kid, kid.drawn, side);
		}
		edges.push(branch([node.x + (away * node.width) / 2, node.y], root.x + away * (end + TRUNK), kids, away));
	};
	Object.assign(root, { x: MARGIN + reach(0), y: MARGIN + root.tall / 2 });
	for (const side of [0, 1]) place(root, root.drawn.filter((kid) => kid.side === side), side);
	return edges;
}

/** Places the nodes below each other; returns the lines. */
function indented(nodes) {
	let y = MARGIN;
	for (const node of nodes) {
		node.x = MARGIN + (node.depth ?? 0) * INDENT + node.width / 2;
		node.y = y + node.height / 2;
		y += node.height + APART;
	}
	return nodes
		.filter((node) => node.drawn.length)
		.map((node) => {
			const x = node.x - node.width / 2 + TRUNK - 4;
			return branch([x, node.y + node.height / 2], x, node.drawn, 1);
		});
}

/** One line from a node to all behind it, with a tip at each that says which way the relation goes. */
function branch([x, y], trunk, kids, away) {
	const ys = [y, ...kids.map((kid) => kid.y)];
	const end = (kid) => kid.x - (away * kid.width) / 2;
	const parts = kids.map((kid) => `M${trunk},${kid.y}H${end(kid)}`);
	const d = `M${x},${y}H${trunk}M${trunk},${Math.min(...ys)}V${Math.max(...ys)}${parts.join("")}`;
	const tip = kids.map((kid) => {
		const way = kid.way ?? kid.via?.way;
		const to = way === "out" || way === "both" ? arrow([end(kid), kid.y], [away, 0]) : "";
		const back = way === "in" ? 9 : 18;
		return way === "in" || way === "both" ? to + arrow([end(kid) - away * back, kid.y], [-away, 0]) : to;
	});
	return { is_fact: true, lines: [], d, tip: tip.join("") };
}
