// The page of the endpoint: takes an image or a row, sends it, and shows the answers. No library, no resources from other sites.
import { Answer } from "./answer.js";
import { classifyAll, closeTable, onRow } from "./batch.js";
import { closeCamera, onPhoto } from "./camera.js";
import { Choice } from "./choice.js";
import { showCrop } from "./crop.js";
import { find, make } from "./dom.js";
import { Drawing } from "./drawing.js";
import { Refused, ask, classify, onKey } from "./endpoint.js";
import { onFiles } from "./files.js";
import { Pen } from "./pen.js";
import { Row } from "./row.js";
import { showSamples } from "./samples.js";
import { describe, describeRow } from "./snippets.js";
import { remember } from "./visit.js";

const POLL = 5000; // Milliseconds between two requests for the list of models,
const SOON = 500; // and while the endpoint is still loading them.
const LATE = 300; // Milliseconds without an answer after which the one before is marked as such.
const canvas = find("canvas");
const drawing = new Drawing(canvas, redrawn);
const pen = new Pen(drawing, find("pen"));
const row = new Row(() => predict());
const choice = new Choice(choose);
const [first, second] = ["answer", "other"].map((id) => new Answer(find(id)));
let kind = null;
// How an image gets the shape of the input, by kind.
const FITS = {
  natural: "The image is cropped to its centre, in the shape of the net's input; a frame around it is left out.",
  padded: "The whole image is used, with grey bars if its shape is not that of the net's input.",
  squashed: "The whole image is used, squashed to the shape of the net's input.",
};
let asked = "";
// The refusal of the last image or row, until it may be sent again.
let refusal = null;

// Problems with the list of models, the choice and the last image or row, each shown until it is solved.
const problems = { models: "", choice: "", image: "" };

function showProblems() {
  const text = problems.models || problems.choice || problems.image;
  if (find("message").textContent !== text) find("message").textContent = text;
}

async function report(about, work) {
  try {
    await work();
    problems[about] = "";
    showProblems();
  } catch (error) {
    fail(about, error);
  }
}

function fail(about, error) {
  if (!(error instanceof Refused)) throw error;
  problems[about] = error.message;
  if (about === "image") showOld();
  if (about === "image" && error.after && error !== refusal) {
    refusal = error;
    setTimeout(() => {
      refusal = null;
      predict();
    }, 1000 * error.after);
  }
  showProblems();
}

// The answers on the page are not those of the image or row.
function showOld() {
  for (const card of [first, second]) card.showOld();
  showCrop(drawing.state, choice.first);
}

async function list() {
  const [models, all] = await Promise.all([ask("models"), ask("v1/models")]);
  showRefused(all);
  choice.update(models, all);
  if (!all.loading) return;
  setTimeout(() => report("models", list), SOON);
  if (!models.length) throw new Refused("The models are being loaded.");
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
  list.replaceChildren(...lines.map((line) => make("li", { textContent: line })));
}

// Follows the choice of models and versions.
function choose() {
  const target = choice.first;
  problems.choice = choice.problem;
  showProblems();
  document.querySelector("main").hidden = !target;
  const table = target?.columns.length > 0;
  document.querySelector("main").classList.toggle("table", table);
  // Nothing shows the camera any more.
  if (!target || table) closeCamera();
  if (!target) return;
  if (table) row.show(target);
  const draws = target.kind === "digit";
  if (kind !== null && kind !== target.kind) {
    drawing.reset();
    closeTable();
  }
  kind = target.kind;
  pen.draws = draws;
  find("invitation").textContent = draws ? "Draw a digit here,\nor drop or paste an image" : "Drop or paste an image here";
  find("keys").textContent = draws
    ? "Keyboard: arrow keys move the pen, hold the space bar to draw, Escape clears, Ctrl+Z undoes."
    : FITS[kind];
  find("keys").classList.toggle("keyboard", draws);
  find("other").hidden = !choice.second;
  showSamples(table ? null : target, show);
  // Only a version that the table does not have yet needs its images to be sent again.
  const now = `${target.name}/${target.facts.version}/${target.facts.created}`;
  if (asked && asked !== now) classifyAll(target);
  asked = now;
  predict();
}

// Follows the drawing, which the camera would cover.
function redrawn() {
  closeCamera();
  predict();
}

// One request at a time; changes in the meantime are sent afterwards.
let busy = false;
let again = false;

async function predict() {
  find("invitation").hidden = !drawing.empty;
  find("undo").disabled = !drawing.past.length;
  find("clear").disabled = drawing.empty;
  if (busy) {
    again = true;
    return;
  }
  busy = true;
  find("answer").ariaBusy = "true";
  try {
    do {
      again = false;
      await report("image", once);
    } while (again);
  } finally {
    // After an unexpected error, too, the next change is sent.
    busy = false;
    find("answer").ariaBusy = "false";
  }
}

async function once() {
  const cards = [[first, choice.first], [second, choice.second]].filter(([, target]) => target);
  if (!cards.length) return;
  const table = choice.first.columns.length > 0;
  const { state } = drawing;
  if (table) describeRow(choice.first, row.values);
  else describe(choice.first, state, drawing);
  const given = table ? row.values : await drawing.image();
  if (!given) {
    const what = table ? "Fill in the form" : kind === "digit" ? "Draw a digit" : "Choose an image";
    for (const [card, target] of cards) card.showNothing(target, `${what} to see a prediction`);
    showCrop(state, choice.first);
    return;
  }
  // Strokes go on while the endpoint is busy or does not answer.
  if (refusal) throw refusal;
  const late = setTimeout(showOld, LATE);
  const answers = Promise.all(cards.map(([, target]) => classify(target, given, true)));
  const found = await answers.finally(() => clearTimeout(late));
  // Another image may be shown, the form cleared, and another model chosen, in the meantime.
  if (table ? !row.values : drawing.state.subject !== state.subject) return;
  if (cards.some(([card, target]) => target.name !== (card === first ? choice.first : choice.second)?.name)) return;
  // Bars next to each other have the same axis.
  const most = Math.max(...found.flatMap(({ answer }) => answer.predictions[0].gates ?? []));
  cards.forEach(([card, target], place) => card.show(target, found[place].answer, found[place].milliseconds, most));
  if (table) return;
  showCrop(state, choice.first, found[0].answer.predictions[0]);
  const { name } = choice.first;
  remember(canvas, state, choice.first, found[0].answer, (earlier) => {
    // A drawing is nothing for a net that takes photographs.
    choice.use(name);
    drawing.restore(earlier);
  });
}

// Once it is shown, its prediction replaces the problem of the image before.
const show = (file, source) => drawing.show(file, source).catch((error) => fail("image", error));

async function take(files) {
  if (!choice.first || choice.first.columns.length) return;
  if (files.length > 1) classifyAll(choice.first, files);
  await show(files[0]);
}

for (const change of ["clear", "undo"]) {
  find(change).addEventListener("click", (event) => {
    drawing[change]();
    // A disabled button loses the focus.
    if (event.currentTarget.disabled) (kind === "digit" ? canvas : find("pick")).focus();
  });
}
document.addEventListener("keydown", (event) => {
  const undo = (event.ctrlKey || event.metaKey) && !event.shiftKey && event.key.toLowerCase() === "z";
  if (!undo || event.target.matches("input:not([type=range], [type=radio])")) return;
  event.preventDefault();
  drawing.undo();
});
onFiles(take);
onPhoto(take);
onRow(show);
onKey(() => report("models", list));

report("models", list);
// New versions appear without a reload.
setInterval(() => {
  if (!document.hidden && find("key").hidden) report("models", list);
}, POLL);
