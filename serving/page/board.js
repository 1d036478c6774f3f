// The drawing area: strokes by mouse, touch, pen and keyboard, or a picture from a file.
const STEP = 12; // Pixels that an arrow key moves the pen.
const WIDTH = 0.075; // Of a stroke, in parts of the side.

export class Board {
  // `changed` is called after each change of what is drawn.
  constructor(canvas, changed) {
    this.canvas = canvas;
    this.changed = changed;
    this.context = canvas.getContext("2d");
    this.file = null;
    this.empty = true;
    this.pen = null;
    this.pointer = null;
    this.down = false;
    this.drawsNow = true;
    canvas.addEventListener("pointerdown", (event) => this.#start(event));
    canvas.addEventListener("pointermove", (event) => this.#move(event));
    for (const kind of ["pointerup", "pointercancel"]) canvas.addEventListener(kind, () => { this.pointer = null; });
    canvas.addEventListener("keydown", (event) => this.#key(event, true));
    canvas.addEventListener("keyup", (event) => this.#key(event, false));
    canvas.addEventListener("blur", () => { this.down = false; });
    // Strokes keep their contrast when the page changes between light and dark.
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.#recolour());
  }

  get draws() {
    return this.drawsNow;
  }

  set draws(value) {
    this.drawsNow = value;
    this.canvas.classList.toggle("still", !value);
  }

  clear() {
    this.context.clearRect(0, 0, this.canvas.width, this.canvas.height);
    this.file = null;
    this.empty = true;
    this.changed();
  }

  // Shows a picture in place of what is drawn; the file itself is what is sent. False if it cannot be shown.
  async show(file) {
    let bitmap;
    try {
      bitmap = await createImageBitmap(file);
    } catch {
      return false;
    }
    const { width, height } = this.canvas;
    const scale = Math.min(width / bitmap.width, height / bitmap.height);
    const [across, down] = [scale * bitmap.width, scale * bitmap.height];
    this.context.clearRect(0, 0, width, height);
    this.context.imageSmoothingEnabled = scale < 4;
    this.context.drawImage(bitmap, (width - across) / 2, (height - down) / 2, across, down);
    this.context.imageSmoothingEnabled = true;
    this.file = file;
    this.empty = false;
    return true;
  }

  // The picture to send: the chosen file, or the strokes as a PNG without paper; null if there is none.
  async picture() {
    if (this.empty) return null;
    return this.file ?? new Promise((done) => this.canvas.toBlob(done, "image/png"));
  }

  #start(event) {
    if (!this.draws || event.button !== 0) return;
    event.preventDefault();
    this.canvas.focus({ preventScroll: true });
    this.canvas.setPointerCapture(event.pointerId);
    this.pointer = event.pointerId;
    this.pen = this.#place(event);
    this.#stroke(this.pen);
  }

  #move(event) {
    if (event.pointerId !== this.pointer) return;
    // Between two frames a fast stroke has several places.
    for (const one of event.getCoalescedEvents?.() ?? [event]) this.#stroke(this.#place(one));
  }

  #key(event, pressed) {
    if (!this.draws) return;
    const way = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    if (event.key === " ") {
      event.preventDefault();
      this.down = pressed;
      this.pen ??= { x: this.canvas.width / 2, y: this.canvas.height / 2 };
      if (pressed && !event.repeat) this.#stroke(this.pen);
    } else if (way && pressed) {
      event.preventDefault();
      const from = this.pen ?? { x: this.canvas.width / 2, y: this.canvas.height / 2 };
      const inside = (value, size) => Math.min(Math.max(value, 0), size);
      const to = {
        x: inside(from.x + STEP * way[0], this.canvas.width),
        y: inside(from.y + STEP * way[1], this.canvas.height),
      };
      if (this.down) this.#stroke(to);
      this.pen = to;
    }
  }

  #place(event) {
    const box = this.canvas.getBoundingClientRect();
    return {
      x: ((event.clientX - box.left) / box.width) * this.canvas.width,
      y: ((event.clientY - box.top) / box.height) * this.canvas.height,
    };
  }

  #stroke(to) {
    if (this.file) this.clear();
    const { context } = this;
    context.strokeStyle = getComputedStyle(this.canvas).color;
    context.lineWidth = WIDTH * this.canvas.width;
    context.lineCap = context.lineJoin = "round";
    context.beginPath();
    context.moveTo(this.pen.x, this.pen.y);
    // A point has no length, and would not be drawn.
    context.lineTo(to.x + (to.x === this.pen.x && to.y === this.pen.y ? 0.01 : 0), to.y);
    context.stroke();
    this.pen = to;
    this.empty = false;
    this.changed();
  }

  #recolour() {
    if (this.empty || this.file) return;
    this.context.save();
    this.context.globalCompositeOperation = "source-in";
    this.context.fillStyle = getComputedStyle(this.canvas).color;
    this.context.fillRect(0, 0, this.canvas.width, this.canvas.height);
    this.context.restore();
  }
}
