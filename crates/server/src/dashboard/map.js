// A plain map without tiles: degrees as they are, narrowed by the latitude, with a graticule.

import { colour, h } from "./dom.js";
import { count, counted } from "./units.js";

const METRES_PER_DEGREE = 111_195;

/** Steps of the graticule are one of these, times a power of ten. */
const STEPS = [1, 2, 5, 10];

/** How near the pointer must be to a point, in pixels. */
const NEAR = 10;

function step(span, lines) {
  const power = 10 ** Math.floor(Math.log10(span / lines));
  return power * (STEPS.find((one) => span / (one * power) <= lines) ?? 10);
}

export class PlotMap {
  #points = [];
  #boxes = [];
  #outline = [];
  /** The centre, and degrees of latitude a pixel. */
  #view = { x: 0, y: 0, scale: 0.5 };
  /** True once a person has moved the map: it stays where it is then. */
  #isMoved = false;

  constructor(host, { label, height = 420 }) {
    this.label = label;
    this.isPlane = false;
    this.canvas = h("canvas", { role: "img", "aria-label": label });
    this.under = h("p", { class: "map-under", hidden: true });
    const button = (text, name, act) => h("button", { type: "button", class: "small", "aria-label": name, title: name, onclick: act }, text);
    const tools = h("div", { class: "map-tools" },
      button("+", "Zoom in", () => this.#zoom(0.6)),
      button("−", "Zoom out", () => this.#zoom(1 / 0.6)),
      button("Fit", "Fit: show everything", () => this.fit()));
    this.frame = h("div", { class: "map", tabindex: 0, role: "group", "aria-label": `${label}: arrow keys move, plus and minus zoom` },
      this.canvas, tools, this.under);
    this.frame.style.setProperty("block-size", `${height}px`);
    host.append(this.frame);
    this.#listen();
    new ResizeObserver(() => this.draw()).observe(this.frame);
    addEventListener("esker-theme", () => this.draw());
  }

  /** Points are `{x, y, text, strength, trail}`; strength from 0 to 1. */
  setPoints(points) {
    this.#points = points;
    this.#show();
  }

  setBoxes(boxes) {
    this.#boxes = boxes;
    this.#show();
  }

  /** A line around an area: its corners. */
  setOutline(corners) {
    this.#outline = corners;
    this.draw();
  }

  /** Draws; what lies beyond the frame is brought into it. */
  #show() {
    const { width, height } = this.#size();
    const isBeyond = ([px, py]) => px < 0 || py < 0 || px > width || py > height;
    const corners = this.#boxes.flatMap(({ west, south, east, north }) => [[west, south], [east, north]]);
    const places = [...this.#points.map(({ x, y }) => [x, y]), ...corners];
    if (!this.#isMoved && width > 0 && places.some(([x, y]) => isBeyond(this.#pixel(x, y)))) this.fit();
    else this.draw();
  }

  /** Shows everything. */
  fit() {
    this.#isMoved = false;
    const corners = this.#outline.map(([x, y]) => ({ x, y }));
    const places = [...this.#points, ...corners];
    const xs = [...places.map(({ x }) => x), ...this.#boxes.flatMap(({ west, east }) => [west, east])];
    const ys = [...places.map(({ y }) => y), ...this.#boxes.flatMap(({ south, north }) => [south, north])];
    if (xs.length === 0) return;
    const least = (all) => all.reduce((a, b) => Math.min(a, b));
    const most = (all) => all.reduce((a, b) => Math.max(a, b));
    const [west, east, south, north] = [least(xs), most(xs), least(ys), most(ys)];
    this.#view.x = (west + east) / 2;
    this.#view.y = (south + north) / 2;
    const { width, height } = this.#size();
    const wide = ((east - west) * this.#narrowing()) / Math.max(width - 80, 40);
    const high = (north - south) / Math.max(height - 80, 40);
    this.#view.scale = Math.max(wide, high, 1e-6);
    this.draw();
  }

  #size() {
    return { width: this.frame.clientWidth, height: this.frame.clientHeight };
  }

  /** A degree of longitude is so much shorter than one of latitude. */
  #narrowing() {
    if (this.isPlane) return 1;
    return Math.max(Math.cos((Math.min(Math.abs(this.#view.y), 80) * Math.PI) / 180), 0.1);
  }

  #zoom(by, at) {
    this.#isMoved = true;
    const { width, height } = this.#size();
    const [px, py] = at ?? [width / 2, height / 2];
    const before = this.#place(px, py);
    this.#view.scale = Math.min(Math.max(this.#view.scale * by, 1e-7), this.isPlane ? Infinity : 2);
    const after = this.#place(px, py);
    this.#view.x += before[0] - after[0];
    this.#view.y += before[1] - after[1];
    this.draw();
  }

  #move(dx, dy) {
    this.#isMoved = true;
    this.#view.x -= (dx * this.#view.scale) / this.#narrowing();
    this.#view.y += dy * this.#view.scale;
    this.draw();
  }

  #pixel(x, y) {
    const { width, height } = this.#size();
    return [
      width / 2 + ((x - this.#view.x) * this.#narrowing()) / this.#view.scale,
      height / 2 - (y - this.#view.y) / this.#view.scale,
    ];
  }

  #place(px, py) {
    const { width, height } = this.#size();
    return [
      this.#view.x + ((px - width / 2) * this.#view.scale) / this.#narrowing(),
      this.#view.y - (py - height / 2) * this.#view.scale,
    ];
  }

  #listen() {
    const keys = {
      ArrowLeft: () => this.#move(40, 0), ArrowRight: () => this.#move(-40, 0),
      ArrowUp: () => this.#move(0, 40), ArrowDown: () => this.#move(0, -40),
      "+": () => this.#zoom(0.6), "-": () => this.#zoom(1 / 0.6), 0: () => this.fit(),
    };
    this.frame.addEventListener("keydown", (event) => {
      const act = event.ctrlKey || event.metaKey || event.altKey ? undefined : keys[event.key];
      if (!act || event.target !== this.frame) return;
      event.preventDefault();
      act();
    });
    let dragged;
    this.canvas.addEventListener("pointerdown", (event) => {
      dragged = [event.clientX, event.clientY];
      this.canvas.setPointerCapture(event.pointerId);
    });
    this.canvas.addEventListener("pointermove", (event) => {
      if (dragged) {
        this.#move(event.clientX - dragged[0], event.clientY - dragged[1]);
        dragged = [event.clientX, event.clientY];
      } else this.#pick(event.offsetX, event.offsetY);
    });
    for (const end of ["pointerup", "pointercancel"]) {
      this.canvas.addEventListener(end, () => { dragged = undefined; });
    }
    this.canvas.addEventListener("pointerleave", () => { this.under.hidden = true; });
    // Without a key held, the wheel scrolls the page.
    this.canvas.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey && document.activeElement !== this.frame) return;
      event.preventDefault();
      this.#zoom(event.deltaY > 0 ? 1.2 : 1 / 1.2, [event.offsetX, event.offsetY]);
    }, { passive: false });
    this.canvas.addEventListener("click", () => this.frame.focus({ preventScroll: true }));
  }

  #pick(px, py) {
    const near = this.#points.findLast(({ x, y }) => {
      const [ax, ay] = this.#pixel(x, y);
      return Math.hypot(ax - px, ay - py) < NEAR;
    });
    const [x, y] = this.#place(px, py);
    const inside = (box) => box.west <= x && x <= box.east && box.south <= y && y <= box.north;
    const found = near ?? this.#boxes.find(inside);
    this.under.hidden = !found?.text;
    this.under.textContent = found?.text ?? "";
  }

  draw() {
    const { width, height } = this.#size();
    if (width === 0) return;
    const density = devicePixelRatio || 1;
    this.canvas.width = width * density;
    this.canvas.height = height * density;
    const paper = this.canvas.getContext("2d");
    paper.scale(density, density);
    this.#graticule(paper, width, height);
    for (const box of this.#boxes) this.#box(paper, box);
    this.#drawOutline(paper);
    this.#drawPoints(paper);
    if (!this.isPlane) this.#scaleBar(paper, height);
    const things = [this.#points.length > 0 && counted(this.#points.length, "point"),
      this.#boxes.length > 0 && counted(this.#boxes.length, "area")].filter(Boolean);
    this.canvas.setAttribute("aria-label", `${this.label}: ${things.join(", ") || "empty"}`);
  }

  #graticule(paper, width, height) {
    const [west, north] = this.#place(0, 0);
    const [east, south] = this.#place(width, height);
    const unit = this.isPlane ? "" : "°";
    paper.lineWidth = 1;
    paper.strokeStyle = colour("--grid");
    paper.fillStyle = colour("--muted");
    paper.font = "11px system-ui, sans-serif";
    const lines = (low, high, about, limit, draw) => {
      const each = step(high - low, about);
      const digits = Math.max(0, -Math.floor(Math.log10(each)));
      for (let nth = Math.ceil(low / each); nth * each <= high; nth += 1) {
        const at = nth * each;
        if (this.isPlane || Math.abs(at) <= limit) draw(at, `${at.toFixed(digits)}${unit}`);
      }
    };
    const line = (ax, ay, bx, by) => {
      paper.beginPath();
      paper.moveTo(ax, ay);
      paper.lineTo(bx, by);
      paper.stroke();
    };
    lines(west, east, width / 90, 180, (x, text) => {
      const px = Math.round(this.#pixel(x, 0)[0]) + 0.5;
      line(px, 0, px, height);
      paper.fillText(text, px + 4, height - 6);
    });
    lines(south, north, height / 70, 90, (y, text) => {
      const py = Math.round(this.#pixel(0, y)[1]) + 0.5;
      line(0, py, width, py);
      paper.fillText(text, 6, py - 4);
    });
  }

  #box(paper, box) {
    const [left, top] = this.#pixel(box.west, box.north);
    const [right, bottom] = this.#pixel(box.east, box.south);
    const [width, height] = [Math.max(right - left, 1), Math.max(bottom - top, 1)];
    const ink = colour(`--level-${Math.min(box.level, 6)}`);
    paper.fillStyle = ink;
    paper.globalAlpha = 0.07;
    paper.fillRect(left, top, width, height);
    paper.globalAlpha = 0.9;
    paper.strokeStyle = ink;
    paper.strokeRect(left, top, width, height);
    paper.globalAlpha = 1;
  }

  #drawOutline(paper) {
    if (this.#outline.length === 0) return;
    paper.strokeStyle = paper.fillStyle = colour("--line-2");
    paper.beginPath();
    for (const [x, y] of this.#outline) paper.lineTo(...this.#pixel(x, y));
    paper.globalAlpha = 0.08;
    paper.fill();
    paper.globalAlpha = 1;
    paper.stroke();
  }

  #drawPoints(paper) {
    const ink = colour("--line-1");
    paper.fillStyle = ink;
    paper.strokeStyle = ink;
    for (const point of this.#points) {
      const strength = point.strength ?? 1;
      if (point.trail?.length > 1) {
        paper.globalAlpha = 0.35 * strength;
        paper.beginPath();
        for (const [x, y] of point.trail) paper.lineTo(...this.#pixel(x, y));
        paper.stroke();
      }
      paper.globalAlpha = 0.25 + 0.75 * strength;
      paper.beginPath();
      paper.arc(...this.#pixel(point.x, point.y), 3, 0, 7);
      paper.fill();
    }
    paper.globalAlpha = 1;
  }

  #scaleBar(paper, height) {
    const metres = this.#view.scale * METRES_PER_DEGREE;
    const long = step(120 * metres, 1);
    const pixels = long / metres;
    if (pixels > 300) return;
    const text = long >= 1000 ? `${count(long / 1000)} km` : `${count(long)} m`;
    paper.fillStyle = paper.strokeStyle = colour("--text");
    paper.beginPath();
    paper.moveTo(52, height - 32);
    paper.lineTo(52, height - 28);
    paper.lineTo(52 + pixels, height - 28);
    paper.lineTo(52 + pixels, height - 32);
    paper.stroke();
    paper.fillText(text, 58, height - 34);
  }
}
