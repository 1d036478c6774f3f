// The page of the endpoint: draws, sends, and shows what comes back. No library, nothing from elsewhere.
import { Board } from "./board.js";
import { show, showNothing, showOld, wanted } from "./answer.js";
import { Refused, ask, onKey } from "./endpoint.js";

const find = (id) => document.getElementById(id);
const [model, version] = ["model", "version"].map(find);
const LOOK = 5000; // Milliseconds between two looks at what is served,
const SOON = 500; // and while the endpoint is still loading it.
const board = new Board(find("canvas"), find("pen"), () => predict());
let models = null;

// What is wrong with the models, and with the last picture: each is told until it is over.
const wrong = { models: "", picture: "" };

async function told(about, work) {
  try {
    await work();
    wrong[about] = "";
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    wrong[about] = error.message;
    if (about === "picture") showOld();
    if (about === "picture" && error.after) setTimeout(predict, 1000 * error.after);
  }
  const said = wrong.models || wrong.picture;
  if (find("message").textContent !== said) find("message").textContent = said;
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
  if (all.loading) setTimeout(() => told("models", list), SOON);
  if (!models.length) {
    throw new Refused(all.loading ? "The models are being loaded." : "No model is served yet. Export one with `highway export`.");
  }
}

// Versions that were refused, and folders that cannot be read, each with the reason.
function showRefused({ statuses, wrong }) {
  const versions = Object.entries(statuses).flatMap(([name, all]) =>
    all.filter((one) => one.state === "END").map((one) => `${name}, version ${one.version}: ${one.status.error_message}`));
  const lines = [...Object.values(wrong), ...versions];
  const [summary, list] = find("refused").children;
  find("refused").hidden = !lines.length;
  const folders = Object.keys(wrong).length ? "Not all folders of models can be read" : "";
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
  if (draws !== board.draws) board.clear();
  board.draws = draws;
  find("invitation").textContent = draws ? "Draw a digit here,\nor drop or paste a picture" : "Drop or paste a picture here";
  find("keys").textContent = draws
    ? "By keyboard: arrow keys move the pen, with the space bar held they draw, Escape clears."
    : "Of other shapes than the net's the middle is taken.";
  predict();
}

// One request at a time; what was drawn meanwhile is sent when it is back.
let asking = false;
let again = false;

async function predict() {
  find("invitation").hidden = !board.empty;
  if (asking) {
    again = true;
    return;
  }
  asking = true;
  find("answer").ariaBusy = "true";
  do {
    again = false;
    await told("picture", once);
  } while (again);
  asking = false;
  find("answer").ariaBusy = "false";
}

async function once() {
  const one = chosen();
  const picture = one && (await board.picture());
  if (!picture) {
    const draws = one?.input.pictures === "digit";
    showNothing(one, !one ? "" : draws ? "Draw a digit to see what the net makes of it" : "Give the net a picture");
    return;
  }
  const query = new URLSearchParams({ top: wanted(one.classes), seen: true, explain: one.gates });
  const which = version.value && `&${version.value}`;
  const body = new FormData();
  body.append("picture", picture, picture.name ?? "drawing.png");
  const start = performance.now();
  const answer = await ask(`predict/${encodeURIComponent(one.name)}?${query}${which}`, { method: "POST", body });
  // It may have been cleared meanwhile.
  if (!board.empty) show(answer, one, performance.now() - start);
}

async function take(file) {
  if (!file) return;
  await board.show(file);
  predict();
}

model.addEventListener("change", () => choose());
version.addEventListener("change", predict);
find("clear").addEventListener("click", () => board.clear());
find("pick").addEventListener("click", () => find("file").click());
find("file").addEventListener("change", (event) => {
  take(event.target.files[0]);
  // So that the same file can be chosen again.
  event.target.value = "";
});
onKey(() => told("models", list));
document.addEventListener("paste", (event) => take(event.clipboardData.files[0]));
// Dropped beside the board, a file would replace the page.
for (const kind of ["dragenter", "dragover"]) {
  document.addEventListener(kind, (event) => {
    event.preventDefault();
    find("picture").classList.add("over");
  });
}
document.addEventListener("dragleave", (event) => {
  if (!event.relatedTarget) find("picture").classList.remove("over");
});
document.addEventListener("drop", (event) => {
  event.preventDefault();
  find("picture").classList.remove("over");
  take(event.dataTransfer.files[0]);
});

told("models", list);
// New versions appear by themselves.
setInterval(() => {
  if (!document.hidden && find("key").hidden) told("models", list);
}, LOOK);
