// Draws strokes by mouse, touch, pen and keyboard.
const STEP = 12; // Pixels per press of an arrow key.
const DIRECTIONS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

export class Pen {
  // `ring` marks the pen when the keyboard is used.
  constructor(drawing, ring) {
    this.drawing = drawing;
    this.canvas = drawing.canvas;
    this.ring = ring;
    this.at = { x: this.canvas.width / 2, y: this.canvas.height / 2 };
    this.pointer = null;
    this.pressed = new Set();
    this.enabled = true;
    const { canvas } = this;
    canvas.addEventListener("pointerdown", (event) => this.#start(event));
    canvas.addEventListener("pointermove", (event) => this.#move(event));
    for (const kind of ["pointerup", "pointercancel", "lostpointercapture"]) {
      canvas.addEventListener(kind, (event) => { if (event.pointerId === this.pointer) this.pointer = null; });
    }
    canvas.addEventListener("keydown", (event) => this.#key(event));
    canvas.addEventListener("keyup", (event) => this.#release(event));
    canvas.addEventListener("blur", () => this.#leave());
  }

  // A canvas without a pen only shows images, and is left out of the tab order.
  set draws(value) {
    this.enabled = value;
    this.canvas.classList.toggle("still", !value);
    this.canvas.setAttribute("role", value ? "application" : "img");
    this.canvas.setAttribute("aria-label", value ? "Drawing area" : "Chosen image");
    if (value) this.canvas.tabIndex = 0;
    else this.canvas.removeAttribute("tabindex");
  }

  #start(event) {
    if (!this.enabled || event.button !== 0 || this.pointer !== null) return;
    event.preventDefault();
    this.canvas.focus({ preventScroll: true });
    this.canvas.setPointerCapture(event.pointerId);
    this.pointer = event.pointerId;
    this.#pointed(true);
    this.at = this.#position(event);
    this.drawing.begin(this.at);
  }

  #move(event) {
    if (event.pointerId !== this.pointer) return;
    // A fast stroke has several points between two frames.
    const points = event.getCoalescedEvents?.() ?? [];
    for (const one of points.length ? points : [event]) {
      this.at = this.#position(one);
      this.drawing.extend(this.at);
    }
  }

  #key(event) {
    if (!this.enabled || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape") return this.drawing.clear();
    if (event.key !== " " && !(event.key in DIRECTIONS)) return;
    event.preventDefault();
    this.#pointed(false);
    const fresh = !this.pressed.has(event.key);
    this.pressed.add(event.key);
    if (event.key === " ") {
      if (fresh) this.drawing.begin(this.at);
    } else {
      this.at = this.#next();
      if (this.pressed.has(" ")) this.drawing.extend(this.at);
    }
    this.#showRing();
  }

  // The next point, by all arrow keys that are held: two of them draw diagonally.
  #next() {
    const to = { ...this.at };
    for (const key of this.pressed) {
      const [across, down] = DIRECTIONS[key] ?? [0, 0];
      to.x = Math.min(Math.max(to.x + STEP * across, 0), this.canvas.width);
      to.y = Math.min(Math.max(to.y + STEP * down, 0), this.canvas.height);
    }
    return to;
  }

  #release(event) {
    this.pressed.delete(event.key);
    if (this.canvas.matches(":focus")) this.#showRing();
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

  #showRing() {
    this.ring.hidden = !this.enabled;
    this.ring.classList.toggle("down", this.pressed.has(" "));
    this.ring.style.left = `${(100 * this.at.x) / this.canvas.width}%`;
    this.ring.style.top = `${(100 * this.at.y) / this.canvas.height}%`;
  }

  #position(event) {
    const box = this.canvas.getBoundingClientRect();
    return {
      x: ((event.clientX - box.left) / box.width) * this.canvas.width,
      y: ((event.clientY - box.top) / box.height) * this.canvas.height,
    };
  }
}
