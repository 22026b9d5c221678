// Readable numbers. Small ones are not rounded to 0, those near 1 not to 1.

const grouped = new Intl.NumberFormat("en");

export const count = (value) => grouped.format(value);

export const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

export const plural = (value, one, many = `${one}s`) => `${count(value)} ${value === 1 ? one : many}`;

/** `0.82`, `<0.01` */
export function rounded(value, digits = 2) {
	const least = 10 ** -digits;
	return value >= least / 2 || value === 0 ? value.toFixed(digits) : `<${least.toFixed(digits)}`;
}

/** `82 %`, `<1 %`, `>99 %` */
export function percent(share) {
	if (share > 0 && share < 0.005) return "<1\u202f%";
	if (share < 1 && share > 0.995) return ">99\u202f%";
	return `${Math.round(100 * share)}\u202f%`;
}

/** Metrics without the leading zero: `.720` */
export const metric = (value) => (value >= 1 ? value.toFixed(3) : value.toFixed(3).slice(1));

export const UNLIKELY = 0.1; // as in the sentences of the API

/** `83 % likely`; without a confidence, the score. */
export const likely = ({ confidence, score }) =>
	confidence === null || confidence === undefined ? `score ${rounded(score, 3)}` : `${percent(confidence)} likely`;

/** What supports an answer: a name and a sentence for each grade of evidence. */
export const GRADES = {
	fact: ["in the graph", "It is a fact of the graph."],
	grounded: ["by facts", "Every step of the path is a fact of the graph."],
	completed: ["partly inferred", "Some steps are facts, others are inferred by the model."],
	asserted: ["no path", "The model claims it without a path."],
};
