// Asks for the service's token, once; it lives as long as the tab.

import { byId } from "./dom.js";

/** The token that was typed, or null if the person gave up. */
export function askForToken(wasRefused) {
  const dialog = byId("token-dialog");
  const field = byId("token-field");
  byId("token-refused").hidden = !wasRefused;
  field.value = "";
  dialog.returnValue = "";
  dialog.showModal();
  field.focus();
  return new Promise((resolve) => {
    dialog.addEventListener(
      "close",
      () => resolve(dialog.returnValue === "use" && field.value ? field.value.trim() : null),
      { once: true },
    );
  });
}
