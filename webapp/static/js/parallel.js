// Draws [data-timeline]: a row for each worker with its slots (hue by kind, shade by micro-batch) and below them, thinner,
// the messages that it takes part in; what stays empty is idle. It opens on one micro-batch, the others pale, below a
// strip of the whole step with what is shown framed. Uses the scales and colors of plots.js. The slider
// below it tells any moment in words, so that nothing needs a pointer.
"use strict";

const SLOT_HUES = { forward: "--plot-1", backward: "--plot-2", "weight gradient": "--plot-3", "update of weights": "--plot-8", other: "--plot-7" };
const MESSAGE_HUES = ["--plot-5", "--plot-4", "--plot-7", "--plot-6", "--plot-3"];
const SHADES = 5, ROW_PIXELS = 34, TOLD = 16, STRIP = { wide: 1000, row: 6 }, PALE = 0.22, AROUND = 0.08;

// A color of the tokens, `share` of it over the surface below.
function shaded(name, share) {
  const [a, b] = [token(name), token("--surface")].map((hex) => [1, 3, 5].map((at) => parseInt((hex.length === 4 ? [...hex.slice(1)].map((c) => c + c).join("").padStart(7, "#") : hex).slice(at, at + 2), 16)));
  return `rgb(${a.map((value, i) => Math.round(value * share + b[i] * (1 - share))).join(",")})`;
}

function shadeOf(microBatch) {
  return microBatch === null ? 1 : 1 - 0.13 * (microBatch % SHADES);
}

function bars(name, rows, columns, tScale, look) {
  const at = (key) => rows.map((i) => columns[key][i]);
  return {
    type: "bar", orientation: "h", name, base: scaled(at("start"), tScale[0]), x: rows.map((i) => (columns.end[i] - columns.start[i]) / tScale[0]),
    y: at("row").map((row) => row + look.shift), width: look.width, marker: { color: look.color, line: { width: look.edge || 0, color: token("--surface") } },
    customdata: rows.map((i) => [columns.start[i] / tScale[0], columns.end[i] / tScale[0]]),
    hovertext: look.hover, hovertemplate: `%{hovertext}<br>%{customdata[0]:.5~g} to %{customdata[1]:.5~g} ${tScale[1]}<extra></extra>`,
    text: look.text, textposition: look.text ? "inside" : "none", insidetextanchor: "middle", textangle: 0, constraintext: "inside", textfont: { color: look.ink, size: 10 },
  };
}

function idleTrace(data, tScale) {
  return {
    type: "bar", orientation: "h", name: "idle: the bubble, or waiting for a message", base: 0, x: data.rows.map(() => data.end / tScale[0]), y: data.rows.map((_, i) => i - 0.11), width: 0.62,
    marker: { color: token("--sunken"), pattern: { shape: "/", size: 6, solidity: 0.12, fgcolor: token("--rule-strong") } }, hoverinfo: "skip",
  };
}

// Micro-batches of the first row, as they come: those of one replica.
function microBatches(data) {
  const of = data.slots.micro_batch.flatMap((one, i) => (one !== null && data.slots.row[i] === 0 ? [[data.slots.start[i], one]] : []));
  return [...new Set(of.sort((a, b) => a[0] - b[0]).map((pair) => pair[1]))];
}

// From its first slot to its last, with a little of what is around it.
function spanOf(data, microBatch) {
  const own = data.slots.micro_batch.flatMap((one, i) => (one === microBatch ? [i] : []));
  const begin = Math.min(...own.map((i) => data.slots.start[i])), end = Math.max(...own.map((i) => data.slots.end[i]));
  const around = AROUND * (end - begin);
  return [Math.max(0, begin - around), Math.min(data.end, end + around)];
}

// What the workers do that see the micro-batch: one replica of every stage.
function rowsOf(data, microBatch) {
  const kept = [...new Set(data.slots.row.filter((_, i) => data.slots.micro_batch[i] === microBatch))].sort((a, b) => a - b);
  const place = new Map(kept.map((row, i) => [row, i]));
  const columns = (all) => {
    const own = all.row.flatMap((row, i) => (place.has(row) ? [i] : []));
    const found = Object.fromEntries(Object.entries(all).map(([name, column]) => [name, own.map((i) => column[i])]));
    return { ...found, row: found.row.map((row) => place.get(row)) };
  };
  return { ...data, rows: kept.map((row) => data.rows[row]), slots: columns(data.slots), messages: columns(data.messages) };
}

