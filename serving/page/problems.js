// Problems with the list of models, the choice and the last image or row, each shown until it is solved.
import { find } from "./dom.js";
import { Refused } from "./endpoint.js";

const problems = { models: "", choice: "", image: "" };

export function say(about, text) {
  problems[about] = text;
  const shown = problems.models || problems.choice || problems.image;
  if (find("message").textContent !== shown) find("message").textContent = shown;
}

// Does work that may be refused, or that returns what is wrong.
export async function report(about, work) {
  try {
    say(about, (await work()) ?? "");
  } catch (error) {
    fail(about, error);
  }
}

export function fail(about, error) {
  if (!(error instanceof Refused)) throw error;
  say(about, error.message);
}
