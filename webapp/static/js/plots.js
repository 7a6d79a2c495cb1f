// Draws every [data-plot] from the JSON beside it (the form is that of experiments/summaries.py). Colors come from
// the design tokens; a change of theme draws again. thinning.js leaves out what cannot be seen.
"use strict";

const HUES = 8;

function token(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

// Bytes and seconds are scaled once for the whole axis, so that ticks read "12 GiB", "3 ms".
function scaleOf(unit, series, axis) {
  let most = 0;
  for (const line of series) for (const value of (axis === "x" && line.to) || line[axis]) if (typeof value === "number") most = Math.max(most, Math.abs(value));
  const steps = {
    bytes: [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]],
    s: [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"], [1e-3, "ms"], [1e-6, "µs"]],
  }[unit] || [];
  for (const [size, label] of steps) if (most >= size) return [size, label];
  return [1, unit];
}

// What bars that stand on one another, or lie end to end, come to.
function totals(series, axis) {
  return [{ [axis]: series[0][axis].map((_, place) => series.reduce((sum, line) => sum + line[axis][place], 0)) }];
}

function scaled(values, size) {
  return size === 1 ? values : values.map((value) => (typeof value === "number" ? value / size : value));
}

function trace(line, index, plot, xScale, yScale) {
  const place = line.of ?? index; // a line that belongs to another has its color and no entry of its own
  const family = line.family && token(`--family-${line.family}`);
  const color = family || (line.color ? token(`--${line.color}`) : token(`--plot-${(place % HUES) + 1}`));
  const unit = (scale) => (scale[1] ? ` ${scale[1]}` : "");
  const base = {
    showlegend: line.of === undefined, legendgroup: line.of === undefined ? String(index) : String(line.of),
    visible: place < HUES || line.always || plot.kind === "lanes" ? true : "legendonly", name: escapeText(line.name), x: scaled(line.x, xScale[0]), y: scaled(line.y, yScale[0]), text: line.text, hovertext: line.hover, customdata: line.href,
    hovertemplate: `${line.hover ? "%{hovertext}<br>" : line.text ? "%{text}<br>" : ""}%{x:.4~g}${unit(xScale)}, %{y:.4~g}${unit(yScale)}<extra>${escapeText(line.name)}</extra>`,
  };
  if (line.hover_only) base.hovertemplate = `%{hovertext}<extra></extra>`;
  if (line.group || line.of_group) Object.assign(base, { legendgroup: line.group || line.of_group, showlegend: Boolean(line.group), visible: true });
  if (line.hover_only && plot.kind === "rows") return { ...base, type: "bar", orientation: "h", textposition: "none", marker: { color: color } };
  if (plot.x_label && typeof line.x[0] === "string" && !line.hover_only) base.hovertemplate = `${line.text ? "%{text}<br>" : ""}%{x}: %{y:.4~g}${unit(yScale)}<extra>${escapeText(line.name)}</extra>`;
  if (plot.kind === "boxes") return line.q1 ? boxes(line, xScale) : runsOfBoxes(base, line);
  if (plot.kind === "lanes") return laneBars(base, line, xScale, color);
  if (plot.kind === "heat") return heatMap(base, line, xScale);
  if (plot.kind === "bar") return { ...base, type: "bar", width: logWidths(base.x, plot), marker: { color: color } };
  if (plot.kind === "scatter") {
    const symbol = line.symbol || ["circle", "square", "diamond", "cross", "x", "triangle-up", "star", "hexagon"][index % HUES];
    const marker = { color: color, size: line.size || 8, symbol, line: symbol.endsWith("-open") ? { color: color, width: 2 } : undefined };
    return { ...base, type: "scatter", mode: line.mode || "markers", textposition: line.textposition || "bottom center", cliponaxis: false, marker, error_x: intervals(line, xScale, color), line: { color: color, shape: line.shape, dash: line.dash } };
  }
  const look = { color: color, width: line.stack ? 0.5 : 1.5, shape: line.shape || "linear", dash: line.dash };
  if (line.stack) return { ...base, type: "scatter", mode: "lines", stackgroup: line.stack, line: look, fillcolor: color };
  const marker = { color: color, symbol: line.symbol || "circle" };
  return { ...base, type: "scatter", mode: line.mode || (line.x.length > 1 ? "lines" : "markers"), line: look, marker }; // of one point there is no line
}

// From `low` to `high` about each point.
function intervals(line, scale, color) {
  if (!line.low) return undefined;
  const apart = (ends, sign) => ends.map((end, i) => (sign * (end - line.x[i])) / scale[0]);
  return { type: "data", symmetric: false, array: apart(line.high, 1), arrayminus: apart(line.low, -1), color: color, thickness: 2, width: 5 };
}

// Bars from `x` to `to` in the lane `y`.
function laneBars(base, line, xScale, color) {
  const until = scaled(line.to, xScale[0]);
  return {
    ...base, type: "bar", orientation: "h", base: base.x, x: until.map((end, i) => end - base.x[i]), y: line.y,
    customdata: base.x.map((start, i) => [start, until[i]]), textposition: "none", marker: { color: color, line: { width: 0 } },
    hovertemplate: `%{text}<br>%{customdata[0]:.4~g} to %{customdata[1]:.4~g} ${xScale[1]}<extra></extra>`,
  };
}

const BOX = 0.6, GOLDEN = 0.618; // of a row's height; what spreads the runs of a row evenly, however many they are

// A box in each row: its quartiles and whiskers are told, not found from the values. Its words are those of its
// median, on a mark that is not seen.
function boxes(line, xScale) {
  const [low, q1, median, q3, high] = ["low", "q1", "median", "q3", "x"].map((name) => scaled(line[name], xScale[0]));
  const hover = { type: "scatter", mode: "markers", x: median, y: line.y, hovertext: line.hover, hovertemplate: "%{hovertext}<extra></extra>", marker: { size: 8, opacity: 0 }, showlegend: false };
  const look = { fillcolor: token("--accent-soft"), line: { color: token("--plot-1"), width: 1.5 }, whiskerwidth: 0.5 };
  const box = { type: "box", orientation: "h", y: line.y, lowerfence: low, q1, median, q3, upperfence: high, width: BOX, ...look, hoverinfo: "skip", showlegend: false };
  return [box, hover];
}

// Runs of a row stand a little above or below one another.
function runsOfBoxes(base, line) {
  const spread = (row, i) => row + BOX * 0.8 * (((i * GOLDEN) % 1) - 0.5);
  return { ...base, type: "scatter", mode: "markers", y: line.y.map(spread), hovertemplate: base.hovertemplate.replace(", %{y:.4~g}", ""), marker: { color: token("--ink"), size: 5, opacity: 0.55 }, showlegend: false };
}

// Shares `z` by row and stretch of time: from the ground to one hue, dark on light and light on dark.
function heatMap(base, line, xScale) {
  const hues = [[0, token("--sunken")], [0.5, token("--plot-6")], [1, token("--plot-1")]];
  const bar = { thickness: 10, outlinewidth: 0, tickformat: ".0%", len: 1 };
  return {
    ...base, type: "heatmap", z: line.z, zmin: 0, zmax: 1, colorscale: hues, colorbar: bar, xgap: 0, ygap: line.z.length > 40 ? 0 : 1,
    hovertemplate: `%{y}<br>from %{x:.4~g} ${xScale[1]}: %{z:.0%} held<extra></extra>`,
  };
}

// On a logarithmic axis bars that are equally wide to the eye have widths in proportion to where they stand.
function logWidths(x, plot) {
  if (!(plot.log || "").includes("x") || x.length < 2) return undefined;
  const root = Math.sqrt(x[1] / x[0]);
  return x.map((value) => value * (root - 1 / root) * 0.92);
}

// Plotly takes these for markup and knows no name of a quote.
function escapeText(text) {
  return String(text).replace(/[&<>]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;" }[c]));
}

function axis(label, scale, log) {
  return {
    title: { text: escapeText(scale[1] ? `${label} (${scale[1]})` : label), standoff: 8 },
    type: log ? "log" : undefined, gridcolor: token("--rule"), zerolinecolor: token("--rule"), linecolor: token("--rule-strong"),
    automargin: true, exponentformat: "power",
  };
}

// A few bars that stand for numbered things (ranks, stages, devices) have a tick each and none between.
const MOST_TICKS = 16;
const MOST_NARROW_TICKS = 5; // fewer words fit next to one another on the narrowest plot

function numbered(plot) {
  const places = [...new Set(plot.series.flatMap((line) => line.x))];
  if (plot.kind !== "bar" || plot.log || places.length > MOST_TICKS || !places.every(Number.isInteger)) return {};
  return { tickmode: "array", tickvals: places };
}

// Moments that are marked across the whole plot, such as a night without figures.
function marks(plot) {
  return (plot.marks || []).map(({ x, text }) => ({
    type: "line", x0: x, x1: x, yref: "paper", y0: 0, y1: 1, text, layer: "below",
    line: { color: token(text === "failed" ? "--bad" : "--ink-soft"), width: 1, dash: "dot" },
  }));
}

// A limit on the x axis, with its name; what lies beyond it does not fit.
function limitShapes(limit) {
  if (!limit) return [];
  return [{ type: "line", x0: limit.x, x1: limit.x, yref: "paper", y0: 0, y1: 1, layer: "below", line: limit.is_capacity ? { color: token("--bad"), width: 2 } : { color: token("--ink-soft"), width: 1.5, dash: "dash" } }];
}

// The hatched field of what does not fit.
function fieldBeyond({ limit, x_range: x, y_range: [bottom, top] = [] }) {
  if (!limit?.beyond) return [];
  const pattern = { shape: "/", size: 8, solidity: 0.12, fgcolor: token("--bad"), bgcolor: token("--bad-soft"), fgopacity: 0.35 };
  return [{ type: "scatter", mode: "lines", x: [limit.x, x[1], x[1], limit.x], y: [bottom, bottom, top, top], fill: "toself", fillpattern: pattern, line: { width: 0 }, opacity: 0.6, hoverinfo: "skip", showlegend: false }];
}

function limitNames(limit, log, narrow) {
  if (!limit) return [];
  const at = { x: log ? Math.log10(limit.x) : limit.x, yref: "paper", y: 1, yanchor: "bottom", showarrow: false };
  const own = { ...at, xanchor: limit.is_capacity ? "right" : "center", text: `<b>${escapeText(limit.text)}</b>`, font: { size: 12, color: token("--ink") } };
  const beyond = narrow ? limit.beyond.replace(/:.*/, "") : limit.beyond;
  return limit.beyond ? [{ ...own, xshift: -4 }, { ...at, xanchor: "left", xshift: 4, text: `✗ ${escapeText(beyond)}`, font: { size: 12, color: token("--bad") } }] : [own];
}

// Ticks with words of their own: of many, which a narrow plot would press together, every second one.
function worded(ticks, scale, narrow) {
  if (!ticks) return {};
  const kept = ticks.values.map((_, i) => !narrow || ticks.values.length < MOST_NARROW_TICKS || i % 2 === 0);
  return { tickmode: "array", tickvals: scaled(ticks.values, scale[0]).filter((_, i) => kept[i]), ticktext: ticks.labels.filter((_, i) => kept[i]) };
}

// The lanes of a plot from top to bottom, or its groups, each in a row.
function lanes(plot, narrow) {
  if (plot.groups) return { tickmode: "array", tickvals: [...plot.groups.keys()], ticktext: plot.groups.map((name) => rowName(name, narrow)), range: [plot.groups.length - 0.5, -0.5], zeroline: false, showgrid: false };
  return plot.lanes ? { type: "category", autorange: "reversed", categoryorder: "array", categoryarray: plot.lanes } : {};
}

// On a phone what a group is called takes a line for each of its parts.
function rowName(name, narrow) {
  return narrow ? escapeText(name).replaceAll(", ", ",<br>") : escapeText(name);
}

function rangeOf(range, log) {
  return range ? { range: log ? range.map(Math.log10) : range } : {};
}

function layout(plot, xScale, yScale, narrow) {
  const log = plot.log || "";
  return {
    font: { family: token("--font"), size: 12, color: token("--ink") },
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    margin: { l: 56, r: 12, t: plot.limit ? 24 : 8, b: 44 }, barmode: plot.kind === "lanes" ? "overlay" : plot.stack || plot.kind === "rows" ? "stack" : "group", bargap: 0.08, hovermode: "closest",
    xaxis: { ...axis((narrow ? (plot.x_label || "").split(",")[0] : plot.x_label) || "", plot.x_ticks ? [1, ""] : xScale, log.includes("x")), ...numbered(plot), ...worded(plot.x_ticks, xScale, narrow), ...rangeOf(plot.x_range, log.includes("x")) },
    yaxis: { ...axis(plot.y_label || "", yScale, log.includes("y")), ...rangeOf(plot.y_range, log.includes("y")), ...(plot.y_range && log.includes("y") ? { dtick: "D2" } : {}), ...worded(plot.y_ticks, yScale, narrow), ...lanes(plot, narrow) },
    showlegend: plot.series.length > 1 && plot.kind !== "boxes", legend: { orientation: "h", y: plot.limit ? 1.06 : 1.02, yanchor: "bottom", x: 0 },
    hoverlabel: { font: { family: token("--font") } }, shapes: [...(plot.shapes || []), ...limitShapes(plot.limit), ...marks(plot)],
    annotations: [...limitNames(plot.limit, log.includes("x"), narrow), ...marks(plot).map((mark) => ({ x: mark.x0, yref: "paper", y: 1, yanchor: "top", xanchor: "left", showarrow: false, text: escapeText(mark.text), font: { size: 10, color: mark.line.color }, textangle: -90 }))],
  };
}

const NARROW = 600, ENTRY_HEIGHT = 19, LETTER_WIDTH = 6;

// About so many lines a legend takes where its entries, each as wide as the longest, stand next to one another.
function linesOfLegend(named, width) {
  const longest = Math.max(0, ...named.map((one) => one.name?.length || 0));
  return Math.ceil((named.length * (longest * LETTER_WIDTH + 50)) / width);
}

// A plot grows by a legend of many lines. On a phone it has one entry a line, and what is not drawn has none.
function roomForLegend(canvas, traces) {
  canvas.dataset.height ||= canvas.clientHeight;
  const narrow = canvas.clientWidth < NARROW;
  const shown = narrow ? traces.map((one) => (one.visible === "legendonly" ? { ...one, showlegend: false } : one)) : traces;
  const named = shown.filter((one) => one.showlegend !== false);
  const lines = narrow ? named.length : linesOfLegend(named, canvas.clientWidth);
  canvas.style.height = `${Number(canvas.dataset.height) + (lines > 2 ? ENTRY_HEIGHT * lines : 0)}px`;
  return shown;
}

function draw(canvas) {
  const plot = JSON.parse(document.getElementById(canvas.dataset.plot).textContent);
  const xScale = scaleOf(plot.x_unit || "", plot.kind === "rows" ? totals(plot.series, "x") : plot.series, "x");
  const yScale = scaleOf(plot.y_unit || "", plot.stack ? totals(plot.series, "y") : plot.series, "y");
  if (plot.limit) plot.limit.x /= xScale[0];
  for (const [name, scale] of [["x_range", xScale], ["y_range", yScale]]) if (plot[name]) plot[name] = scaled(plot[name], scale[0]);
  const narrow = canvas.clientWidth < NARROW;
  if (narrow) for (const line of plot.series) line.text = line.narrow_text || line.text;
  const parts = partsOf([...fieldBeyond(plot), ...plot.series.flatMap((line, index) => trace(line, index, plot, xScale, yScale))]);
  const options = {
    responsive: true, displaylogo: false, modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d", "sendChartToCloud"],
    modeBarButtonsToAdd: [{ name: "SVG", title: "Download as SVG", icon: Plotly.Icons.disk, click: (figure) => Plotly.downloadImage(figure, { format: "svg", filename: plot.title }) }],
    toImageButtonOptions: { format: "png", scale: 2, filename: plot.title },
  };
  drawParts(canvas, parts, layout(plot, xScale, yScale, narrow), options, (traces) => roomForLegend(canvas, traces));
  if (!canvas.dataset.linked) {
    canvas.dataset.linked = "yes";
    canvas.on("plotly_click", (event) => { const href = event.points[0].customdata; if (href && typeof href === "string") window.location.assign(href); });
  }
}

function drawAll(root) {
  for (const canvas of root.querySelectorAll("[data-plot]")) draw(canvas);
}

// A plot measures its words when it is drawn, so the font is there before; where it cannot be had, the plot is drawn all the same.
function whenFontIsThere(drawing) {
  document.addEventListener("DOMContentLoaded", () => document.fonts.load(`12px ${token("--font")}`).then(drawing, drawing));
}

whenFontIsThere(() => drawAll(document));
document.addEventListener("htmx:afterSettle", (event) => drawAll(event.target));
document.addEventListener("themechange", () => drawAll(document));
