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

const node = (kind, name, more) => ({ kind, name, kids: [], open: false, ...more });

export class Neighbours {
	constructor(model, signal) {
		Object.assign(this, { model, signal });
	}

	/** The entity in the middle, with its relations. Returns what the service says of it. */
	begin(name) {
		this.root = this.chosen = node("start", name);
		return this.unfold(this.root);
	}

	/** Shows more of a node, or folds it. Returns the node to go on from. */
	async click(one) {
		const { kind, of } = one;
		if (kind === "more") {
			const place = this.behind(of).length - 1;
			await this.unfold(of);
			return this.behind(of)[place];
		}
		if (kind !== "group") this.chosen = one;
		if (one.kids.length) one.open = !one.open;
		else await this.unfold(one);
		return one;
	}

	async unfold(one) {
		if (one.busy) return null;
		one.busy = true;
		try {
			return await (one.kind === "group" ? this.entities(one) : this.relations(one));
		} finally {
			one.busy = false;
		}
	}

	async relations(entity) {
		const { name, via, kids } = entity;
		Object.assign(entity, { open: true, shown: (entity.shown ?? 0) + RELATIONS });
		if (kids.length) return null;
		const found = await this.ask({ entity: name, limit: 60 });
		for (const { relation, way, count } of found.groups) {
			// The edge that leads here is drawn already.
			const from = via?.name === relation && BACK[via.way] === way ? via.of.name : null;
			const group = node("group", relation, { way, count: from ? count - 1 : count, of: entity, from, read: 0 });
			if (group.count) kids.push(group);
			if (group.count === 1) this.take(group, found.edges); // a single entity need not be unfolded
		}
		return found;
	}

	async entities(group) {
		const { name: relation, way, read: start, of, from } = group;
		const query = { entity: of.name, relation, way, start, limit: from ? ENTITIES + 1 : ENTITIES };
		this.take(group, (await this.ask(query)).edges);
	}

	ask(query) {
		return api.neighbourhood(this.model, query, this.signal);
	}

	take(group, edges) {
		const own = edges.filter(({ relation, way }) => relation === group.name && way === group.way);
		group.read += own.length;
		const names = own.map(({ head, tail, way }) => (way === "in" ? head : tail));
		group.kids.push(...names.filter((name) => name !== group.from).map((name) => node("between", name, { via: group })));
		group.open = group.kids.length > 0;
	}

	/** What is drawn behind a node. */
	behind(of) {
		if (!of.open) return [];
		const some = of.kids.slice(0, of.shown);
		const left = (of.count ?? of.kids.length) - some.length;
		return left > 0 ? [...some, { kind: "more", of, left }] : some;
	}

	/** The scene for a room of so many pixels. */
	scene(room) {
		const nodes = [];
		const widest = [[], []]; // of each column, to the left and to the right
		const measure = (one, depth, side) => {
			const weight = { start: 600, between: 500 }[one.kind] ?? 400;
			const { text, says } = words(one);
			const size = box(text, weight, Math.min(150, room - depth * INDENT - 60), 2);
			Object.assign(one, size, { says, depth, side, lit: one === this.chosen, drawn: this.behind(one) });
			widest[side][depth] = Math.max(widest[side][depth] ?? 0, one.width);
			nodes.push(one);
			for (const kid of one.drawn) measure(kid, depth + 1, depth ? side : kid.way === "in" ? 0 : 1);
			one.tall = Math.max(one.height, ...[0, 1].map((its) => tallOf(on(its, one))));
		};
		measure(this.root, 0, 1);
		const edges = room >= COLUMNS ? columns(this.root, widest) : indented(nodes);
		const most = (end) => Math.ceil(Math.max(...nodes.map(end)) + MARGIN);
		const width = most((one) => one.x + one.width / 2);
		const height = most((one) => one.y + one.height / 2);
		return { width, height, nodes, edges, caption: `Around ${this.root.name}` };
	}
}

/** What is drawn behind a node on one side. */
const on = (side, { drawn }) => drawn.filter((kid) => kid.side === side);

function words({ kind, name, count, left, of, way }) {
	if (kind === "more") return { text: `+ ${left} more`, says: `+ ${left} more of ${of.name}` };
	if (kind !== "group") return { text: name, says: `${shown(name)}: unfold` };
	const text = count > 1 ? `${name} (${count})` : name;
	return { text, says: `${text}, ${WORDS[way]} ${shown(of.name)}` };
}

const tallOf = (kids) => kids.reduce((sum, kid) => sum + kid.tall + APART, -APART);

/** Places the nodes in columns on both sides of the root; returns the lines. */
function columns(root, widest) {
	const edges = [];
	// From the middle of the root to the outer end of a column.
	const reach = (side, column) =>
		widest[side].slice(1, column + 1).reduce((sum, width) => sum + GUTTER + width, root.width / 2);
	const place = (one, side) => {
		const kids = on(side, one);
		if (!kids.length) return;
		const away = side ? 1 : -1;
		const end = reach(side, one.depth);
		let y = one.y - tallOf(kids) / 2;
		for (const kid of kids) {
			kid.x = root.x + away * (end + GUTTER + kid.width / 2);
			kid.y = y + kid.tall / 2;
			y += kid.tall + APART;
			place(kid, side);
		}
		edges.push(branch([one.x + (away * one.width) / 2, one.y], root.x + away * (end + TRUNK), kids, away));
	};
	Object.assign(root, { x: MARGIN + reach(0, Infinity), y: MARGIN + root.tall / 2 });
	place(root, 0);
	place(root, 1);
	return edges;
}

/** Places the nodes below each other; returns the lines. */
function indented(nodes) {
	let y = MARGIN;
	for (const one of nodes) {
		Object.assign(one, { x: MARGIN + one.depth * INDENT + one.width / 2, y: y + one.height / 2 });
		y += one.height + APART;
	}
	const line = ({ x, y, width, height, drawn }) => {
		const trunk = x - width / 2 + TRUNK - 4;
		return branch([trunk, y + height / 2], trunk, drawn, 1);
	};
	return nodes.filter((one) => one.drawn.length).map(line);
}

/** One line from a node to all behind it, with a tip at each that says which way the relation goes. */
function branch([x, y], trunk, kids, away) {
	const ys = [y, ...kids.map((kid) => kid.y)];
	let d = `M${x},${y}H${trunk}M${trunk},${Math.min(...ys)}V${Math.max(...ys)}`;
	let tip = "";
	for (const kid of kids) {
		const end = kid.x - (away * kid.width) / 2;
		const way = kid.way ?? kid.via?.way;
		d += `M${trunk},${kid.y}H${end}`;
		if (way && way !== "in") tip += arrow([end, kid.y], [away, 0]);
		if (way && way !== "out") tip += arrow([end - away * (way === "in" ? 9 : 18), kid.y], [-away, 0]);
	}
	return { is_fact: true, lines: [], d, tip };
}
