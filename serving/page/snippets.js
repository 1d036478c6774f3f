// The request for the shown image or row as commands to copy.
import { find } from "./dom.js";
import { hasKey, path } from "./endpoint.js";

const [code, copied] = ["snippet", "copied"].map(find);
const base = new URL(".", location.href).href;
let texts = { curl: "", python: "" };
let image = null;

const quoted = (text) => `'${text.replaceAll("'", `'\\''`)}'`;

// Describes the request for an image, the state of a `Drawing`, by a version.
export function describe(target, state, drawing) {
  image = drawing;
  const name = state.file?.name ?? "drawing.png";
  // Samples have an address; drawings and photos exist only on this page.
  find("save").hidden = Boolean(state.source) || drawing.empty;
  texts = { curl: curl(target, state, name), python: client(target, `[${JSON.stringify(name)}]`, answered(target)) };
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
    python: client(target, `rows=[${given}]`, answered(target)),
  };
  show();
}

// The part of a prediction that answers the question.
const answered = ({ classes, several }) => several ? ".labels" : classes.length ? ".top[0]" : ".value";

const keyHeader = () => (hasKey() ? ' -H "X-API-Key: $HIGHWAY_API_KEY"' : "");

function curl(target, { source }, name) {
  const download = source ? `curl${keyHeader()} -o ${quoted(name)} ${quoted(base + source)}\n` : "";
  return `${download}curl${keyHeader()} -F ${quoted(`picture=@${name}`)} ${quoted(base + path(target, { top: 3 }))}`;
}

// Asks for `given` with the Python client, and prints a `part` of the prediction.
function client(target, given, part) {
  const key = hasKey() ? ', api_key=os.environ["HIGHWAY_API_KEY"]' : "";
  const which = Object.entries(target.which).map(([kind, value]) => `, ${kind}=${kind === "version" ? value : JSON.stringify(value)}`);
  return [
    ...(hasKey() ? ["import os", ""] : []),
    "from serving.client import Client",
    "",
    `with Client(${JSON.stringify(base)}${key}) as client:`,
    `    answer = client.predict(${JSON.stringify(target.name)}, ${given}${which.join("")})`,
    `    print(answer.predictions[0]${part})`,
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
