// The form for a row of a table: a field per column, and sample rows to click.
import { find, make } from "./dom.js";

const [form, fields, samples] = ["row", "fields", "rows"].map(find);
const DATES = { day: "date", time: "datetime-local" };
const SHORTENED = { date: 10, "datetime-local": 19 }; // Characters of a date that its field takes.
// Not `form.elements`, which is the field of a column of that name.
const inputs = () => [...fields.querySelectorAll("[name]")];

export class Row {
  // `changed` is called after each change.
  constructor(changed) {
    this.changed = changed;
    this.columns = "";
    this.samples = "";
    // Numbers are predicted while they are typed; some browsers report the choice of a category only afterwards.
    for (const kind of ["input", "change"]) form.addEventListener(kind, changed);
    form.addEventListener("submit", (event) => event.preventDefault());
    find("empty").addEventListener("click", () => this.#fill({}));
  }

  // Shows the columns and samples of a version. The same columns keep their values.
  show({ columns, facts }) {
    const [now, offered] = [JSON.stringify(columns), JSON.stringify([facts.rows, facts.samples])];
    if (now !== this.columns) fields.replaceChildren(...columns.map(field));
    if (offered !== this.samples) {
      samples.parentElement.hidden = !facts.rows.length;
      samples.replaceChildren(...facts.rows.map((row, place) => {
        const title = Object.entries(row).map(([name, value]) => `${name}: ${value ?? "missing"}`).join("\n");
        const button = make("button", { type: "button", title, textContent: facts.samples[place] ?? `Sample ${place + 1}` });
        button.addEventListener("click", () => this.#fill(row));
        return button;
      }));
    }
    [this.columns, this.samples] = [now, offered];
  }

  // Values by column, without missing ones; null if all are missing.
  get values() {
    const given = inputs().filter((one) => one.value !== "");
    const values = given.map((one) => [one.name, one.type === "number" ? one.valueAsNumber : one.value]);
    return values.length ? Object.fromEntries(values) : null;
  }

  #fill(row) {
    for (const one of inputs()) one.value = String(row[one.name] ?? "").slice(0, SHORTENED[one.type]);
    this.changed();
  }
}

function field({ name, categories, date }) {
  const input = categories
    ? make("select", { name }, new Option("missing", ""), ...categories.map((one) => new Option(one, one)))
    : make("input", { name, type: DATES[date] ?? "number", step: date === "time" ? "1" : "any", placeholder: "missing" });
  return make("label", {}, make("span", { textContent: name }), input);
}
