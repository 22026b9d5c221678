// Calls the API. Every failure becomes an ApiError with a readable message.

import { askForToken } from "./token.js";

export class ApiError extends Error {
	constructor(status, { code = "internal", message, nearest = [] } = {}, requestId = "") {
		super(message || `The service answered with status ${status}.`);
		Object.assign(this, { status, code, nearest: nearest ?? [], requestId });
	}
}

export const wasCancelled = (error) => error?.name === "AbortError";

const TOKEN = "squire-token";
let token = sessionStorage.getItem(TOKEN);
let asking = null; // one prompt, however many requests were refused

async function call(path, { body, signal } = {}) {
	for (;;) {
		const used = token;
		const response = await send(path, body, signal);
		if (response.status !== 401) return read(response);
		if (token === used) await newToken(used !== null);
		signal?.throwIfAborted();
	}
}

async function send(path, body, signal) {
	const headers = { Accept: "application/json" };
	if (token) headers.Authorization = `Bearer ${token}`;
	if (body) headers["Content-Type"] = "application/json";
	try {
		return await fetch(`api/${path}`, {
			method: body ? "POST" : "GET",
			headers,
			body: body ? JSON.stringify(body) : undefined,
			signal,
			cache: "no-store",
		});
	} catch (error) {
		if (wasCancelled(error)) throw error;
		throw new ApiError(0, {
			code: "unreachable",
			message: "Is ‘squire serve’ still running?",
		});
	}
}

async function read(response) {
	const content = await response.json().catch(() => null);
	if (response.ok && content !== null) return content;
	throw new ApiError(
		response.status,
		content?.error,
		content?.request_id ?? response.headers.get("X-Request-ID") ?? "",
	);
}

async function newToken(wasRefused) {
	asking ??= askForToken(wasRefused).finally(() => (asking = null));
	token = await asking;
	if (token === null)
		throw new ApiError(401, {
			code: "unauthorised",
			message: "This service needs a token.",
		});
	sessionStorage.setItem(TOKEN, token);
}

const at = (model, what, query = {}) => {
	const given = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== "");
	const tail = given.length ? `?${new URLSearchParams(given)}` : "";
	return `models/${encodeURIComponent(model)}${what ? `/${what}` : ""}${tail}`;
};

export const models = () => call("models");
export const card = (model) => call(at(model, ""));
export const entities = (model, q, signal) => call(at(model, "entities", { q, limit: 8 }), { signal });
export const relations = (model, query, signal) => call(at(model, "relations", query), { signal });
export const answer = (model, body, signal) => call(at(model, "answer"), { body, signal });
export const check = (model, body, signal) => call(at(model, "check"), { body, signal });
export const connect = (model, body, signal) => call(at(model, "connect"), { body, signal });
export const why = (model, body) => call(at(model, "why"), { body });
export const neighbourhood = (model, query, signal) => call(at(model, "neighbourhood", query), { signal });
export const doubtful = (model, entity) => call(at(model, "doubt", { entity }));
export const attention = (model, body, signal) => call(at(model, "attention"), { body, signal });
export const annotation = (model, annotator) => call(at(model, "annotation", { annotator }));
export const review = (model, start) => call(at(model, "review", { start }));
export const decide = (model, body) => call(at(model, "review"), { body });
export const judge = (model, body) => call(at(model, "annotation"), { body });
