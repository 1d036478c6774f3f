// The request for the shown image as commands to copy.
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
  texts = { curl: curl(target, state, name), python: python(target, name) };
  show();
}

function curl(target, { source }, name) {
  const key = hasKey() ? ' -H "X-API-Key: $HIGHWAY_API_KEY"' : "";
  const download = source ? `curl${key} -o ${quoted(name)} ${quoted(base + source)}\n` : "";
  return `${download}curl${key} -F ${quoted(`picture=@${name}`)} ${quoted(base + path(target, { top: 3 }))}`;
}

function python(target, name) {
  const key = hasKey() ? ', api_key=os.environ["HIGHWAY_API_KEY"]' : "";
  const which = Object.entries(target.which).map(([kind, value]) => `, ${kind}=${kind === "version" ? value : JSON.stringify(value)}`);
  return [
    ...(hasKey() ? ["import os", ""] : []),
    "from serving.client import Client",
    "",
    `with Client(${JSON.stringify(base)}${key}) as client:`,
    `    answer = client.predict(${JSON.stringify(target.name)}, [${JSON.stringify(name)}]${which.join("")})`,
    "    print(answer.predictions[0].top[0])",
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
