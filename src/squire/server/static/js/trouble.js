// What went wrong, in words, with names to click that were perhaps meant.

import { clear, el } from "./dom.js";

const TITLES = {
  unknown_name: "The graph does not have this name",
  busy: "The service is busy",
  unreachable: "The service is not there",
  unauthorised: "A token is needed",
  too_large: "That is too much at once",
};

export function trouble(place, error, onName) {
  const names = (error.nearest ?? []).map((name) =>
    el("button", { type: "button", class: "chip", onclick: () => onName?.(name) }, name),
  );
  clear(
    place,
    el(
      "div",
      { class: "trouble" },
      el("h2", {}, TITLES[error.code] ?? "That did not work"),
      el("p", {}, sentence(error.message, names.length > 0)),
      names.length && onName
        ? el("div", { class: "chips" }, el("span", { class: "quiet" }, "Did you mean"), names)
        : null,
      error.requestId ? el("p", { class: "quiet small" }, `Request ${error.requestId}`) : null,
    ),
  );
}

/** Names that can be clicked need not be read as well. */
function sentence(message, hasNames) {
  const said = hasNames ? message.replace(/ Nearest: .*$/s, "") : message;
  return said.charAt(0).toUpperCase() + said.slice(1);
}
