// Marks where in an image the net looked: the digits that were found, or the centre of a photograph.
import { find, make } from "./dom.js";

const marks = find("crops");
// Levels by which colours differ, and the side of the square to which an image is reduced to compare them.
const DIFFERENT = 20;
const SIDE = 32;

// Marks what a version saw of an image, the state of a `Drawing`; without a prediction, nothing.
export function showCrop(state, target, prediction) {
  const { left, top, width, height } = state.frame;
  // A frame around the whole image would say nothing.
  const parts = boxes(state, target, prediction).filter(([upper, lower, start, end]) => lower - upper < 1 || end - start < 1);
  marks.replaceChildren(...parts.map(([upper, lower, start, end]) => {
    const mark = make("i");
    const place = { top: top + upper * height, left: left + start * width, height: (lower - upper) * height, width: (end - start) * width };
    for (const [name, value] of Object.entries(place)) mark.style[name] = `${100 * value}%`;
    return mark;
  }));
}

// Top, bottom, left and right of each part, from 0 to 1.
function boxes({ bitmap }, target, prediction) {
  if (!prediction) return [];
  const { kind, shape } = target;
  if (kind !== "natural") return prediction.segments?.map((one) => one.box) ?? [];
  if (!bitmap || mayBeFramed(bitmap)) return [];
  // The largest centred part with the aspect ratio of the input.
  const wanted = (shape[1] / shape[0]) * (bitmap.height / bitmap.width);
  const [down, across] = [Math.min(1, 1 / wanted) / 2, Math.min(1, wanted) / 2];
  return [[0.5 - down, 0.5 + down, 0.5 - across, 0.5 + across]];
}

// Whether the endpoint may have left out a frame: two opposite corners are alike, and other pixels are not. The answer
// does not say where the photograph begins.
function mayBeFramed(bitmap) {
  const context = make("canvas", { width: SIDE, height: SIDE }).getContext("2d");
  context.fillStyle = "white";
  context.fillRect(0, 0, SIDE, SIDE);
  context.drawImage(bitmap, 0, 0, SIDE, SIDE);
  const levels = context.getImageData(0, 0, SIDE, SIDE).data;
  const differs = (at) => [0, 1, 2].some((channel) => Math.abs(levels[at + channel] - levels[channel]) > DIFFERENT);
  const pixels = [...Array(SIDE * SIDE).keys()].map((number) => 4 * number);
  return !differs(pixels.at(-1)) && pixels.some(differs);
}
