// What the graph says, then the ranked list of new answers with their confidence and grade. Arrow keys move through it.

import { byId, clear, el } from "./dom.js";
import { GRADES, count, percent, plural, rounded } from "./format.js";

export class AnswerList {
  /** onChoose(entity): an answer was selected; onEnter(): go to its evidence; `tail` is shown below the list. */
  constructor({ onChoose, onEnter, tail }) {
    Object.assign(this, { onChoose, onEnter, tail });
    this.node = byId("answers");
    this.items = [];
  }

  /** Placeholder while the answers are loading. */
  wait() {
    const ghost = () =>
      el(
        "li",
        { class: "answer ghost" },
        el("span", { class: "rank" }),
        el("span", { class: "name" }),
        el("span", { class: "bar" }),
      );
    clear(
      this.node,
      el("h2", { class: "list-title" }, "Looking for paths …"),
      el("ol", { class: "list", "aria-hidden": "true" }, Array.from({ length: 5 }, ghost)),
    );
    this.items = [];
  }

  show(found, seconds) {
    this.answers = found.answers;
    this.facts = found.facts;
    const best = Math.max(...found.answers.map((one) => one.score), Number.MIN_VALUE);
    const sure = found.answers.some((one) => one.confidence !== null && one.confidence !== undefined);
    this.items = found.answers.map((one, place) => this.item(one, place, best));
    const asked = found.head === null ? "head" : "tail";
    this.chips = found.facts.map((one) => this.chip(one));
    clear(
      this.node,
      found.facts.length ? this.known(found) : null,
      el(
        "div",
        { class: "list-head" },
        el("h2", { class: "list-title" }, plural(found.answers.length, "new answer")),
        el("span", { class: "quiet" }, `${seconds.toFixed(seconds < 1 ? 2 : 1)} s · beam ${found.origin.beam}`),
      ),
      found.answers.length ? el("p", { class: "scale quiet" }, sure ? SURE : UNSURE) : this.nothing(asked),
      el(
        "ol",
        { class: "list", role: "listbox", "aria-label": "Answers, best first", id: "answer-list" },
        this.items,
      ),
      this.tail,
      legend(),
    );
  }

  nothing(asked) {
    return el(
      "p",
      { class: "quiet" },
      `No path leads to a new ${asked}. If “Grounded only” is on, switch it off.`,
    );
  }

  known({ facts, num_facts: all }) {
    return el(
      "section",
      { class: "known", "aria-labelledby": "known-title" },
      el("h2", { class: "list-title", id: "known-title" }, "The graph says"),
      el("div", { class: "chips" }, this.chips),
      all > facts.length ? el("p", { class: "quiet" }, `… and ${count(all - facts.length)} more`) : null,
    );
  }

  chip({ entity }) {
    const choose = () => this.onChoose(entity, true);
    return el("button", { type: "button", class: "chip", "aria-pressed": "false", onclick: choose }, entity);
  }

  item(one, place, best) {
    const sure = one.confidence !== null && one.confidence !== undefined;
    const shown = sure ? percent(one.confidence) : rounded(one.score, 3);
    const fill = el("span", { class: "fill" });
    fill.style.width = `${100 * Math.min(1, Math.max(0.004, sure ? one.confidence : one.score / best))}%`;
    const words = [
      `${one.rank}. ${one.entity}`,
      sure ? `confidence ${shown}` : `score ${shown}, not a probability`,
      one.evidence?.grade,
    ];
    return el(
      "li",
      {
        class: "answer",
        role: "option",
        id: `answer-${place}`,
        tabindex: "-1",
        "aria-selected": "false",
        "aria-label": words.filter(Boolean).join(", "),
        "data-place": place,
        onclick: () => this.choose(place, true),
        onkeydown: (event) => this.onKey(event, place),
      },
      el("span", { class: "rank" }, one.rank),
      el("span", { class: "name", title: one.entity }, one.entity),
      el("span", { class: "value" }, shown),
      el("span", { class: sure ? "bar" : "bar relative" }, fill),
      one.evidence ? gradeBadge(one.evidence.grade) : null,
    );
  }

  /** Marks a fact or an answer, by default the first answer, as the one whose evidence is shown; returns it. */
  select(entity) {
    let fact = this.facts.findIndex((one) => one.entity === entity);
    if (!this.answers.length) fact = Math.max(0, fact);
    this.chips.forEach((chip, i) => chip.setAttribute("aria-pressed", String(i === fact)));
    const place = Math.max(
      0,
      this.answers.findIndex((one) => one.entity === entity),
    );
    this.items.forEach((item, i) => {
      item.setAttribute("aria-selected", String(fact < 0 && i === place));
      item.tabIndex = i === place ? 0 : -1;
    });
    this.chosen = place;
    return this.facts[fact] ?? this.answers[place];
  }

  choose(place, byHand = false) {
    if (place < 0 || place >= this.items.length) return;
    this.items[place].focus({ preventScroll: true });
    this.items[place].scrollIntoView({ block: "nearest" });
    this.onChoose(this.answers[place].entity, byHand);
  }

  focus() {
    this.items[this.chosen]?.focus({ preventScroll: true });
  }

  step(by) {
    this.choose((this.chosen ?? 0) + by);
  }

  onKey(event, place) {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const goals = { ArrowDown: place + 1, ArrowUp: place - 1, Home: 0, End: this.items.length - 1 };
    if (event.key in goals) this.choose(goals[event.key]);
    else if (event.key === "Enter" || event.key === " ") this.onEnter();
    else return;
    event.preventDefault();
  }
}

const SURE = "Bars show the probability that an answer is true, calibrated on held-out facts.";
const UNSURE = "Bars compare scores within this list. A score is not the probability that an answer is true.";

/** A grade, with the line style of its edges: solid, dashed or dotted. */
export function gradeBadge(grade) {
  return el(
    "span",
    { class: `grade ${grade in GRADES ? grade : "asserted"}`, title: GRADES[grade] ?? "" },
    el("i", { "aria-hidden": "true" }),
    grade,
  );
}

export function legendRows() {
  return Object.entries(GRADES).map(([grade, words]) =>
    el("div", {}, el("dt", {}, gradeBadge(grade)), el("dd", {}, words)),
  );
}

const legend = () => el("dl", { class: "legend", "aria-label": "Grades of evidence" }, legendRows());
