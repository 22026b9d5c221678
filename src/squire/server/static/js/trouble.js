// Shows an error, with names that may have been meant.

import { clear, el } from "./dom.js";
import { capital } from "./format.js";

const TITLES = {
	unknown_name: "Not in the graph",
	busy: "The service is busy",
	unreachable: "Can’t reach the service",
	unauthorised: "A token is required",
	too_large: "The request is too large",
};

const RETRY = ["unreachable", "busy", "internal", "too_slow", "stopping", "unauthorised"];

/** onName(name): a name was meant; onRetry(): the same once more. */
export function trouble(place, error, { onName, onRetry } = {}) {
	const names = (error.nearest ?? []).map((name) => el("button.chip", { onclick: () => onName?.(name) }, name));
	clear(
		place,
		el(
			"div.trouble",
			el("h2", TITLES[error.code] ?? "Something went wrong"),
			el("p", sentence(error.message, names.length && onName)),
			names.length && onName ? el("div.chips", el("span.quiet", "Did you mean"), names) : null,
			onRetry && RETRY.includes(error.code)
				? el("button.plain", { onclick: () => (clear(place), onRetry()) }, "Try again")
				: null,
			error.requestId ? el("p.quiet", `Request ${error.requestId}`) : null,
		),
	);
}

/** The message, without the names that are shown as buttons. */
function sentence(message, hasNames) {
	return capital(hasNames ? message.replace(/ Nearest: .*$/s, "") : message);
}
