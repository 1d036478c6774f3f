// Sample images of a version, to click.
import { find, make } from "./dom.js";
import { Refused, ask, insist } from "./endpoint.js";

const strip = find("samples");
let shown = "";

const address = ({ name, facts }, number) =>
  `models/${encodeURIComponent(name)}/versions/${facts.version}/samples/${number}.png`;

// Shows the samples of a version; calls `take` with the file and its address.
export async function showSamples(target, take) {
  // A version that was removed and exported again has other images.
  const wanted = target ? `${address(target, 0)} ${target.facts.created}` : "";
  if (wanted === shown) return;
  shown = wanted;
  const labels = target?.facts.samples ?? [];
  strip.parentElement.hidden = !labels.length;
  const buttons = labels.map((label, number) => {
    const text = label ?? `Sample ${number + 1}`;
    return make("button", { type: "button", title: text }, make("img", { alt: text, width: 40, height: 40 }));
  });
  strip.replaceChildren(...buttons);
  await Promise.all(buttons.map(async (button, number) => {
    const place = address(target, number);
    try {
      const blob = await insist(() => ask(place, {}, (response) => response.blob()), () => shown === wanted);
      if (!blob) return;
      const name = `${target.name}-${number}.png`;
      const image = button.firstChild;
      image.src = URL.createObjectURL(blob);
      await image.decode();
      URL.revokeObjectURL(image.src);
      button.addEventListener("click", () => take(new File([blob], name, { type: blob.type }), place));
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      button.remove();
    }
  }));
}
