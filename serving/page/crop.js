// Marks where in an image the net looked: the digits that were found, or the centre of a photograph.
import { find, make } from "./dom.js";

const marks = find("crops");

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
function boxes({ file, bitmap, frame }, target, prediction) {
  // The browser may not know the shape of a file that only the endpoint can read.
  if (!prediction || (file && !bitmap)) return [];
  const { kind, shape } = target;
  if (kind !== "natural") return prediction.segments?.map((one) => one.box) ?? [];
  if (prediction.crop) return [prediction.crop];
  // Earlier versions do not say: the largest centred part with the aspect ratio of the input.
  const wanted = (shape[1] / shape[0]) * (frame.height / frame.width);
  const [down, across] = [Math.min(1, 1 / wanted) / 2, Math.min(1, wanted) / 2];
  return [[0.5 - down, 0.5 + down, 0.5 - across, 0.5 + across]];
}
