// Sends requests to the endpoint, with the key if it requires one.
import { percent } from "./dom.js";
import { canBeSent, currentKey, keyHeader, nextKey, showKeyForm } from "./key.js";

export class Refused extends Error {
  constructor(message, status = 0, after = 0) {
    super(message);
    this.status = status;
    this.after = after; // Seconds until a retry; 0 is never.
  }
}

const LIMIT = 30_000; // Milliseconds for the answer to a request that computes nothing.
const SHOWN = 10; // Bars of an answer, and classes to request.

export const wanted = (classes) => Math.min(Math.max(classes.length, 1), SHOWN);

// Returns the body of a response, as JSON unless `read` says otherwise. Waits if the key may not send as often.
export async function ask(path, options = {}, read = (response) => response.json()) {
  const key = currentKey();
  if (!canBeSent(key)) {
    showKeyForm(true);
    throw new Refused("This key has a character that cannot be sent, such as a line break.", 401);
  }
  // A prediction may take as long as the endpoint allows.
  const signal = options.body ? undefined : AbortSignal.timeout(LIMIT);
  let response;
  try {
    response = await fetch(path, { ...options, signal, headers: { ...options.headers, ...keyHeader(key) } });
  } catch {
    throw new Refused("The endpoint does not answer. Is it still running?", 0, 2);
  }
  if (response.status === 401) {
    // Another key has been entered in the meantime.
    if (key !== currentKey()) return ask(path, options, read);
    showKeyForm(true);
    throw new Refused(key ? "This key is not accepted." : "", 401);
  }
  showKeyForm(false);
  if (response.ok) {
    try {
      return await read(response);
    } catch {
      const why = "Was the connection lost, or does a proxy or a login page answer instead?";
      throw new Refused(`The endpoint's answer cannot be read. ${why}`, response.status, 2);
    }
  }
  if (response.status === 429) {
    await seconds(afterwards(response));
    return ask(path, options, read);
  }
  const { error } = await response.json().catch(() => ({}));
  const after = response.status === 503 ? afterwards(response) : 0;
  throw new Refused(error ?? `The endpoint answered ${response.status}.`, response.status, after);
}

const afterwards = (response) => Number(response.headers.get("Retry-After")) || 1;

export const seconds = (count) => new Promise((done) => setTimeout(done, 1000 * count));

// Repeats work until it is done or refused for good, or until nobody needs it any more.
export async function insist(work, isNeeded) {
  while (isNeeded()) {
    try {
      return await work();
    } catch (error) {
      if (!(error instanceof Refused) || !(error.after || error.status === 401)) throw error;
      await (error.status === 401 ? nextKey() : seconds(error.after));
    }
  }
}

// Path and query of a prediction by a version, as `Choice` describes it.
export function path(target, parameters) {
  const query = new URLSearchParams({ ...target.which, ...parameters });
  return `predict/${encodeURIComponent(target.name)}${query.size ? `?${query}` : ""}`;
}

// Predicts for one image, or for one row; `inside` requests the input of the net and its gates, too.
export async function classify(target, given, inside) {
  const { body, headers } = target.columns.length ? rowBody(given) : imageBody(given);
  const digits = target.kind === "digit" ? { segments: true } : {};
  const more = inside ? { seen: true, explain: target.facts.gates, maps: target.facts.maps } : {};
  const start = performance.now();
  const query = { top: wanted(target.classes), ...digits, ...more };
  const answer = await ask(path(target, query), { method: "POST", body, headers });
  return { answer, milliseconds: performance.now() - start };
}

function imageBody(image) {
  const body = new FormData();
  body.append("picture", image, image.name ?? "drawing.png");
  return { body };
}

const rowBody = (row) => ({ body: JSON.stringify({ rows: [row] }), headers: { "Content-Type": "application/json" } });

export const short = (value) => value.toLocaleString("en", { maximumSignificantDigits: 6 });

// The class and its probability as text, or the value and what it is of, or all classes above one half, if there may be
// any number of them. An image of several digits has the class of each, and no probability.
export function verdict({ top, labels, segments, value }, predicted) {
  if (value !== undefined) return { label: short(value), share: predicted };
  if (labels) return { label: labels.join(", ") || "No class", share: "above 50%" };
  if (!segments || segments.length === 1) return { label: top[0].label, share: percent(top[0].probability) };
  return { label: segments.map((one) => one.top[0].label).join("") || "No digit", share: "" };
}
