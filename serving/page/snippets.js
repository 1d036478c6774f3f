// The request for the shown image or row as commands to copy.
import { find } from "./dom.js";
import { path } from "./endpoint.js";
import { hasKey } from "./key.js";

const [code, copied] = ["snippet", "copied"].map(find);
const base = new URL(".", location.href).href;
let texts = { curl: "", python: "" };
let image = null;

const quoted = (text) => `'${text.replaceAll("'", `'\\''`)}'`;

// Describes the request for an image, the state of a `Drawing`, by a version.
export function describe(target, state, drawing) {
  image = drawing;
  const name = state.file?.name ?? (target.kind === "digit" ? "drawing.png" : "photo.jpg");
  // Samples have an address; drawings and photos exist only on this page.
  find("save").hidden = Boolean(state.source) || drawing.empty;
  const given = state.source ? download(state.source) : JSON.stringify(name);
  texts = { curl: curl(target, state, name), python: client(target, `[${given}]`, state.source ? FETCH : []) };
  show();
}

// Describes the request for a row, values by column, by a version.
export function describeRow(target, row) {
  image = null;
  find("save").hidden = true;
  const given = JSON.stringify(row ?? {});
  const body = quoted(`{"rows": [${given}]}`);
  texts = {
    curl: `curl${keyHeader()} -H "Content-Type: application/json" -d ${body} ${quoted(base + path(target, {}))}`,
    python: client(target, `rows=[${given}]`),
  };
  show();
}

// How to print the part of a prediction that answers the question.
function printed({ classes, kind, several }) {
  if (kind === "digit") return ["for digit in answer.predictions[0].segments or []:", "    print(digit.top[0])"];
  return [`print(answer.predictions[0]${several ? ".labels" : classes.length ? ".top[0]" : ".value"})`];
}

// All digits of an image, as on this page.
const each = ({ kind }) => kind === "digit" ? { segments: true } : {};

// A sample is on the endpoint only.
const FETCH = ["from urllib.request import Request, urlopen"];

function download(source) {
  const key = hasKey() ? ', headers={"X-API-Key": os.environ["HIGHWAY_API_KEY"]}' : "";
  return `urlopen(Request(${JSON.stringify(base + source)}${key})).read()`;
}

const keyHeader = () => (hasKey() ? ' -H "X-API-Key: $HIGHWAY_API_KEY"' : "");

function curl(target, { source }, name) {
  const download = source ? `curl${keyHeader()} -o ${quoted(name)} ${quoted(base + source)}\n` : "";
  // curl takes a comma or a semicolon for the end of a name without quotes.
  const part = `picture=@"${name.replaceAll(/["\\]/g, "\\$&")}"`;
  return `${download}curl${keyHeader()} -F ${quoted(part)} ${quoted(base + path(target, { top: 3, ...each(target) }))}`;
}

// Asks for `given` with the Python client, after further imports, and prints the answer.
function client(target, given, imports = []) {
  const key = hasKey() ? ', api_key=os.environ["HIGHWAY_API_KEY"]' : "";
  const which = Object.entries(target.which).map(([kind, value]) => `, ${kind}=${kind === "version" ? value : JSON.stringify(value)}`);
  return [
    ...(hasKey() ? ["import os"] : []),
    ...imports,
    ...(hasKey() || imports.length ? [""] : []),
    "from serving.client import Client",
    "",
    `with Client(${JSON.stringify(base)}${key}) as client:`,
    `    answer = client.predict(${JSON.stringify(target.name)}, ${given}${which.join("")}${target.kind === "digit" ? ", segments=True" : ""})`,
    ...printed(target).map((line) => `    ${line}`),
  ].join("\n");
}

const language = () => document.querySelector("#code input:checked").value;

function show() {
  code.textContent = texts[language()];
  copied.textContent = "";
}

for (const choice of document.querySelectorAll("#code input")) choice.addEventListener("change", show);

find("copy").addEventListener("click", async () => {
  try {
    await navigator.clipboard.writeText(code.textContent);
    copied.textContent = "Copied.";
  } catch {
    // Over plain HTTP, pages may not write to the clipboard.
    getSelection().selectAllChildren(code);
    copied.textContent = "Selected; copy it with Ctrl+C.";
  }
});

find("save").addEventListener("click", async () => {
  const file = await image.image();
  const link = Object.assign(document.createElement("a"), { href: URL.createObjectURL(file), download: file.name ?? "drawing.png" });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
});
