// The gates of an answer: a bar for the mean of each layer, and for convolutional layers a map over the image.
import { make, percent } from "./dom.js";

const FEW = 24; // Up to this many layers, there is room for wide gaps;
const MANY = 120; // beyond this many, there is room for none.
const TOPS = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1]; // Ends of the axis of the bars.
const ENLARGED = 8; // Pixels of the map per pixel of the input.

export class Gates {
  constructor(section) {
    this.part = (name) => section.querySelector(`.${name}`);
    this.answer = null;
    this.part("layer").addEventListener("input", () => this.#showMap());
  }

  showNothing({ facts }) {
    this.answer = null;
    this.part("strip").replaceChildren();
    this.part("strip").setAttribute("aria-label", "Nothing yet");
    this.part("last").textContent = "last layer";
    this.part("route").hidden = !facts.gates;
    this.part("map").hidden = true;
  }

  // Shows the gates of the first prediction; `seen` is the canvas with the input of the net. The axis reaches `most`.
  show(answer, seen, most) {
    const [{ gates, maps }] = answer.predictions;
    this.answer = answer;
    this.seen = seen;
    this.part("route").hidden = !gates;
    this.part("map").hidden = !maps?.length;
    if (gates) this.#showBars(gates, answer.layers, most);
    if (!maps?.length) return;
    const layer = this.part("layer");
    layer.max = maps.length;
    this.#showMap();
  }

  #showBars(gates, names, end) {
    const most = Math.max(...gates);
    const top = TOPS.find((one) => one >= end) ?? 1;
    const strip = this.part("strip");
    strip.className = `strip ${gates.length <= FEW ? "few" : gates.length > MANY ? "many" : ""}`;
    const widest = names[gates.indexOf(most)];
    const summary = `Mean gates of ${gates.length} layers; ${widest} is the most open with ${most.toPrecision(2)}`;
    strip.setAttribute("aria-label", summary);
    this.part("most").textContent = top;
    this.part("last").textContent = `layer ${gates.length}`;
    strip.replaceChildren(...gates.map((gate, place) => {
      const mark = make("i", { title: `${names[place]}: ${gate.toPrecision(2)}` });
      mark.style.height = `${(100 * gate) / top}%`;
      return mark;
    }));
  }

  #showMap() {
    if (!this.answer) return;
    const [{ maps }] = this.answer.predictions;
    const number = Math.min(this.part("layer").valueAsNumber, maps.length);
    const name = this.answer.map_layers[number - 1];
    const rows = maps[number - 1];
    const [least, most] = [Math.min, Math.max].map((end) => end(...rows.map((row) => end(...row))));
    const canvas = this.part("open");
    [canvas.width, canvas.height] = [ENLARGED * this.seen.width, ENLARGED * this.seen.height];
    const context = canvas.getContext("2d");
    context.imageSmoothingEnabled = false;
    context.drawImage(this.seen, 0, 0, canvas.width, canvas.height);
    const [across, down] = [canvas.width / rows[0].length, canvas.height / rows.length];
    rows.forEach((row, y) => row.forEach((gate, x) => {
      context.fillStyle = `rgb(255 122 0 / ${most > least ? 0.9 * (gate - least) / (most - least) : 0})`;
      context.fillRect(x * across, y * down, across, down);
    }));
    const range = most > least ? `${percent(least)} open (clear) to ${percent(most)} (orange)` : `${percent(most)} open everywhere`;
    this.part("which").textContent = name;
    this.part("range").textContent = range;
    canvas.setAttribute("aria-label", `${name}: ${range}`);
    this.part("layer").setAttribute("aria-valuetext", `${name}: ${range}`);
    [...this.part("strip").children].forEach((mark, place) => {
      mark.classList.toggle("shown", this.answer.layers?.[place] === name);
    });
  }
}
