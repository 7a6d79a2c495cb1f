// Parallel coordinates: draws every [data-coordinates] from the JSON beside it as SVG. Dragging along an axis
// keeps the lines that pass there. Keys: left and right choose an axis, up and down move the lower end of what is
// kept there, with Shift the upper one, Escape clears.
"use strict";

const SVG = "http://www.w3.org/2000/svg";
const HEIGHT = 380, TOP = 56, BOTTOM = 20, SIDE = 88, LEAST_GAP = 144, STEP = 0.05;

function shape(name, attributes, text) {
  const found = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) found.setAttribute(key, value);
  if (text !== undefined) found.textContent = text;
  return found;
}

const heightOf = (place) => TOP + (1 - place) * (HEIGHT - TOP - BOTTOM);
const placeOf = (height) => Math.min(1, Math.max(0, 1 - (height - TOP) / (HEIGHT - TOP - BOTTOM)));

function passes(line, brushes) {
  return brushes.every((brush, i) => !brush || (line.places[i] >= brush[0] && line.places[i] <= brush[1]));
}

// A label in two lines at most, broken between words.
function labelOf(text, x) {
  const words = text.split(" "), half = Math.ceil(words.length / 2);
  const rows = text.length > 18 ? [words.slice(0, half), words.slice(half)] : [words];
  const found = shape("text", { x, y: 14, "text-anchor": "middle", class: "axis-name" });
  rows.forEach((row, i) => found.append(shape("tspan", { x, dy: i ? 14 : 0 }, row.join(" "))));
  return found;
}

function axisOf({ label, better, ticks }, x) {
  const group = shape("g", { class: "axis" });
  group.append(labelOf(better ? `${label} ${better}` : label, x), shape("line", { x1: x, x2: x, y1: TOP, y2: HEIGHT - BOTTOM }));
  for (const [place, words] of ticks) {
    const y = heightOf(place);
    group.append(shape("line", { x1: x - 4, x2: x, y1: y, y2: y }), shape("text", { x: x - 7, y: y + 4, "text-anchor": "end" }, words));
  }
  return group;
}

class Coordinates {
  constructor(canvas) {
    this.canvas = canvas;
    Object.assign(this, JSON.parse(document.getElementById(canvas.dataset.coordinates).textContent));
    this.brushes = this.axes.map(() => null);
    this.axis = 0;
    this.draw();
    canvas.addEventListener("keydown", (event) => this.key(event));
  }

  draw() {
    const width = Math.max(this.canvas.clientWidth, 2 * SIDE + (this.axes.length - 1) * LEAST_GAP);
    this.gap = (width - 2 * SIDE) / (this.axes.length - 1);
    this.svg = shape("svg", { width, height: HEIGHT, viewBox: `0 0 ${width} ${HEIGHT}` });
    this.drawn = this.lines.map((line) => this.lineOf(line));
    this.boxes = this.axes.map((_, i) => shape("rect", { x: this.xOf(i) - 6, width: 12, class: "brush" }));
    this.svg.append(...this.drawn, ...this.axes.map((axis, i) => axisOf(axis, this.xOf(i))), ...this.boxes, ...this.axes.map((_, i) => this.handleOf(i)));
    this.canvas.replaceChildren(this.svg);
    this.show();
  }

  xOf(i) { return SIDE + i * this.gap; }

  lineOf({ name, href, color, places, texts }) {
    const link = href ? shape("a", { href, class: "run", tabindex: "-1" }) : shape("g", { class: "run" });
    const points = places.map((place, i) => `${this.xOf(i)},${heightOf(place)}`).join(" ");
    const line = shape("polyline", { points, stroke: `var(--${color})` });
    line.append(shape("title", {}, `${name}\n${texts.map((text, i) => `${this.axes[i].label} ${text}`).join("\n")}`));
    link.append(line);
    return link;
  }

  // Where an axis takes the pointer.
  handleOf(i) {
    const handle = shape("rect", { x: this.xOf(i) - 14, y: TOP, width: 28, height: HEIGHT - TOP - BOTTOM, class: "handle" });
    const at = (event) => placeOf(event.clientY - this.svg.getBoundingClientRect().top);
    let start = null;
    handle.addEventListener("pointerdown", (event) => { start = at(event); handle.setPointerCapture(event.pointerId); });
    handle.addEventListener("pointermove", (event) => { if (start !== null) this.brush(i, start, at(event)); });
    handle.addEventListener("pointerup", (event) => { if (Math.abs(at(event) - start) < 0.01) this.brush(i, null); start = null; });
    return handle;
  }

  brush(i, from, to) {
    this.brushes[i] = from === null ? null : [Math.min(from, to), Math.max(from, to)];
    this.show();
  }

  key(event) {
    const moves = { ArrowUp: STEP, ArrowDown: -STEP };
    if (event.key === "Escape") this.brush(this.axis, null);
    else if (event.key === "ArrowLeft") this.axis = Math.max(0, this.axis - 1);
    else if (event.key === "ArrowRight") this.axis = Math.min(this.axes.length - 1, this.axis + 1);
    else if (event.key in moves) this.moveEnd(event.shiftKey ? 1 : 0, moves[event.key]);
    else return;
    event.preventDefault();
    this.show();
  }

  moveEnd(end, by) {
    const ends = [...(this.brushes[this.axis] || [0, 1])];
    ends[end] = Math.min(1, Math.max(0, ends[end] + by));
    this.brush(this.axis, ...ends);
  }

  show() {
    const kept = this.lines.map((line) => passes(line, this.brushes));
    this.drawn.forEach((link, i) => link.classList.toggle("left-out", !kept[i]));
    this.boxes.forEach((box, i) => {
      const ends = this.brushes[i];
      box.setAttribute("y", ends ? heightOf(ends[1]) : 0);
      box.setAttribute("height", ends ? heightOf(ends[0]) - heightOf(ends[1]) : 0);
    });
    const names = this.lines.filter((_, i) => kept[i]).map(({ name }) => name.split(",")[0]);
    const said = names.length <= 8 ? `: ${names.join(", ")}` : "";
    const about = this.brushes.some(Boolean) ? `${names.length} of ${this.lines.length} runs pass${said}.` : "";
    this.canvas.parentElement.querySelector("[data-kept]").textContent = about;
  }
}

function drawCoordinates(root) {
  for (const canvas of root.querySelectorAll("[data-coordinates]")) new Coordinates(canvas);
}

document.addEventListener("DOMContentLoaded", () => drawCoordinates(document));
document.addEventListener("htmx:afterSettle", (event) => drawCoordinates(event.target));
