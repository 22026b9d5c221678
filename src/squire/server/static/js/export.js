// Exports: the answers, the drawing, the link.

import { announce, byId, el } from "./dom.js";
import { drawCanvas, drawSvg } from "./draw.js";

export function saveAnswers(found) {
  save(new Blob([`${JSON.stringify(found, null, 1)}\n`], { type: "application/json" }), `${fileName(found)}.json`);
}

export function saveSvg(scene, name) {
  const text = new XMLSerializer().serializeToString(drawSvg(scene, { standalone: true }));
  save(new Blob([text], { type: "image/svg+xml" }), `${name}.svg`);
}

export function savePng(scene, name) {
  drawCanvas(scene).toBlob((blob) => save(blob, `${name}.png`), "image/png");
}

/** A name that is valid on every file system. */
export function fileName({ head, relation, tail }, answer = "") {
  const words = [head, relation, tail, answer].filter(Boolean).join(" ");
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
    announce("Link copied.");
    toast("Link copied");
  } catch {
    toast("The link is in the address bar"); // there is no clipboard without https or localhost
  }
}

function toast(words) {
  byId("toast")?.remove();
  const node = el("div", { id: "toast", class: "toast", "aria-hidden": "true" }, words);
  document.body.append(node);
  setTimeout(() => node.remove(), 2200);
}
