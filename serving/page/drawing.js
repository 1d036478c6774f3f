// The image to classify: strokes, or an image from a file, with an undo history.
import { inMemory } from "./files.js";

const WIDTH = 0.075; // Width of a stroke, as a fraction of the side.
const REMEMBERED = 200; // Steps that can be undone.
const WHOLE = { left: 0, top: 0, width: 1, height: 1 };
const EMPTY = { subject: 0, strokes: [], file: null, bitmap: null, frame: WHOLE };
let subjects = 0;

// An image no larger than it is shown: the history may hold many.
async function shrunk(image, scale) {
  if (scale >= 1) return image;
  const [resizeWidth, resizeHeight] = [image.width, image.height].map((side) => Math.max(1, Math.round(scale * side)));
  const small = await createImageBitmap(image, { resizeWidth, resizeHeight, resizeQuality: "high" });
  image.close();
  return small;
}

export class Drawing {
  // `changed` is called after each change.
  constructor(canvas, changed) {
    this.canvas = canvas;
    this.changed = changed;
    this.state = EMPTY;
    this.past = [];
    this.stroke = null; // The one being drawn.
    this.turn = 0; // Counts states, and images that are loading.
    // Strokes keep their contrast when the page changes between light and dark.
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.#paint());
  }

  get empty() {
    return !this.state.file && !this.state.strokes.length;
  }

  // Starts a stroke, given as points in pixels of the canvas. A stroke over an image starts a new drawing.
  begin(point) {
    const { file, strokes, subject } = this.state;
    const fresh = file || !strokes.length;
    const stroke = [point];
    this.#keep({ ...EMPTY, strokes: [...(file ? [] : strokes), stroke], subject: fresh ? ++subjects : subject });
    this.stroke = stroke;
  }

  extend(point) {
    // The stroke may have been undone or cleared in the meantime.
    if (!this.stroke) return this.begin(point);
    this.stroke.push(point);
    this.#paint();
    this.changed();
  }

  clear() {
    if (!this.empty) this.#keep(EMPTY);
  }

  undo() {
    if (!this.past.length) return;
    this.#set(this.past.pop());
    this.changed();
  }

  // Returns to an earlier state; can be undone.
  restore(state) {
    if (state !== this.state) this.#keep(state);
  }

  // Forgets everything, as for another kind of image.
  reset() {
    this.past = [];
    this.#set(EMPTY);
  }

  // Shows an image; the file itself is sent. `source` is its address, if it has one.
  async show(chosen, source = "") {
    const turn = ++this.turn;
    const file = await inMemory(chosen);
    // The endpoint may read formats that the browser cannot.
    const whole = await createImageBitmap(file).catch(() => null);
    const longest = whole ? Math.max(whole.width, whole.height) : 1;
    const [width, height] = whole ? [whole.width / longest, whole.height / longest] : [1, 1];
    const frame = { left: (1 - width) / 2, top: (1 - height) / 2, width, height };
    const bitmap = whole && await shrunk(whole, this.canvas.width / longest);
    // Another image was chosen later, or something drawn.
    if (turn !== this.turn) return;
    this.#keep({ ...EMPTY, file, bitmap, frame, source, subject: ++subjects });
  }

  // The image to send: the chosen file, or the strokes as a PNG on a transparent background; null if there is none.
  async image() {
    if (this.empty) return null;
    return this.state.file ?? new Promise((done) => this.canvas.toBlob(done, "image/png"));
  }

  #keep(state) {
    this.past.push(this.state);
    if (this.past.length > REMEMBERED) this.past.shift();
    this.#set(state);
    this.changed();
  }

  #set(state) {
    this.turn += 1;
    this.state = state;
    this.stroke = null;
    this.#paint();
  }

  #paint() {
    const context = this.canvas.getContext("2d");
    const { width, height } = this.canvas;
    const { file, bitmap, frame, strokes } = this.state;
    const colour = getComputedStyle(this.canvas).color;
    context.clearRect(0, 0, width, height);
    if (bitmap) {
      context.imageSmoothingEnabled = bitmap.width * 4 > frame.width * width;
      context.drawImage(bitmap, frame.left * width, frame.top * height, frame.width * width, frame.height * height);
    } else if (file) {
      context.fillStyle = colour;
      context.font = "24px system-ui, sans-serif";
      context.textAlign = "center";
      context.fillText(file.name, width / 2, height / 2, 0.9 * width);
    }
    context.strokeStyle = colour;
    context.lineWidth = WIDTH * width;
    context.lineCap = context.lineJoin = "round";
    for (const stroke of strokes) {
      context.beginPath();
      context.moveTo(stroke[0].x, stroke[0].y);
      // A line of length zero would not be drawn.
      for (const { x, y } of stroke.length > 1 ? stroke.slice(1) : [{ ...stroke[0], x: stroke[0].x + 0.01 }]) {
        context.lineTo(x, y);
      }
      context.stroke();
    }
  }
}
