// Single-key shortcuts, active while no text is being typed.

import { isTyping } from "./dom.js";
import { current } from "./state.js";

/** `view`: the only one in which they work. */
export function onKeys(actions, view) {
	document.addEventListener("keydown", (event) => {
		if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || isTyping(event)) return;
		if (document.querySelector("dialog[open]")) return; // a dialog has its own keys
		const action = !view || current().view === view ? actions[event.key] : null;
		if (!action) return;
		event.preventDefault();
		action();
	});
}