function slotTraces(data, tScale, focus) {
  const slots = data.slots;
  return [...new Set(slots.kind)].map((kind) => {
    const rows = slots.kind.flatMap((one, i) => (one === kind ? [i] : []));
    const hue = SLOT_HUES[kind] || SLOT_HUES.other;
    return bars(kind, rows, slots, tScale, {
      shift: -0.11, width: 0.62, edge: rows.length < 1500 ? 0.5 : 0, ink: token("--ink"), color: rows.map((i) => shaded(hue, focus === null || focus === slots.micro_batch[i] ? shadeOf(slots.micro_batch[i]) * 0.8 : PALE)),
      text: rows.map((i) => (slots.micro_batch[i] === null ? "" : String(slots.micro_batch[i]))),
      hover: rows.map((i) => escapeText(slotWords(slots, i))),
    });
  });
}

function slotWords(slots, i) {
  const stage = slots.stage[i] === null ? "" : ` of stage ${slots.stage[i]}`;
  return slots.micro_batch[i] === null ? `${slots.kind[i]}${stage}` : `${slots.kind[i]} of micro-batch ${slots.micro_batch[i]}${slots.stage[i] === null ? "" : `, stage ${slots.stage[i]}`}`;
}

function messageTraces(data, tScale) {
  const messages = data.messages;
  return [...new Set(messages.kind)].sort().map((kind, place) => {
    const rows = messages.kind.flatMap((one, i) => (one === kind ? [i] : []));
    return bars(kind, rows, messages, tScale, {
      shift: 0.33, width: 0.2, color: token(MESSAGE_HUES[place % MESSAGE_HUES.length]),
      hover: rows.map((i) => `${escapeText(kind)} ${escapeText(messages.label[i])}<br>${amountOf(messages.bytes[i], "bytes")}`),
    });
  });
}

function amountOf(value, unit) {
  const [size, label] = scaleOf(unit, [{ y: [value] }], "y");
  return `${Number((value / size).toPrecision(3))} ${label}`;
}

function timelineLayout(data, tScale, narrow, shown) {
  const plain = { gridcolor: token("--rule"), zerolinecolor: token("--rule"), linecolor: token("--rule-strong"), automargin: true };
  return {
    font: { family: token("--font"), size: narrow ? 11 : 12, color: token("--ink") }, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    margin: { l: 48, r: 8, t: 8, b: 40 }, barmode: "overlay", hovermode: "closest", hoverlabel: { font: { family: token("--font") } },
    uniformtext: { mode: "hide", minsize: 9 },
    xaxis: { ...plain, title: { text: `time (${tScale[1]})`, standoff: 8 }, range: shown.map((time) => time / tScale[0]) },
    yaxis: { ...plain, title: { text: narrow ? "" : "device" }, range: [data.rows.length - 0.5, -0.5], tickvals: data.rows.map((_, i) => i), ticktext: data.rows.map((row) => escapeText(row.name)), showgrid: false, zeroline: false, fixedrange: true },
    legend: { orientation: "h", y: 1.01, yanchor: "bottom", x: 0 }, showlegend: true,
    shapes: [{ type: "line", x0: 0, x1: 0, yref: "paper", y0: 0, y1: 1, line: { color: token("--accent"), width: 1 } }],
  };
}

function drawTimeline(canvas) {
  const whole = JSON.parse(document.getElementById(canvas.dataset.timeline).textContent), batches = microBatches(whole);
  if (canvas.looked === undefined) canvas.looked = batches.length > 1 ? Math.floor(batches.length / 2) : null;
  const focus = canvas.looked === null ? null : batches[canvas.looked], data = focus === null ? whole : rowsOf(whole, focus);
  const shown = focus === null ? [0, data.end] : spanOf(data, focus), tScale = scaleOf("s", [{ x: [data.end] }], "x");
  canvas.style.height = canvas.dataset.height = `${140 + ROW_PIXELS * data.rows.length}`;
  const traces = roomForLegend(canvas, [idleTrace(data, tScale), ...slotTraces(data, tScale, focus), ...messageTraces(data, tScale)]);
  const options = {
    responsive: true, displaylogo: false, modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d", "sendChartToCloud"], toImageButtonOptions: { format: "png", scale: 2, filename: "timeline" },
    modeBarButtonsToAdd: [{ name: "SVG", title: "Download as SVG", icon: Plotly.Icons.disk, click: (figure) => Plotly.downloadImage(figure, { format: "svg", filename: "timeline" }) }],
  };
  Plotly.react(canvas, traces, timelineLayout(data, tScale, canvas.clientWidth < 600, shown), options);
  drawStrip(data, shown);
  followLooks(canvas, batches);
  followTimeline(canvas, data, tScale, shown);
}

