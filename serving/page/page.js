// The page of the endpoint: draws, sends, and shows predictions. No library, no resources from other sites.
import { Canvas } from "./canvas.js";
import { show, showNothing, showOld, wanted } from "./answer.js";
import { Refused, ask, onKey } from "./endpoint.js";

const find = (id) => document.getElementById(id);
const [model, version] = ["model", "version"].map(find);
const POLL = 5000; // Milliseconds between two requests for the list of models,
const SOON = 500; // and while the endpoint is still loading them.
const canvas = new Canvas(find("canvas"), find("pen"), () => predict());
let models = null;

// Problems with the list of models and with the last image, each shown until it is solved.
const problems = { models: "", image: "" };

async function report(about, work) {
  try {
    await work();
    problems[about] = "";
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    problems[about] = error.message;
    if (about === "image") showOld();
    if (about === "image" && error.after) setTimeout(predict, 1000 * error.after);
  }
  const message = problems.models || problems.image;
  if (find("message").textContent !== message) find("message").textContent = message;
}

const chosen = () => models?.find((one) => one.name === model.value);

async function list() {
  const [now, all] = await Promise.all([ask("models"), ask("v1/models")]);
  showRefused(all);
  if (JSON.stringify(now) !== JSON.stringify(models)) {
    const before = [model.value, version.value];
    models = now;
    model.replaceChildren(...models.map((one) => new Option(one.name)));
    if (models.some((one) => one.name === before[0])) model.value = before[0];
    model.disabled = version.disabled = document.querySelector("main").hidden = !models.length;
    choose(before[1]);
  }
  if (all.loading) setTimeout(() => report("models", list), SOON);
  if (!models.length) {
    throw new Refused(all.loading ? "The models are being loaded." : "No model is served yet. Export one with `highway export`.");
  }
}

// Refused versions and unreadable folders, each with the reason.
function showRefused({ statuses, wrong }) {
  const versions = Object.entries(statuses).flatMap(([name, all]) =>
    all.filter((one) => one.state === "END").map((one) => `${name}, version ${one.version}: ${one.status.error_message}`));
  const lines = [...Object.values(wrong), ...versions];
  const [summary, list] = find("refused").children;
  find("refused").hidden = !lines.length;
  const folders = Object.keys(wrong).length ? "Some model folders cannot be read" : "";
  const refused = versions.length ? `${versions.length} refused version${versions.length > 1 ? "s" : ""}` : "";
  summary.textContent = [folders, refused].filter(Boolean).join("; ");
  list.replaceChildren(...lines.map((line) => Object.assign(document.createElement("li"), { textContent: line })));
}

function choose(before = "") {
  const one = chosen();
  const labels = Object.entries(one?.labels ?? {}).map(([label, number]) => new Option(`${label} (${number})`, `label=${label}`));
  const numbers = (one?.versions ?? []).map((number) => new Option(number, `version=${number}`));
  version.replaceChildren(new Option("newest", ""), ...labels, ...numbers);
  if ([...version.options].some((option) => option.value === before)) version.value = before;
  const draws = one?.input.pictures === "digit";
  if (draws !== canvas.draws) canvas.clear();
  canvas.draws = draws;
  find("invitation").textContent = draws ? "Draw a digit here,\nor drop or paste an image" : "Drop or paste an image here";
  find("keys").textContent = draws
    ? "Keyboard: arrow keys move the pen, hold the space bar to draw, Escape clears."
    : "Images are cropped to the centre to fit the aspect ratio of the net.";
  predict();
}

// One request at a time; changes in the meantime are sent afterwards.
let busy = false;
let again = false;

async function predict() {
  find("invitation").hidden = !canvas.empty;
  if (busy) {
    again = true;
    return;
  }
  busy = true;
  find("answer").ariaBusy = "true";
  do {
    again = false;
    await report("image", once);
  } while (again);
  busy = false;
  find("answer").ariaBusy = "false";
}

async function once() {
  const one = chosen();
  const image = one && (await canvas.image());
  if (!image) {
    const draws = one?.input.pictures === "digit";
    showNothing(one, !one ? "" : draws ? "Draw a digit to see a prediction" : "Choose an image to see a prediction");
    return;
  }
  const query = new URLSearchParams({ top: wanted(one.classes), seen: true, explain: one.gates });
  const which = version.value && `&${version.value}`;
  const body = new FormData();
  body.append("picture", image, image.name ?? "drawing.png");
  const start = performance.now();
  const answer = await ask(`predict/${encodeURIComponent(one.name)}?${query}${which}`, { method: "POST", body });
  // The canvas may have been cleared in the meantime.
  if (!canvas.empty) show(answer, one, performance.now() - start);
}

async function take(file) {
  if (!file) return;
  await canvas.show(file);
  predict();
}

model.addEventListener("change", () => choose());
version.addEventListener("change", predict);
find("clear").addEventListener("click", () => canvas.clear());
find("pick").addEventListener("click", () => find("file").click());
find("file").addEventListener("change", (event) => {
  take(event.target.files[0]);
  // Allows choosing the same file again.
  event.target.value = "";
});
onKey(() => report("models", list));
document.addEventListener("paste", (event) => take(event.clipboardData.files[0]));
// A file dropped next to the canvas would replace the page.
for (const kind of ["dragenter", "dragover"]) {
  document.addEventListener(kind, (event) => {
    event.preventDefault();
    find("image").classList.add("over");
  });
}
document.addEventListener("dragleave", (event) => {
  if (!event.relatedTarget) find("image").classList.remove("over");
});
document.addEventListener("drop", (event) => {
  event.preventDefault();
  find("image").classList.remove("over");
  take(event.dataTransfer.files[0]);
});

report("models", list);
// New versions appear without a reload.
setInterval(() => {
  if (!document.hidden && find("key").hidden) report("models", list);
}, POLL);
