// Single-key shortcuts, active while no text is being typed.

import { isTyping } from "./dom.js";

export function onKeys(actions) {
	document.addEventListener("keydown", (event) => {
		if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || isTyping(event)) return;
		if (document.querySelector("dialog[open]")) return; // a dialog has its own keys
		const action = actions[event.key];
		if (!action) return;
		event.preventDefault();
		action();
	});
}
