// Checks any other answer: its rank and evidence, whether it is in the list or not.

import * as api from "./api.js";
import { Combobox } from "./combobox.js";
import { clear, el } from "./dom.js";
import { count, plural } from "./format.js";
import { current } from "./state.js";

export class Seek {
  /** onFound(explanation): the entity has evidence. */
  constructor(onFound) {
    this.onFound = onFound;
    this.box = new Combobox({
      id: "seek",
      label: "Check another answer",
      placeholder: "name an entity",
      search: async (q, signal) =>
        (await api.entities(current().model, q, signal)).matches.map((one) => ({
          name: one.name,
          note: plural(one.degree, "edge"),
        })),
      onChoose: (name) => this.look(name),
    });
    this.said = el("p", { class: "quiet", role: "status" });
    this.node = el(
      "form",
      {
        class: "seek",
        onsubmit: (event) => {
          event.preventDefault();
          if (this.box.value) this.look(this.box.value);
        },
      },
      this.box.node,
      this.said,
    );
  }

  reset() {
    this.waiting?.abort();
    this.box.value = "";
    clear(this.said);
  }

  async look(name) {
    this.waiting?.abort();
    this.waiting = new AbortController();
    const { model, head, relation, tail, reverse } = current();
    const fact = reverse ? { head: name, relation, tail } : { head, relation, tail: name };
    this.said.textContent = "Looking …";
    try {
      const found = await api.explain(model, fact, this.waiting.signal);
      this.said.textContent = inWords(name, found);
      if (found.answer) this.onFound(found);
    } catch (error) {
      if (!api.wasCancelled(error)) this.said.textContent = error.message;
    }
  }
}

function inWords(name, { rank, is_fact: isFact, answer }) {
  if (isFact) return `${name} is a fact of the graph.`;
  return answer ? `${name} is at rank ${count(rank)}.` : `No path was found to ${name}.`;
}
