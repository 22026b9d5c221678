// A reliability diagram: one point per bin of confidence, larger for more answers.

import { el, svg } from "./dom.js";
import { count, metric, percent } from "./format.js";

const SIDE = 220;
const LEFT = 40;
const BELOW = 36;

export function reliabilityCurve(name, { confidence, truth, count: counts, error }) {
	const x = (value) => LEFT + value * SIDE;
	const y = (value) => 8 + (1 - value) * SIDE;
	const points = confidence.map((value, place) => ({
		x: x(value),
		y: y(truth[place]),
		n: counts?.[place] ?? 1,
		says: `${percent(value)} sure, ${percent(truth[place])} true${counts ? ` (${count(counts[place])} answers)` : ""}`,
	}));
	const most = Math.max(...points.map((point) => point.n));
	const grid = [0, 0.25, 0.5, 0.75, 1];
	const label = name.replace(/first (\d+)$/, (_, n) => (n === "1" ? "first answer" : `first ${n} answers`));
	return el(
		"figure.curve",
		svg(
			"svg",
			{
				viewBox: `0 0 ${LEFT + SIDE + 12} ${SIDE + BELOW + 12}`,
				role: "img",
				"aria-label": `Reliability of ${label}: ${points.map((point) => point.says).join("; ")}`,
			},
			grid.map((value) =>
				svg(
					"g.grid",
					svg("path", { d: `M${x(value)} ${y(0)}V${y(1)}M${x(0)} ${y(value)}H${x(1)}` }),
					svg("text", { x: x(value), y: y(0) + 16, "text-anchor": "middle" }, 100 * value),
					svg("text", { x: LEFT - 7, y: y(value) + 4, "text-anchor": "end" }, 100 * value),
				),
			),
			svg("path.ideal", { d: `M${x(0)} ${y(0)}L${x(1)} ${y(1)}` }),
			svg("path.measured", {
				d: `M${points.map((point) => `${point.x.toFixed(1)} ${point.y.toFixed(1)}`).join("L")}`,
			}),
			points.map((point) =>
				svg(
					"circle",
					{ cx: point.x, cy: point.y, r: 2.5 + 2.5 * Math.sqrt(point.n / most) },
					svg("title", point.says),
				),
			),
			svg("text.axis", { x: x(0.5), y: y(0) + 32, "text-anchor": "middle" }, "confidence, %"),
			svg(
				"text.axis",
				{ x: 10, y: y(0.5), "text-anchor": "middle", transform: `rotate(-90 10 ${y(0.5)})` },
				"true, %",
			),
		),
		el("figcaption.quiet", `Of ${label}. Calibration error ${metric(error)}.`),
	);
}
