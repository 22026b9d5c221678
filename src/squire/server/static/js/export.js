// Exports: the answers, the drawing, the link.

import { announce, el } from "./dom.js";
import { drawFile } from "./draw.js";

export function saveAnswers(found) {
	save(new Blob([`${JSON.stringify(found, null, 1)}\n`], { type: "application/json" }), `${fileName(found)}.json`);
}

const svgFile = (scene, about) =>
	new Blob([new XMLSerializer().serializeToString(drawFile(scene, about))], { type: "image/svg+xml" });

/** `about`: {title, subtitle, source}, which the picture says as well. */
export const saveSvg = (scene, name, about) => save(svgFile(scene, about), `${name}.svg`);

/** The same picture with twice as many pixels. */
export async function savePng(scene, name, about) {
	const address = URL.createObjectURL(svgFile(scene, about));
	const image = new Image();
	image.src = address;
	await image.decode();
	URL.revokeObjectURL(address);
	const canvas = el("canvas", { width: 2 * image.width, height: 2 * image.height });
	canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
	canvas.toBlob((blob) => save(blob, `${name}.png`), "image/png");
}

/** A name that is valid on every file system. */
export function fileName({ head, relation, tail }) {
	const words = [head, relation, tail].filter(Boolean).join(" ");
	return (
		words
			.replace(/[^\p{L}\p{N} .-]+/gu, "-")
			.replace(/^[ .-]+|[ .-]+$/g, "")
			.slice(0, 100) || "answers"
	);
}

function save(blob, name) {
	const address = URL.createObjectURL(blob);
	const link = el("a", { href: address, download: name });
	link.click();
	setTimeout(() => URL.revokeObjectURL(address), 10_000); // the browser still has to read it
	announce(`Saved ${name}`);
}

export async function copyLink() {
	try {
		await navigator.clipboard.writeText(location.href);
		announce("Link copied", true);
	} catch {
		announce("The link is in the address bar", true); // there is no clipboard without https or localhost
	}
}
