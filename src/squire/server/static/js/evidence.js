// The evidence of an answer: its paths as a drawing, the chosen path as text, its rule, and the sources.

import { gradeBadge } from "./answers.js";
import { AttentionMap } from "./attention.js";
import { announce, byId, clear, el, icon } from "./dom.js";
import { drawSvg } from "./draw.js";
import { copyLink, fileName, savePng, saveSvg } from "./export.js";
import { GRADES, percent, plural, rounded, signed } from "./format.js";
import { goalOf, pathGraph, startOf } from "./path-graph.js";
import { ruleWords } from "./rule-words.js";
import { fittingScene } from "./scene.js";
import { go } from "./state.js";

export class EvidencePanel {
  constructor({ saveAnswers }) {
    this.node = byId("evidence");
    this.saveAnswers = saveAnswers;
    this.attention = new AttentionMap();
    this.canvas = el("div", { class: "canvas", id: "drawing" });
    new ResizeObserver(() => this.onResize()).observe(this.canvas);
  }

  wait() {
    this.answer = null;
    clear(this.node, el("div", { class: "ghost-panel", "aria-hidden": "true" }));
  }

  /** Shows the evidence of an answer; `view.path` is the index of the chosen path. */
  show(found, answer, view) {
    if (!answer) {
      this.answer = null;
      return clear(this.node);
    }
    const isNew = this.answer !== answer;
    this.answer = answer;
    this.found = found;
    this.paths = [answer.evidence, ...(answer.further ?? [])].filter((path) => path?.edges.length);
    this.chosen = Math.min(view.path, Math.max(this.paths.length - 1, 0));
    if (isNew) this.build();
    this.showPath();
    return undefined;
  }

  build() {
    const { answer, found } = this;
    const fact = {
      head: found.head ?? answer.entity,
      relation: found.relation,
      tail: found.tail ?? answer.entity,
    };
    this.tabs = el("div", { class: "path-tabs", role: "group", "aria-label": "Paths" });
    this.detail = el("div", { class: "path-detail" });
    clear(
      this.node,
      el(
        "button",
        { type: "button", class: "plain to-list", onclick: () => this.toList() },
        icon("back"),
        "All answers",
      ),
      el(
        "header",
        { class: "fact" },
        el(
          "h2",
          {},
          this.entity(fact.head),
          el("span", { class: "relation" }, fact.relation),
          this.entity(fact.tail),
        ),
        el(
          "div",
          { class: "fact-tags" },
          answer.evidence ? gradeBadge(answer.evidence.grade) : null,
          answer.is_fact ? null : this.measure(answer),
        ),
      ),
      el("p", { class: "basis" }, basisWords(answer)),
      this.paths.length
        ? el(
            "figure",
            { class: "drawing" },
            this.tabs,
            this.canvas,
            el(
              "figcaption",
              { class: "key" },
              el("span", { class: "solid" }, "fact of the graph"),
              el("span", { class: "dashed" }, "inferred, with its probability"),
              el("span", { class: "hint" }, "Choose a node to look around"),
            ),
          )
        : null,
      this.detail,
      this.sources(answer),
      answer.is_fact ? null : this.attention.node,
      this.exports(fact),
    );
    if (!answer.is_fact)
      this.attention.offer({ head: found.head, relation: found.relation, tail: found.tail, answer: answer.entity });
  }

  entity(name) {
    return el(
      "button",
      { type: "button", class: "entity", title: `Look around ${name}`, onclick: () => go({ around: name }) },
      name,
    );
  }

  measure(answer) {
    if (answer.confidence === null || answer.confidence === undefined)
      return el("span", { class: "quiet" }, `score ${rounded(answer.score, 3)}`);
    return el("span", { class: "quiet" }, `${percent(answer.confidence)} likely`);
  }

  nextPath() {
    if (this.answer && this.paths.length > 1) this.choosePath((this.chosen + 1) % this.paths.length);
  }

  choosePath(place) {
    go({ path: place }, { replace: true });
    this.chosen = place; // an answer that was looked up is not in the address
    this.showPath();
    announce(`Path ${place + 1} of ${this.paths.length}: ${pathText(this.paths[place])}`);
  }

  showPath() {
    if (!this.paths.length) return;
    const one = (path, place) =>
      el(
        "button",
        {
          type: "button",
          class: "path-tab",
          "aria-pressed": String(place === this.chosen),
          onclick: () => this.choosePath(place),
        },
        `Path ${place + 1}`,
        el("i", { class: path.grade, "aria-hidden": "true" }),
        el("span", { class: "unseen" }, path.grade),
      );
    const hadFocus = this.tabs.contains(document.activeElement);
    clear(this.tabs, this.paths.length > 1 ? this.paths.map(one) : []);
    if (hadFocus) this.tabs.children[this.chosen]?.focus();
    this.draw();
    clear(this.detail, ...this.pathWords(this.paths[this.chosen]));
  }

