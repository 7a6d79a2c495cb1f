// What of a plot can be seen: points that share a pixel with others are left out, so that a plot of any
// length is SVG. Of curves each pixel column keeps its first, lowest, highest and last point; spans that
// begin in one column are one; of a cloud each pixel keeps a point. Beside what is zoomed in on, pixels are
// those of the whole plot.
"use strict";

const FEW = 4; // up to so many points for each pixel column nothing is left out
const PICKED = ["x", "y", "text", "hovertext", "customdata"];

// Where on its axis a value stands: at its exponent where the axis is logarithmic, as in Plotly's ranges.
function placeOn(axis = {}) {
  return axis.type === "log" ? Math.log10 : (value) => value;
}

// The lowest and the highest place of all parts on both axes.
function extent(parts, layout) {
  const low = { x: Infinity, y: Infinity }, high = { x: -Infinity, y: -Infinity };
  for (const name of ["x", "y"]) {
    const place = placeOn(layout[`${name}axis`]);
    for (const part of parts) for (const value of part[name]) {
      const at = place(value);
      if (at < low[name] && at > -Infinity) low[name] = at;
      if (at > high[name] && at < Infinity) high[name] = at;
    }
  }
  return { low, high };
}

// An axis as it is seen, `from` one place `to` another; the data reach from `low` to `high`.
function axisView(low, high, pixels, axis = {}) {
  const range = axis.range || [low, high];
  return { place: placeOn(axis), low, high, from: Math.min(...range), to: Math.max(...range), pixels };
}

function isSeen(view, value) {
  const at = view.place(value);
  return at >= view.from && at <= view.to;
}

// Pixels beside the view have numbers below 0.
function pixelOf(view, value) {
  const at = view.place(value);
  if (isSeen(view, value)) return Math.floor((view.pixels * (at - view.from)) / (view.to - view.from || 1));
  return Math.floor((view.pixels * (at - view.low)) / (view.high - view.low || 1)) - view.pixels - 1;
}

// Of the points `first` to `last`, which are one pixel column: the ends and each curve's lowest and highest.
function outline(curves, first, last) {
  const kept = new Set([first, last]);
  for (const y of curves) {
    let lowest = first, highest = first;
    for (let i = first + 1; i <= last; i += 1) {
      if (y[i] < y[lowest]) lowest = i;
      if (y[i] > y[highest]) highest = i;
    }
    kept.add(lowest).add(highest);
  }
  return [...kept].sort((a, b) => a - b);
}

// The first point of each pixel column; `x` ascends.
function columnStarts(x, view) {
  const pixels = x.map((value) => pixelOf(view, value));
  return [...x.keys()].filter((i) => i === 0 || pixels[i] !== pixels[i - 1]);
}

function curvePoints(x, curves, view) {
  const starts = columnStarts(x, view);
  return starts.flatMap((first, k) => outline(curves, first, (starts[k + 1] ?? x.length) - 1));
}

function cloudPoints(x, y, views) {
  const taken = new Set();
  return [...x.keys()].filter((i) => {
    const pixel = `${pixelOf(views.x, x[i])} ${pixelOf(views.y, y[i])}`;
    return !taken.has(pixel) && taken.add(pixel);
  });
}

// A part of a plot: `seen` gives its traces for the axes as they are seen, and how many of its points in view
// are drawn. `choose` says which points stay where they are too many, `draw` makes traces of those that stay.
function partOf({ x, y = [] }, choose, draw, isIn = (views, i) => isSeen(views.x, x[i])) {
  const seen = (views) => {
    const every = [...x.keys()];
    const kept = x.length > FEW * views.x.pixels ? choose(views) : every;
    const traces = draw(kept, views);
    const count = (points) => traces.length * points.filter((i) => isIn(views, i)).length;
    return { traces, drawn: count(kept), all: count(every) };
  };
  return { x, y, seen };
}

function picked(trace, kept) {
  const columns = PICKED.filter((key) => Array.isArray(trace[key]));
  return { ...trace, ...Object.fromEntries(columns.map((key) => [key, kept.map((i) => trace[key][i])])) };
}

// Curves over the same ascending x lose the same points, so that a stack stays one.
function curvesPart(traces) {
  const { x } = traces[0], heights = traces.map((trace) => trace.y);
  const draw = (kept) => traces.map((trace) => picked(trace, kept));
  return partOf({ x }, (views) => curvePoints(x, heights, views.x), draw);
}

