// Several files at once, with a table of their answers.
import { find, make } from "./dom.js";
import { Refused, classify, insist, verdict } from "./endpoint.js";
import { inMemory } from "./files.js";

const PARALLEL = 4; // Requests at the same time.
const card = find("batch");
let files = [];
let run = 0;

// Calls `show` with a file whose row is clicked.
export function onRow(show) {
  card.querySelector("tbody").addEventListener("click", (event) => {
    const place = event.target.closest("button")?.dataset.place;
    if (place !== undefined) show(files[place]);
  });
  find("forget").addEventListener("click", closeTable);
}

export function closeTable() {
  run += 1;
  files = [];
  card.hidden = true;
}

// Classifies files, or those of the last call again, as by another version.
export async function classifyAll(target, chosen = files) {
  files = chosen;
  card.hidden = !files.length;
  if (!files.length) return;
  const mine = ++run;
  const rows = files.map(row);
  card.querySelector("tbody").replaceChildren(...rows);
  let done = 0;
  const progress = () => {
    const count = done < files.length ? `${done} of ${files.length} images` : `${files.length} images`;
    card.querySelector("caption").textContent = `${count}, ${target.name}, version ${target.facts.version}`;
  };
  progress();
  const waiting = rows.entries();
  const work = async () => {
    for (const [place, row] of waiting) {
      const found = await answer(target, files[place], mine);
      // The table is closed, or another run has replaced it.
      if (mine !== run) return;
      row.replaceChildren(row.firstChild, ...found);
      done += 1;
      progress();
    }
  };
  await Promise.all(Array.from({ length: PARALLEL }, work));
}

function row(file, place) {
  const name = make("button", { type: "button", className: "link", textContent: file.name });
  name.dataset.place = place;
  return make("tr", {}, make("th", { scope: "row" }, name), make("td", { textContent: "…" }), make("td"));
}

// Asks until there is an answer, or until the table of run `mine` is gone.
async function answer(target, file, mine) {
  try {
    const found = await insist(async () => classify(target, await inMemory(file), false), () => mine === run);
    if (!found) return [];
    const [prediction] = found.answer.predictions;
    const { label, share } = verdict(prediction);
    return [
      make("td", { textContent: label, title: prediction.notice ?? "" }),
      make("td", { className: "number", textContent: share }),
    ];
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    return [make("td", { className: "wrong", colSpan: 2, textContent: error.message })];
  }
}