  draw() {
    const [best] = this.paths;
    const ends = `from ${startOf(best)} to ${goalOf(best.edges.at(-1))}`;
    const caption = `${plural(this.paths.length, "path")} ${ends}. ${this.paths.map(pathText).join(". ")}`;
    this.room = this.canvas.clientWidth;
    this.scene = fittingScene(pathGraph(this.paths), this.room, { chosen: this.chosen, caption });
    const focused = this.canvas.contains(document.activeElement)
      ? document.activeElement.getAttribute("aria-label")
      : null;
    clear(this.canvas, drawSvg(this.scene, { onNode: (name) => go({ around: name }) }));
    if (focused) this.canvas.querySelector(`[aria-label="${CSS.escape(focused)}"]`)?.focus();
    if (this.scene.upright) this.canvas.scrollLeft = this.scene.middle - this.room / 2; // the best path first
  }

  onResize() {
    if (this.answer && this.paths.length && this.canvas.clientWidth !== this.room) this.draw();
  }

  pathWords(path) {
    if (this.answer.is_fact) return [];
    const more = this.answer.paths - this.paths.length;
    const place = this.paths.length > 1 ? `Path ${this.chosen + 1} of ${this.paths.length}` : "The path";
    return [
      el(
        "h3",
        {},
        `${place} `,
        el(
          "span",
          { class: "quiet" },
          [
            path.probability === null ? "" : `probability ${rounded(path.probability, 3)}`,
            more > 0 ? `${plural(more, "more path leads", "more paths lead")} here` : "",
          ]
            .filter(Boolean)
            .join(" · "),
        ),
      ),
      el(
        "ol",
        { class: "steps", "aria-label": "Steps of the path" },
        path.edges.map((edge) => this.step(edge)),
      ),
      el("h3", {}, "The rule it follows"),
      path.rule
        ? ruleWords(path.rule)
        : el(
            "p",
            { class: "quiet" },
            path.grade === "asserted"
              ? "None: the model asserts the fact without a path."
              : "No mined rule has this form; the model found the path itself.",
          ),
    ];
  }

  step(edge) {
    return el(
      "li",
      { class: edge.is_fact ? "step known" : "step inferred" },
      this.entity(edge.head),
      el("span", { class: "relation" }, edge.relation),
      this.entity(edge.tail),
      el("span", { class: "quiet" }, edge.is_fact ? "fact" : `inferred, ${rounded(edge.probability)}`),
    );
  }

  sources(answer) {
    const found = answer.sources ?? [];
    if (!found.length) return null;
    const most = Math.max(...found.map((one) => Math.abs(one.contribution)), Number.MIN_VALUE);
    const row = (one) => {
      const fill = el("span", { class: "fill" });
      fill.style.width = `${(50 * Math.abs(one.contribution)) / most}%`;
      return el(
        "div",
        { class: one.contribution < 0 ? "source against" : "source" },
        el("dt", {}, one.name),
        el(
          "dd",
          {},
          el("span", { class: "signed-bar", "aria-hidden": "true" }, fill),
          el("span", { class: "value" }, signed(one.contribution)),
        ),
      );
    };
    return el(
      "section",
      { class: "sources" },
      el("h3", {}, "Evidence for and against"),
      el("dl", {}, found.map(row)),
      el(
        "p",
        { class: "quiet" },
        "Bars to the right make the answer more likely, bars to the left less likely. They are shares of the log " +
          "odds against the other candidates.",
      ),
    );
  }

  exports(fact) {
    const button = (words, sign, action) =>
      el("button", { type: "button", class: "plain", onclick: action }, icon(sign), words);
    const name = fileName(fact);
    return el(
      "footer",
      { class: "exports", role: "group", "aria-label": "Export" },
      button("Copy link", "link", copyLink),
      button("Answers as JSON", "save", this.saveAnswers),
      this.paths.length ? button("Drawing as SVG", "save", () => saveSvg(this.scene, name)) : null,
      this.paths.length ? button("as PNG", "save", () => savePng(this.scene, name)) : null,
      el("p", { class: "quiet origin" }, originWords(this.found.origin)),
    );
  }

  toList() {
    byId("answers").scrollIntoView({ block: "start" });
    byId("answers").querySelector("[aria-selected=true]")?.focus({ preventScroll: true });
  }
}

function basisWords(answer) {
  const parts = [];
  if (answer.basis) parts.push(`Based on ${answer.basis}.`);
  if (answer.evidence) parts.push(GRADES[answer.evidence.grade]);
  if (answer.confidence == null && answer.asserted > 0.5 && answer.evidence?.grade !== "asserted")
    parts.push(`But ${percent(answer.asserted)} of its score is the bare assertion, without a path.`);
  return parts.join(" ");
}

/** `Chechen – language family → …`, for screen readers. */
export function pathText(path) {
  return [
    startOf(path),
    ...path.edges.map(
      (edge) =>
        `${edge.backwards ? "←" : "→"} ` +
        `${edge.relation}${edge.is_fact ? "" : ` (inferred, ${rounded(edge.probability)})`} ` +
        `${edge.backwards ? "←" : "→"} ${goalOf(edge)}`,
    ),
  ].join(" ");
}

function originWords(origin) {
  const how = [
    `model of step ${origin.step}`,
    `beam ${origin.beam}`,
    `up to ${plural(origin.hops, "step")} per path`,
  ];
  if (origin.ranking) how.push(`ranked by ${origin.ranking === "fused" ? "all evidence" : "paths"}`);
  return `${origin.graph}: ${how.join(", ")}; squire ${origin.version}.`;
}
