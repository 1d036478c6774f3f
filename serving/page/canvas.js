// The drawing area: strokes by mouse, touch, pen and keyboard, or an image from a file.
const STEP = 12; // Pixels per press of an arrow key.
const WIDTH = 0.075; // Width of a stroke, as a fraction of the side.
const DIRECTIONS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

export class Canvas {
  // `ring` marks the pen when the keyboard is used; `changed` is called after each change.
  constructor(canvas, ring, changed) {
    this.canvas = canvas;
    this.ring = ring;
    this.changed = changed;
    this.context = canvas.getContext("2d");
    this.file = null;
    this.empty = true;
    this.pen = { x: canvas.width / 2, y: canvas.height / 2 };
    this.pointer = null;
    this.pressed = new Set();
    this.drawsNow = true;
    canvas.addEventListener("pointerdown", (event) => this.#start(event));
    canvas.addEventListener("pointermove", (event) => this.#move(event));
    for (const kind of ["pointerup", "pointercancel", "lostpointercapture"]) {
      canvas.addEventListener(kind, (event) => { if (event.pointerId === this.pointer) this.pointer = null; });
    }
    canvas.addEventListener("keydown", (event) => this.#key(event));
    canvas.addEventListener("keyup", (event) => this.#release(event));
    canvas.addEventListener("blur", () => this.#leave());
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

  // Shows an image instead of the drawing; the file itself is sent.
  async show(file) {
    const { context } = this;
    const { width, height } = this.canvas;
    // The endpoint may read formats that the browser cannot.
    const bitmap = await createImageBitmap(file).catch(() => null);
    context.clearRect(0, 0, width, height);
    if (bitmap) {
      const scale = Math.min(width / bitmap.width, height / bitmap.height);
      const [across, down] = [scale * bitmap.width, scale * bitmap.height];
      context.imageSmoothingEnabled = scale < 4;
      context.drawImage(bitmap, (width - across) / 2, (height - down) / 2, across, down);
    } else {
      context.fillStyle = getComputedStyle(this.canvas).color;
      context.font = "24px system-ui, sans-serif";
      context.textAlign = "center";
      context.fillText(file.name, width / 2, height / 2, 0.9 * width);
    }
    this.file = file;
    this.empty = false;
  }

  // The image to send: the chosen file, or the strokes as a PNG on a transparent background; null if there is none.
  async image() {
    if (this.empty) return null;
    return this.file ?? new Promise((done) => this.canvas.toBlob(done, "image/png"));
  }

  #start(event) {
    if (!this.draws || event.button !== 0 || this.pointer !== null) return;
    event.preventDefault();
    this.canvas.focus({ preventScroll: true });
    this.canvas.setPointerCapture(event.pointerId);
    this.pointer = event.pointerId;
    this.#pointed(true);
    this.pen = this.#position(event);
    this.#stroke(this.pen);
  }

  #move(event) {
    if (event.pointerId !== this.pointer) return;
    // A fast stroke has several points between two frames.
    const points = event.getCoalescedEvents?.() ?? [];
    for (const one of points.length ? points : [event]) this.#stroke(this.#position(one));
  }

  #key(event) {
    if (!this.draws || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape") return this.clear();
    if (event.key !== " " && !(event.key in DIRECTIONS)) return;
    event.preventDefault();
    this.#pointed(false);
    const fresh = !this.pressed.has(event.key);
    this.pressed.add(event.key);
    if (event.key === " ") {
      if (fresh) this.#stroke(this.pen);
    } else {
      // All arrow keys that are held: two of them draw diagonally.
      const to = { ...this.pen };
      for (const key of this.pressed) {
        const [across, down] = DIRECTIONS[key] ?? [0, 0];
        to.x = Math.min(Math.max(to.x + STEP * across, 0), this.canvas.width);
        to.y = Math.min(Math.max(to.y + STEP * down, 0), this.canvas.height);
      }
      if (this.pressed.has(" ")) this.#stroke(to);
      this.pen = to;
    }
    this.#showPen();
  }

  #release(event) {
    this.pressed.delete(event.key);
    this.#showPen();
  }

  #leave() {
    this.pressed.clear();
    this.canvas.classList.remove("pointed");
    this.ring.hidden = true;
  }

  // Focus and pen are shown only while the keyboard is used.
  #pointed(value) {
    this.canvas.classList.toggle("pointed", value);
    this.ring.hidden = value;
  }

  #showPen() {
    this.ring.hidden = !this.draws;
    this.ring.classList.toggle("down", this.pressed.has(" "));
    this.ring.style.left = `${(100 * this.pen.x) / this.canvas.width}%`;
    this.ring.style.top = `${(100 * this.pen.y) / this.canvas.height}%`;
  }

  #position(event) {
    const box = this.canvas.getBoundingClientRect();
    return {
      x: ((event.clientX - box.left) / box.width) * this.canvas.width,
      y: ((event.clientY - box.top) / box.height) * this.canvas.height,
    };
  }

  #stroke(to) {
    const { context, canvas } = this;
    // A stroke over an image starts a new drawing.
    if (this.file) context.clearRect(0, 0, canvas.width, canvas.height);
    this.file = null;
    context.strokeStyle = getComputedStyle(canvas).color;
    context.lineWidth = WIDTH * canvas.width;
    context.lineCap = context.lineJoin = "round";
    context.beginPath();
    context.moveTo(this.pen.x, this.pen.y);
    // A line of length zero would not be drawn.
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
