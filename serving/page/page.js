// The page of the endpoint: draws, sends, and shows what comes back. No library, nothing from elsewhere.
import { Board } from "./board.js";

const find = (id) => document.getElementById(id);
const [model, version, bars, message] = ["model", "version", "bars", "message"].map(find);
const board = new Board(find("canvas"), () => ask());
const SHOWN = 10;
const MANY = 120; // Layers from which there is no room for gaps between them.
let models = [];

class Refused extends Error {}

async function fetched(path, options = {}) {
  const key = sessionStorage.getItem("key");
  const headers = { ...options.headers, ...(key && { "X-API-Key": key }) };
  let answer;
  try {
    answer = await fetch(path, { ...options, headers });
  } catch {
    throw new Refused("The endpoint does not answer. Is it still running?");
  }
  find("key").hidden = answer.status !== 401;
  const body = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Refused(body.error ?? `The endpoint answered ${answer.status}.`);
  return body;
}

async function guarded(work) {
  try {
    await work();
    message.textContent = "";
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    message.textContent = error.message;
    bars.classList.add("old");
  }
}

const chosen = () => models.find((one) => one.name === model.value);

async function list() {
  models = await fetched("models");
  const before = [model.value, version.value];
  model.replaceChildren(...models.map((one) => new Option(one.name)));
  if (models.some((one) => one.name === before[0])) model.value = before[0];
  if (!models.length) throw new Refused("No model is served yet. Export one with `highway export`.");
  choose(before[1]);
}

function choose(before = "") {
  const one = chosen();
  const labels = Object.entries(one.labels).map(([label, number]) => new Option(`${label} (${number})`, `label=${label}`));
  const numbers = one.versions.map((number) => new Option(number, `version=${number}`));
  version.replaceChildren(new Option("newest", ""), ...labels, ...numbers);
  if ([...version.options].some((option) => option.value === before)) version.value = before;
  const draws = one.input.pictures === "digit";
  if (draws !== board.draws) board.clear();
  board.draws = draws;
  find("hint").textContent = draws
    ? "Write a digit here, or drop, paste or choose a picture."
    : "Drop, paste or choose a picture.";
}

// One request at a time; what was drawn meanwhile is sent when it is back.
let asking = false;
let again = false;

async function ask() {
  if (asking) {
    again = true;
    return;
  }
  asking = true;
  do {
    again = false;
    await guarded(once);
  } while (again);
  asking = false;
}

async function once() {
  const picture = await board.picture();
  if (!picture) return show(null);
  const one = chosen();
  const query = new URLSearchParams({ top: SHOWN, seen: true, explain: one.gates });
  const which = version.value && `&${version.value}`;
  const form = new FormData();
  form.append("picture", picture);
  const answer = await fetched(`predict/${encodeURIComponent(one.name)}?${query}${which}`, { method: "POST", body: form });
  show(answer);
}

function show(answer) {
  find("inside").hidden = !answer;
  bars.classList.remove("old");
  if (!answer) return bars.replaceChildren();
  const [{ top, seen, gates }] = answer.predictions;
  bars.replaceChildren(...top.map(bar));
  const shape = chosen().input.shape;
  if (seen.length === shape[0]) pixels(find("seen"), seen);
  find("route").hidden = !gates;
  if (gates) route(find("gates"), gates, answer.layers);
}

function bar({ label, probability }) {
  const row = document.createElement("li");
  const share = `${(100 * probability).toFixed(1)} %`;
  for (const [kind, text] of [["name", label], ["bar", ""], ["share", share]]) {
    const part = document.createElement("span");
    part.className = kind;
    part.textContent = text;
    row.append(part);
  }
  row.children[0].title = label;
  row.children[1].style.width = `${100 * probability}%`;
  return row;
}

function pixels(canvas, rows) {
  [canvas.height, canvas.width] = [rows.length, rows[0].length];
  const image = new ImageData(canvas.width, canvas.height);
  rows.flat().forEach((channels, place) => {
    const [red, green, blue] = channels.length === 3 ? channels : [channels[0], channels[0], channels[0]];
    image.data.set([red, green, blue, 255], 4 * place);
  });
  canvas.getContext("2d").putImageData(image, 0, 0);
}

function route(strip, gates, names) {
  const most = Math.max(...gates);
  const caption = `how open each layer's gates were, up to ${most.toPrecision(2)}`;
  strip.classList.toggle("many", gates.length > MANY);
  strip.setAttribute("aria-label", `${caption}, over ${gates.length} layers`);
  find("layer").textContent = caption;
  strip.replaceChildren(...gates.map((gate, place) => {
    const mark = document.createElement("i");
    mark.style.height = `${(100 * gate) / most}%`;
    mark.title = `${names[place]}: ${gate.toPrecision(2)}`;
    return mark;
  }));
}

async function take(file) {
  if (!file) return;
  await guarded(async () => {
    if (!(await board.show(file))) throw new Refused("The browser cannot show this file. Choose a PNG or JPEG picture.");
  });
  ask();
}

model.addEventListener("change", () => { choose(); ask(); });
version.addEventListener("change", ask);
find("clear").addEventListener("click", () => board.clear());
find("pick").addEventListener("click", () => find("file").click());
find("file").addEventListener("change", (event) => { take(event.target.files[0]); event.target.value = ""; });
find("key").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem("key", event.target.querySelector("input").value);
  guarded(list).then(ask);
});
document.addEventListener("paste", (event) => {
  take([...event.clipboardData.files].find((file) => file.type.startsWith("image/")));
});
const area = find("picture");
for (const kind of ["dragenter", "dragover"]) {
  area.addEventListener(kind, (event) => { event.preventDefault(); area.classList.add("over"); });
}
area.addEventListener("dragleave", () => area.classList.remove("over"));
area.addEventListener("drop", (event) => {
  event.preventDefault();
  area.classList.remove("over");
  take(event.dataTransfer.files[0]);
});

guarded(list);
// New versions appear by themselves.
setInterval(() => { if (!document.hidden && document.activeElement !== model && document.activeElement !== version) guarded(list); }, 5000);
