// A card with an answer: the class or value, all probabilities, the input of the net, and the gates of its layers.
import { find, make, percent } from "./dom.js";
import { short, verdict, wanted } from "./endpoint.js";
import { Gates } from "./gates.js";

export class Answer {
  // Fills an empty section with the card.
  constructor(section) {
    section.append(find("card").content.cloneNode(true));
    this.section = section;
    this.gates = new Gates(section);
  }

  part(name) {
    return this.section.querySelector(`.${name}`);
  }

  // Shows the version alone, before there is an image.
  showNothing(target, invitation) {
    this.section.classList.add("empty");
    this.section.classList.remove("old");
    this.#describe(target);
    const [label, share] = this.part("verdict").children;
    [label.textContent, share.textContent] = [invitation, ""];
    this.#notice("");
    this.part("inside").hidden = false;
    this.#rows(target.classes.slice(0, wanted(target.classes)));
    const seen = this.part("seen");
    seen.getContext("2d").clearRect(0, 0, seen.width, seen.height);
    seen.setAttribute("aria-label", "Nothing yet");
    this.gates.showNothing(target);
    this.part("source").textContent = "";
  }

  // Shows an answer; `most` is the largest gate of all cards.
  show(target, answer, milliseconds, most) {
    const [prediction] = answer.predictions;
    this.section.classList.remove("empty", "old");
    this.#describe(target);
    const [label, share] = this.part("verdict").children;
    const said = verdict(prediction, answer.target);
    label.textContent = said.label;
    share.textContent = said.share;
    this.#notice(prediction.notice ?? answer.warnings?.join(" ") ?? "");
    // Of several digits, the net has seen each on its own, and the answer has only the class of each.
    this.part("inside").hidden = !said.share;
    if (said.share) this.#showOne(target, answer, most);
    else this.#showEach(prediction.segments);
    this.part("source").textContent = `Answered by version ${answer.version} in ${Math.round(milliseconds)} ms`;
  }

  #showOne({ classes }, answer, most) {
    const { top = [], labels = [top[0]?.label], seen } = answer.predictions[0];
    const byLabel = new Map(top.map((one) => [one.label, one.probability]));
    // A few classes have a fixed row each.
    const fixed = top.length === classes.length && classes.every((name) => byLabel.has(name));
    const shown = fixed ? classes : top.map((one) => one.label);
    this.#rows(shown).forEach((row, place) => fill(row, byLabel.get(shown[place]), labels.includes(shown[place])));
    if (seen) pixels(this.part("seen"), seen);
    this.gates.show(answer, this.part("seen"), most);
  }

  // Shows the class of each digit, from left to right.
  #showEach(segments) {
    const best = segments.map((one) => one.top[0]);
    const rows = this.#rows(best.map((one) => one.label));
    rows.forEach((row, place) => fill(row, best[place].probability, true));
  }

  // Marks the answer as outdated.
  showOld() {
    this.section.classList.add("old");
    if (!this.section.classList.contains("empty")) this.part("source").textContent = "This was the answer before.";
  }

  #describe({ name, facts, columns, predicted, several }) {
    this.part("several").hidden = !several;
    this.part("title").textContent = `${name}, version ${facts.version}`;
    // The input of a row is the form.
    this.part("seen").parentElement.hidden = columns.length > 0;
    const count = facts.test_images?.toLocaleString("en") ?? "the";
    const tested = `test ${columns.length ? "rows" : "images"}${facts.data ? ` of ${facts.data}` : ""}`;
    const quality = facts.test_accuracy !== null ? `${percent(facts.test_accuracy)} right on ${count} ${tested}`
      : facts.test_map !== null ? `Mean average precision ${percent(facts.test_map)} on ${count} ${tested}`
      : facts.test_mae !== null ? `Off by ${short(facts.test_mae)} on average on ${count} ${tested}${facts.test_r2 === null ? "" : `, R² ${facts.test_r2.toFixed(3)}`}`
      : `Not evaluated on ${tested}`;
    const bytes = facts.size < 1e6 ? `${Math.ceil(facts.size / 1e3)}\u00a0kB` : `${(facts.size / 1e6).toFixed(1)}\u00a0MB`;
    const size = `${facts.parameters.toLocaleString("en")} weights, ${bytes}`;
    const day = new Date(facts.created).toLocaleDateString("en-GB", { day: "numeric", month: "long", year: "numeric" });
    const purpose = predicted ? `Predicts ${predicted} from ${columns.length} columns. ` : "";
    this.part("facts").textContent = `${purpose}${quality}; ${facts.net}, ${size}; exported on ${day}`;
  }

  #notice(text) {
    const notice = this.part("notice");
    notice.hidden = !text;
    if (notice.textContent !== text) notice.textContent = text;
  }

  // One row per label; existing rows are reused, so that their bars move.
  #rows(labels) {
    const bars = this.part("bars");
    while (bars.children.length > labels.length) bars.lastChild.remove();
    while (bars.children.length < labels.length) {
      const track = make("span", { className: "track" }, make("i", { className: "bar" }));
      bars.append(make("li", {}, make("span", { className: "name" }), track, make("span", { className: "share" })));
    }
    const longest = Math.max(1, ...labels.map((label) => label.length));
    bars.style.setProperty("--name", `min(${0.6 * longest + 0.4}em, 38%)`);
    return labels.map((label, place) => {
      const row = bars.children[place];
      row.firstChild.textContent = label;
      fill(row, 0, false, "");
      return row;
    });
  }
}

function fill(row, share, first, text = percent(share)) {
  row.className = first ? "first" : "";
  row.querySelector(".bar").style.width = `${100 * share}%`;
  row.lastChild.textContent = text;
}

function pixels(canvas, seen) {
  [canvas.height, canvas.width] = [seen.length, seen[0].length];
  const image = new ImageData(canvas.width, canvas.height);
  seen.flat().forEach((channels, place) => {
    const [red, green = red, blue = red] = channels;
    image.data.set([red, green, blue, 255], 4 * place);
  });
  canvas.getContext("2d").putImageData(image, 0, 0);
  canvas.setAttribute("aria-label", `${canvas.width} by ${canvas.height} pixels`);
}
