// Predictions that the endpoint has put off, as when it is busy: each is sent again when it may be, and not before.
import { Refused, classify } from "./endpoint.js";

const refusals = new Map(); // By image and version.

// Predicts for an image or a row, unless that is put off: then it is refused as before. `again` is called when it may
// be sent again.
export async function classifyOrHold(subject, target, given, again) {
  const question = `${subject} ${target.name}/${target.facts.version}`;
  // Strokes go on while the endpoint is busy or does not answer.
  if (refusals.has(question)) throw refusals.get(question);
  try {
    return await classify(target, given, true);
  } catch (error) {
    if (error instanceof Refused && error.after) {
      refusals.set(question, error);
      setTimeout(() => {
        refusals.delete(question);
        again();
      }, 1000 * error.after);
    }
    throw error;
  }
}
