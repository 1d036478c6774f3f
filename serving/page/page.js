// The page of the endpoint: takes an image or a row, sends it, and shows the answers. No library, no resources from other sites.
import { Answer } from "./answer.js";
import { classifyAll, closeTable, onRow } from "./batch.js";
import { closeCamera, onPhoto } from "./camera.js";
import { Choice } from "./choice.js";
import { showCrop } from "./crop.js";
import { find } from "./dom.js";
import { Drawing } from "./drawing.js";
import { Refused } from "./endpoint.js";
import { onFiles } from "./files.js";
import { classifyOrHold } from "./held.js";
import { onKey } from "./key.js";
import { followModels } from "./models.js";
import { Pen } from "./pen.js";
import { fail, report, say } from "./problems.js";
import { Row } from "./row.js";
import { showSamples } from "./samples.js";
import { describe, describeRow } from "./snippets.js";
import { oneAtATime } from "./turns.js";
import { remember } from "./visit.js";

const LATE = 300; // Milliseconds without an answer after which the one before is marked as such,
const PATIENT = 10_000; // and after which the page says that it still waits.
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

// The answers on the page are not those of the image or row.
function showOld() {
  for (const card of [first, second]) card.showOld();
  showCrop(drawing.state, choice.first);
}

// Follows the choice of models and versions.
function choose() {
  const target = choice.first;
  say("choice", choice.problem);
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

const send = oneAtATime(async () => {
  find("answer").ariaBusy = "true";
  try {
    await report("image", once);
  } finally {
    find("answer").ariaBusy = "false";
  }
});

function predict() {
  find("invitation").hidden = !drawing.empty;
  find("undo").disabled = !drawing.past.length;
  find("clear").disabled = drawing.empty;
  return send();
}

// What a request is about: the number of the image; the rows of a form are one.
const subject = () => (choice.first?.columns.length ? "row" : drawing.state.subject);

// Predicts for what is shown, and returns what is wrong with it.
async function once() {
  const cards = [[first, choice.first], [second, choice.second]].filter(([, target]) => target);
  if (!choice.first) return "";
  const table = choice.first.columns.length > 0;
  const { state } = drawing;
  if (table) describeRow(choice.first, row.values);
  else describe(choice.first, state, drawing);
  const given = table ? row.values : await drawing.image();
  if (!given) {
    const what = table ? "Fill in the form" : kind === "digit" ? "Draw a digit" : "Choose an image";
    for (const [card, target] of cards) card.showNothing(target, `${what} to see a prediction`);
    showCrop(state, choice.first);
    return "";
  }
  const about = table ? "row" : state.subject;
  const again = () => { if (subject() === about) predict(); };
  const wait = () => say("image", `No answer for ${PATIENT / 1000} seconds. Still waiting …`);
  const timers = [setTimeout(showOld, LATE), setTimeout(wait, PATIENT)];
  const found = await Promise.allSettled(cards.map(([, target]) => classifyOrHold(about, target, given, again)));
  timers.forEach(clearTimeout);
  const failed = found.filter((one) => one.reason);
  const unexpected = failed.find(({ reason }) => !(reason instanceof Refused));
  if (unexpected) throw unexpected.reason;
  // Another image may be shown, the form cleared, and another model chosen, in the meantime.
  if (table ? !row.values : drawing.state.subject !== state.subject) return "";
  if (cards.some(([card, target]) => target.name !== (card === first ? choice.first : choice.second)?.name)) return "";
  if (failed.length === cards.length) showOld();
  else showAnswers(cards, found.map((one) => one.value), state);
  return complaint(cards, found.map((one) => one.reason?.message));
}

function showAnswers(cards, found, state) {
  // Bars next to each other have the same axis.
  const most = Math.max(...found.flatMap((one) => one?.answer.predictions[0].gates ?? []));
  cards.forEach(([card, target], place) => {
    if (found[place]) card.show(target, found[place].answer, found[place].milliseconds, most);
    else card.showNothing(target, "No answer");
  });
  const [[, target]] = cards;
  if (target.columns.length) return;
  showCrop(state, target, found[0]?.answer.predictions[0]);
  if (!found[0]) return;
  remember(canvas, state, target, found[0].answer, (earlier) => {
    // A drawing is nothing for a net that takes photographs.
    choice.use(target.name);
    drawing.restore(earlier);
  });
}

// What is wrong, and with which of two versions unless it is the same with both.
function complaint(cards, messages) {
  if (messages.every((one) => one === messages[0])) return messages[0] ?? "";
  return cards.map(([, target], place) => messages[place] && `${target.name}, version ${target.facts.version}: ${messages[place]}`)
    .filter(Boolean).join(" ");
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

const refresh = followModels((models, all) => choice.update(models, all));
onKey(() => refresh().then(predict));
