// Wires the parts together: the address says what is looked at, each part shows its share of it.

import { Around } from "./around.js";
import { AnswerList, legendRows } from "./answers.js";
import * as api from "./api.js";
import { Ask } from "./ask.js";
import { announce, byId, clear, el } from "./dom.js";
import { EvidencePanel } from "./evidence.js";
import { plural } from "./format.js";
import { copyLink, saveAnswers } from "./export.js";
import { Judge } from "./judge.js";
import { onKeys } from "./keys.js";
import { showQuality } from "./quality.js";
import { Seek } from "./seek.js";
import { QUESTION, changed, current, go, subscribe } from "./state.js";
import { trouble } from "./trouble.js";
import { themeSwitch } from "./theme-switch.js";

class Page {
  constructor() {
    this.ask = new Ask();
    this.seek = new Seek((found) => this.showSought(found));
    this.list = new AnswerList({
      onChoose: (entity, byHand) => this.choose(entity, byHand),
      onEnter: () => this.toEvidence(),
      tail: this.seek.node,
    });
    this.evidence = new EvidencePanel({ saveAnswers: () => this.found && saveAnswers(this.found) });
    this.around = new Around();
    this.judge = new Judge(byId("judge-view"));
    this.cards = new Map();
    clear(byId("help-grades"), legendRows());
    byId("help").addEventListener("click", () => byId("help-dialog").showModal());
    byId("model").addEventListener("change", (event) => go({ model: event.target.value, ...BLANK }));
    byId("skip").addEventListener("click", (event) => (event.preventDefault(), byId("main").focus()));
    for (const link of [byId("brand"), ...document.querySelectorAll("[data-view]")]) {
      link.addEventListener("click", (event) => this.onView(event, link.dataset.view));
    }
    themeSwitch(byId("theme"));
    onKeys({
      "/": () => (go({ view: "ask", around: "" }), this.ask.focus()),
      "?": () => byId("help-dialog").open || byId("help-dialog").showModal(),
      f: () => current().view === "ask" && this.ask.flip(),
      j: () => this.list.step(1),
      k: () => this.list.step(-1),
      p: () => this.evidence.nextPath(),
      c: () => copyLink(),
    });
  }

  async start() {
    try {
      this.models = await api.models();
    } catch (error) {
      return trouble(byId("trouble"), error);
    }
    const picker = byId("model");
    clear(
      picker,
      this.models.map((one) => el("option", { value: one.name }, one.name)),
    );
    picker.hidden = this.models.length < 2;
    byId("model-name").hidden = this.models.length > 1;
    subscribe((now, before) => this.render(now, before));
    if (!this.models.some((one) => one.name === current().model)) {
      const first = this.models.find((one) => one.default) ?? this.models[0];
      return go({ model: first?.name ?? "" }, { replace: true });
    }
    return this.render(current(), { ...current(), model: "" });
  }

  onView(event, view) {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return; // in a new tab, as any link
    event.preventDefault();
    go(view ? { view, around: "" } : { view: "ask", ...BLANK });
  }

  async render(now, before) {
    for (const view of ["ask", "quality", "judge"]) {
      byId(`${view}-view`).hidden = now.view !== view;
      document.querySelector(`[data-view=${view}]`).toggleAttribute("aria-current", now.view === view);
    }
    if (now.model !== before.model) await this.loadCard(now.model);
    if (current() !== now || !this.card) return; // something else is looked at meanwhile
    this.title(now);
    if (now.view === "quality") showQuality(byId("quality-view"), this.card);
    if (now.view === "judge" && (before.view !== "judge" || now.model !== before.model))
      this.judge.open(now.model);
    if (now.view === "ask") {
      this.ask.show(now);
      if (changed(QUESTION, now, this.shown ?? {})) await this.answer(now);
      else this.showChosen(now);
    }
    this.around.show(current());
  }

  title({ view, head, relation, tail, reverse }) {
    const question = relation ? `${reverse ? "?" : head} · ${relation} · ${reverse ? tail : "?"}` : "";
    document.title = [view === "ask" ? question : { quality: "Quality", judge: "Judge paths" }[view], "SQUIRE"]
      .filter(Boolean)
      .join(" – ");
  }

  async loadCard(model) {
    clear(byId("trouble"));
    try {
      if (!this.cards.has(model)) this.cards.set(model, await api.card(model));
    } catch (error) {
      this.card = null;
      return trouble(byId("trouble"), error);
    }
    this.card = this.cards.get(model);
    byId("model").value = model;
    byId("model-name").textContent = this.card.name;
    byId("model-facts").textContent =
      `${plural(this.card.entities, "entity", "entities")} · ${plural(this.card.facts, "fact")}`;
    this.ask.describe(this.card);
    this.evidence.describe(this.card);
  }

  async answer(view) {
    this.waiting?.abort();
    this.shown = view;
    this.found = null;
    clear(byId("trouble"));
    const asked = view.relation && (view.head || view.tail);
    byId("found").hidden = !asked;
    byId("ask-view").classList.toggle("empty", !asked);
    if (!asked) return;
    this.waiting = new AbortController();
    const { signal } = this.waiting;
    const began = performance.now();
    this.busy(true);
    this.seek.reset();
    this.list.wait();
    this.evidence.wait();
    try {
      const found = await api.answer(view.model, this.body(view), signal);
      if (signal.aborted) return;
      this.found = found;
      this.list.show(found, (performance.now() - began) / 1000);
      announce(
        found.answers.length
          ? `${plural(found.answers.length, "answer")}; first: ${found.answers[0].entity}`
          : "No answer.",
      );
      this.showChosen(current());
    } catch (error) {
      if (api.wasCancelled(error)) return;
      byId("found").hidden = true;
      this.shown = null; // the same question may be asked again
      trouble(byId("trouble"), error, (name) => this.instead(name, view, /^unknown relation/.test(error.message)));
    } finally {
      if (!signal.aborted) this.busy(false);
    }
  }

  body({ head, relation, tail, reverse, k, known, grounded, ranking }) {
    const ends = reverse ? { head: null, tail } : { head, tail: null };
    return { ...ends, relation, k, known, grounded, ranking: this.card.fused ? ranking || null : null };
  }

  /** A name that the graph has, in place of the one it has not. */
  instead(name, view, isRelation) {
    if (isRelation)
      return go({ ...BLANK, head: view.head, tail: view.tail, reverse: view.reverse, relation: name });
    return go({
      ...BLANK,
      relation: view.relation,
      reverse: view.reverse,
      ...(view.reverse ? { tail: name } : { head: name }),
    });
  }

  busy(is) {
    byId("progress").hidden = !is;
    byId("found").setAttribute("aria-busy", String(is));
  }

  showChosen(view) {
    if (!this.found) return;
    const chosen = this.list.select(view.answer);
    this.evidence.show(this.found, chosen, view);
  }

  showSought({ answer }) {
    if (this.found.answers.some((one) => one.entity === answer.entity)) return this.choose(answer.entity);
    return this.evidence.show(this.found, answer, { ...current(), path: 0 });
  }

  choose(entity, byHand = false) {
    go({ answer: entity, path: 0 }, { replace: true });
    const narrow = matchMedia("(max-width: 60rem)").matches;
    if (byHand && narrow) this.toEvidence();
  }

  toEvidence() {
    const panel = byId("evidence");
    panel.focus({ preventScroll: true });
    panel.scrollIntoView({ block: "start" });
  }
}

const BLANK = { head: "", relation: "", tail: "", reverse: false, answer: "", path: 0, around: "" };

new Page().start();