function cloudPart(trace) {
  const { x, y } = trace;
  const isIn = (views, i) => isSeen(views.x, x[i]) && isSeen(views.y, y[i]);
  return partOf({ x, y }, (views) => cloudPoints(x, y, views), (kept) => [picked(trace, kept)], isIn);
}

// A lane: thick lines from `starts` to `ends` at `height`, each with its words; as one they have the longest
// one's. None is narrower than a pixel, or it would not be seen.
function spansPart(trace, { starts, ends, words, height }) {
  const span = (first, next) => {
    let longest = first;
    for (let i = first; i < next; i += 1) {
      if (ends[i] - starts[i] > ends[longest] - starts[longest]) longest = i;
    }
    const others = next - first - 1;
    return { last: next - 1, text: words[longest] + (others ? `<br>and ${others} more` : "") };
  };
  const draw = (kept, views) => {
    const pixel = (views.x.to - views.x.from) / views.x.pixels;
    const rows = kept.map((first, k) => span(first, kept[k + 1] ?? starts.length));
    const end = (row, k) => Math.max(ends[row.last], starts[kept[k]] + pixel);
    const x = rows.flatMap((row, k) => [starts[kept[k]], end(row, k), null]);
    const y = rows.flatMap(() => [height, height, null]);
    return [{ ...trace, x, y, text: rows.flatMap(({ text }) => [text, text, ""]) }];
  };
  return partOf({ x: starts }, (views) => columnStarts(starts, views.x), draw);
}

// What is short as it comes, such as bars.
function wholePart(trace) {
  return { x: [], y: [], isWhole: true, seen: () => ({ traces: [trace], drawn: 0, all: 0 }) };
}

function ascends(x) {
  return x.every((value, i) => typeof value === "number" && (i === 0 || value >= x[i - 1]));
}

// The parts of a plot: curves of one stack are one, where they have the same instants.
function partsOf(traces) {
  const isBeside = (one) => (other) => other.stackgroup === one.stackgroup && other.x.length === one.x.length;
  return traces.flatMap((trace) => {
    if (trace.type !== "scatter") return [wholePart(trace)];
    if (trace.mode.startsWith("markers") && trace.x.every(Number.isFinite)) return [cloudPart(trace)];
    if (!ascends(trace.x)) return [wholePart(trace)];
    const stack = trace.stackgroup ? traces.filter(isBeside(trace)) : [trace];
    return trace === stack[0] ? [curvesPart(stack)] : [];
  });
}

function seenOf({ parts, low, high }, canvas, layout) {
  const axis = (name, pixels) => axisView(low[name], high[name], pixels || 800, layout[`${name}axis`]);
  const views = { x: axis("x", canvas.clientWidth), y: axis("y", canvas.clientHeight) };
  const found = parts.map((part) => part.seen(views));
  const sum = (key) => found.reduce((total, one) => total + one[key], 0);
  return { traces: found.flatMap((one) => one.traces), drawn: sum("drawn"), all: sum("all") };
}

function sayHowMany(canvas, { drawn, all }) {
  let line = canvas.parentElement.querySelector(":scope > .how-many");
  if (!line && drawn === all) return;
  if (!line) {
    line = document.createElement("p");
    line.className = "how-many small soft";
    canvas.after(line);
  }
  const [some, of] = [drawn, all].map((count) => count.toLocaleString("en"));
  const isLess = drawn < all, less = `Drawn from ${some} of ${of} points; zoom in for more.`;
  line.textContent = isLess ? less : `All ${of} points in view are drawn.`;
}

// Draws parts with Plotly; when the reader zooms, what can be seen is found again. `finish` changes traces.
function drawParts(canvas, parts, layout, options, finish) {
  const isFirst = !canvas.figure;
  canvas.figure = { parts, ...extent(parts, layout) };
  const seen = seenOf(canvas.figure, canvas, layout);
  Plotly.react(canvas, finish(seen.traces), layout, options);
  sayHowMany(canvas, seen);
  const follow = (changes) => { if (Object.keys(changes).some(isOfView)) drawAgain(canvas); };
  if (isFirst) canvas.on("plotly_relayout", follow);
}

function isOfView(key) {
  return /^([xy]axis\.|autosize)/.test(key);
}

function drawAgain(canvas) {
  if (canvas.figure.parts.every((part) => part.isWhole)) return;
  const seen = seenOf(canvas.figure, canvas, canvas.layout);
  const columns = PICKED.map((key) => [key, seen.traces.map((trace) => trace[key])]);
  Plotly.restyle(canvas, Object.fromEntries(columns));
  sayHowMany(canvas, seen);
}
