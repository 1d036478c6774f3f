// The choice of a model, a version and another one to compare with, which is kept in the address of the page.
import { find } from "./dom.js";

const [model, version, against] = ["model", "version", "against"].map(find);
const REFUSED = "END"; // State of a refused version.

// The input of a model: a kind of image, or rows with certain columns.
const kindOf = ({ pictures, columns }) => columns.length ? JSON.stringify(columns.map(({ name }) => name)) : pictures;

// A version to ask: `which` is its part of the query; `facts` and `classes` describe it; images have no `columns`.
function target(one, which = {}) {
  // Numbers, or strings where JavaScript would round them.
  const number = String(which.label ? one.labels[which.label] : which.version ?? one.versions[0]);
  const facts = one.facts.find((fact) => String(fact.version) === number);
  if (!facts) return undefined;
  // What is as in the newest version is left out.
  const { input = one.input, classes = one.classes, multi_label: several = one.multi_label } = facts;
  const { shape, columns, target: predicted } = input;
  return { name: one.name, which, facts, classes, several, kind: kindOf(input), shape, columns, predicted };
}

// The name of a version in the address of the page.
const nameOf = ({ name, facts }) => `${name}/${facts.version}`;

const options = (pairs) => pairs.map(([text, value]) => new Option(text, value));

// What a choice like `label=stable` names, and the name.
const pair = (text) => /^(label|version)=(.*)$/s.exec(text)?.slice(1) ?? [];

function set(select, choices, value) {
  select.replaceChildren(...choices);
  // A choice that is not offered stays visible: the page then says why it cannot be had.
  if (![...select.options].some((option) => option.value === value)) select.append(new Option(pair(value)[1] ?? value, value));
  select.value = value;
}

export class Choice {
  // `changed` is called after each change of the choice, and when versions come or go.
  constructor(changed) {
    this.changed = changed;
    this.models = [];
    this.states = {};
    this.known = "";
    this.lost = ""; // A version to compare with that is not offered.
    const address = new URLSearchParams(location.search);
    const label = address.get("label");
    this.wanted = {
      model: address.get("model") ?? "",
      version: address.has("version") ? `version=${address.get("version")}` : label ? `label=${label}` : "",
      against: address.get("against") ?? "",
    };
    this.named = address.has("model");
    model.addEventListener("change", () => this.#choose({ model: model.value, version: "", against: "" }));
    version.addEventListener("change", () => this.#choose({ version: version.value }));
    against.addEventListener("change", () => this.#choose({ against: against.value }));
  }

  // Takes the lists of served models and of the states of all versions.
  update(models, { statuses, loading }) {
    const now = JSON.stringify([models, statuses, loading]);
    if (now === this.known) return;
    [this.models, this.states, this.loading, this.known] = [models, statuses, loading, now];
    // The first served model, unless the address or the user names another, or one has been shown: a model that is gone
    // for a moment, as while the endpoint restarts, keeps its image.
    if (!this.named && !models.some((one) => one.name === this.wanted.model)) {
      this.wanted.model = models[0]?.name ?? Object.keys(statuses)[0] ?? "";
    }
    this.#show();
  }

  get first() {
    const one = this.models.find((each) => each.name === this.wanted.model);
    const [kind, value] = pair(this.wanted.version);
    return one && target(one, value ? { [kind]: value } : {});
  }

  get second() {
    const [name, number] = this.wanted.against.split("/");
    const one = this.models.find((each) => each.name === name);
    return one && target(one, number ? { version: number } : {});
  }

  // Why there is nothing to ask: a model or version that does not exist is not the same as one that cannot be loaded.
  get problem() {
    const { model: name, version: which } = this.wanted;
    const states = this.states[name];
    if (!name) return this.loading ? "" : "No model is served yet. Export one with `highway export`.";
    const [other, missing] = this.lost.split("/");
    if (this.first) {
      if (!missing) return "";
      const served = this.models.find((one) => one.name === other)?.versions.some((number) => String(number) === missing);
      const reason = this.lost === nameOf(this.first) ? "is the chosen version itself"
        : served ? "takes another kind of input" : "is not served";
      return `Cannot compare with “${other}”, version ${missing}: it ${reason}.`;
    }
    if (!states) return this.loading ? "The models are being loaded." : `There is no model “${name}” here. Choose another one.`;
    const [kind, value] = pair(which);
    const { labels } = this.models.find((one) => one.name === name) ?? {};
    if (kind === "label" && labels && !Object.hasOwn(labels, value)) {
      return `Model “${name}” has no label “${value}”. Choose another version.`;
    }
    // Without a served version, its labels are not known.
    const number = kind === "label" ? labels && String(labels[value]) : value;
    const state = states.find((one) => one.version === number);
    if (number && !state) return `Model “${name}” does not serve version ${number}. Choose another one.`;
    const refused = (state ? [state] : states).filter((one) => one.state === REFUSED);
    if (!refused.length) return `Model “${name}” is being loaded.`;
    const reasons = refused.map((one) => `Version ${one.version} was refused: ${one.status.error_message}`);
    return `Model “${name}” is here, but ${state ? `version ${number} cannot` : "none of its versions can"} be served. ${reasons.join(" ")}`;
  }

  // Chooses a served model, unless it is chosen already.
  use(name) {
    const served = this.models.some((one) => one.name === name);
    if (served && name !== this.wanted.model) this.#choose({ model: name, version: "", against: "" });
  }

  #choose(change) {
    Object.assign(this.wanted, change);
    this.named = true;
    this.lost = "";
    this.#show();
  }

  #show() {
    const { models, states, wanted } = this;
    const one = models.find((each) => each.name === wanted.model);
    const { first } = this;
    if (first) this.named = true;
    const damaged = Object.keys(states).filter((name) => !models.some((each) => each.name === name));
    const names = [...models.map((each) => [each.name, each.name]), ...damaged.map((name) => [`${name} (not served)`, name])];
    set(model, options(names), wanted.model);
    const labels = Object.entries(one?.labels ?? {}).map(([label, number]) => [`${label} (${number})`, `label=${label}`]);
    const numbers = (one?.versions ?? []).map((number) => [number, `version=${number}`]);
    set(version, options([["newest", ""], ...labels, ...numbers]), wanted.version);
    const others = models.flatMap((each) => each.versions.map((number) => target(each, { version: number })));
    const offered = others.filter((each) => first && each?.kind === first.kind && nameOf(each) !== nameOf(first))
      .map((each) => [`${each.name}, version ${each.facts.version}`, nameOf(each)]);
    if (first && !this.loading && wanted.against && !offered.some(([, value]) => value === wanted.against)) {
      [this.lost, wanted.against] = [wanted.against, ""];
    }
    set(against, options([["nothing", ""], ...offered]), wanted.against);
    model.disabled = !names.length;
    version.disabled = !one;
    against.disabled = !offered.length;
    this.#address();
    this.changed();
  }

  #address() {
    const [kind, value] = pair(this.wanted.version);
    const { model: name, against: other } = this.wanted;
    const query = new URLSearchParams({ ...(name && { model: name }), ...(value && { [kind]: value }), ...(other && { against: other }) });
    history.replaceState(null, "", `${location.pathname}${query.size ? `?${query}` : ""}`);
  }
}