// The whole step, a thin row for each worker, and a frame around what is shown.
function drawStrip(data, shown) {
  const strip = document.getElementById("timeline-overview"), scale = STRIP.wide / data.end;
  const part = (name, hue, d) => { const made = document.createElementNS("http://www.w3.org/2000/svg", "path"); made.setAttribute("class", name); made.setAttribute("d", d); if (hue) made.setAttribute("fill", hue); return made; };
  const box = (start, end, y, height) => `M${(start * scale).toFixed(2)} ${y}h${((end - start) * scale).toFixed(2)}v${height}h${((start - end) * scale).toFixed(2)}z`;
  const kinds = [...new Set(data.slots.kind)].map((kind) => part("", token(SLOT_HUES[kind] || SLOT_HUES.other), data.slots.kind.flatMap((one, i) => (one === kind ? [box(data.slots.start[i], data.slots.end[i], data.slots.row[i] * STRIP.row, STRIP.row - 2)] : [])).join("")));
  strip.setAttribute("viewBox", `0 -1 ${STRIP.wide} ${data.rows.length * STRIP.row + 1}`);
  strip.replaceChildren(...kinds, part("shown", "", box(...shown, -1, data.rows.length * STRIP.row + 1)));
}

function followLooks(canvas, batches) {
  document.getElementById("timeline-focus").textContent = canvas.looked === null ? "whole step" : `micro-batch ${batches[canvas.looked]} of ${batches[0]} to ${batches[batches.length - 1]}`;
  const middle = Math.floor(batches.length / 2);
  const leads = { before: (canvas.looked ?? middle) - 1, after: (canvas.looked ?? middle) + 1, one: canvas.looked ?? middle, whole: null };
  for (const [look, focus] of Object.entries(leads)) {
    const button = document.querySelector(`[data-look=${look}]`);
    button.disabled = focus !== null && !(focus in batches);
    if (look === "one" || look === "whole") button.setAttribute("aria-pressed", String((look === "whole") === (canvas.looked === null)));
    button.onclick = () => { canvas.looked = focus; drawTimeline(canvas); };
  }
}

function timelineInWords(data, time) {
  const during = (columns, row) => columns.row.flatMap((one, i) => (one === row && columns.start[i] <= time && time < columns.end[i] ? [i] : []));
  const alike = new Map(); // what is done -> the rows that do it
  data.rows.forEach((row, place) => {
    const slots = during(data.slots, place).map((i) => slotWords(data.slots, i));
    const messages = during(data.messages, place).map((i) => `${data.messages.kind[i]} ${data.messages.label[i]}`);
    const words = `${slots.join(" and ") || "idle"}${messages.length ? ` (${messages.slice(0, 3).join("; ")})` : ""}`;
    alike.set(words, [...(alike.get(words) || []), row.name]);
  });
  const told = [...alike].slice(0, TOLD).map(([words, names]) => `device${names.length > 1 ? "s" : ""} ${names.join(", ")}: ${words}`);
  return `At ${amountOf(time, "s")}: ${told.join("; ")}.`;
}

function followTimeline(canvas, data, tScale, shown) {
  const slider = document.getElementById("timeline-time"), readout = document.getElementById("timeline-readout");
  const tell = (time) => {
    readout.textContent = timelineInWords(data, time);
    slider.setAttribute("aria-valuetext", amountOf(time, "s"));
    Plotly.relayout(canvas, { "shapes[0].x0": time / tScale[0], "shapes[0].x1": time / tScale[0] });
  };
  const go = (time) => { slider.value = Math.round((time / data.end) * 1000); tell(time); };
  slider.oninput = () => tell((Number(slider.value) / 1000) * data.end);
  canvas.removeAllListeners("plotly_click");
  canvas.on("plotly_click", (event) => go(event.points[0].customdata ? event.points[0].customdata[0] * tScale[0] : 0));
  canvas.removeAllListeners("plotly_relayout");
  canvas.on("plotly_relayout", () => drawStrip(data, canvas.layout.xaxis.range.map((at) => Math.min(data.end, Math.max(0, at * tScale[0])))));
  go((shown[0] + shown[1]) / 2);
}

function drawTimelines(root) {
  for (const canvas of root.querySelectorAll("[data-timeline]")) drawTimeline(canvas);
}

whenFontIsThere(() => drawTimelines(document));
document.addEventListener("htmx:afterSettle", (event) => drawTimelines(event.target));
document.addEventListener("themechange", () => drawTimelines(document));
