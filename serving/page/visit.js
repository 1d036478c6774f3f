// The images of this visit with their answers. They stay in this tab, and disappear with it.
import { find, make } from "./dom.js";
import { verdict } from "./endpoint.js";

const SIDE = 64; // Pixels of a thumbnail.
const KEPT = 24;
const [card, list] = ["visit", "past"].map(find);
let latest = null;

// Adds an answer; while a drawing grows, its answer replaces the one before. `restore` is called with its state.
export function remember(canvas, state, target, answer, restore) {
  const key = `${state.subject} ${target.name} ${answer.version}`;
  const { label, share } = verdict(answer.predictions[0]);
  const text = [label, share, target.name, `version ${answer.version}`].filter(Boolean).join(", ");
  if (latest?.key !== key) {
    const button = make("button", { type: "button" }, make("canvas", { width: SIDE, height: SIDE }), make("span"));
    latest = { key, button };
    list.prepend(make("li", {}, button));
    while (list.children.length > KEPT) list.lastChild.remove();
    card.hidden = false;
  }
  const { button } = latest;
  button.onclick = () => restore(state);
  button.title = button.ariaLabel = text;
  button.lastChild.textContent = label;
  const context = button.firstChild.getContext("2d");
  context.fillStyle = getComputedStyle(canvas).backgroundColor;
  context.fillRect(0, 0, SIDE, SIDE);
  context.drawImage(canvas, 0, 0, SIDE, SIDE);
}
