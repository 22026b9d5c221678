// Asks for the token of the service once per tab.

import { byId } from "./dom.js";

/** The token, or null if the dialog was cancelled. */
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
