// Draws [data-memory]: device bytes by kind, stays away from the device as arcs, and a lane for compute, every channel
// and every cause of stalls, all on one time axis. Uses the scales and colors of plots.js and draws by thinning.js. The
// slider below tells any moment in words, so that nothing needs a pointer.
"use strict";

const ARC_POINTS = 12;
const MARK_SYMBOLS = { recompute: "triangle-up", compress: "square", decompress: "square-open", drop: "x", wait: "line-ns-open" };

function memoryData(canvas) {
  return JSON.parse(document.getElementById(canvas.dataset.memory).textContent);
}

function memoryParts(data, tScale, bScale) {
  const [tSize, tUnit] = tScale, [bSize, bUnit] = bScale, x = scaled(data.times, tSize);
  const traces = data.kinds.map((kind, i) => ({
    type: "scatter", mode: "lines", name: kind.name, stackgroup: "bytes", x, y: scaled(kind.y, bSize),
    line: { width: 0.5, shape: "hv", color: token(`--plot-${(i % HUES) + 1}`) }, fillcolor: token(`--plot-${(i % HUES) + 1}`),
    hovertemplate: `${escapeText(kind.name)}: %{y:.4~g} ${bUnit}<br>at %{x:.4~g} ${tUnit}<extra></extra>`,
  }));
  traces.push({ type: "scatter", mode: "lines", name: "all", x, y: scaled(data.total, bSize), line: { width: 1.5, shape: "hv", color: token("--ink") }, hovertemplate: `all: %{y:.4~g} ${bUnit} at %{x:.4~g} ${tUnit}<extra></extra>` });
  const parts = [curvesPart(traces)];
  if (data.capacity !== null) parts.push(wholePart({ type: "scatter", mode: "lines", name: "capacity", x: [0, data.end / tSize], y: [data.capacity / bSize, data.capacity / bSize], line: { width: 1.5, dash: "dash", color: token("--bad") }, hovertemplate: `capacity: %{y:.4~g} ${bUnit}<extra></extra>` }));
  return parts;
}

function arcTraces(data, tScale) {
  const [tSize, tUnit] = tScale;
  const tiers = [...new Set(data.arcs.map((arc) => arc.tier))].sort();
  return tiers.map((tier, i) => {
    const x = [], y = [], text = [];
    for (const arc of data.arcs.filter((one) => one.tier === tier)) {
      const height = Math.sqrt((arc.end - arc.start) / data.end);
      const size = scaleOf("bytes", [{ y: [arc.bytes] }], "y");
      const words = `${escapeText(arc.text)}<br>${(arc.bytes / size[0]).toPrecision(3)} ${size[1]} on ${escapeText(tier)}${arc.module ? `<br>${escapeText(arc.module)}` : ""}`;
      for (let k = 0; k <= ARC_POINTS; k += 1) {
        x.push((arc.start + (arc.end - arc.start) * (k / ARC_POINTS)) / tSize);
        y.push(height * Math.sin((Math.PI * k) / ARC_POINTS));
        text.push(words);
      }
      x.push(null); y.push(null); text.push("");
    }
    return { type: "scatter", mode: "lines", name: `on ${tier}`, yaxis: "y2", x, y, text, line: { width: 1, color: token(`--plot-${[1, 4, 5][i % 3]}`), dash: ["solid", "dot", "dash"][i % 3] }, opacity: 0.75, hovertemplate: `%{text}<br>%{x:.4~g} ${tUnit}<extra></extra>` };
  });
}

function markTraces(data, tScale) {
  const kinds = [...new Set(data.marks.map((mark) => mark.kind))];
  return kinds.map((kind, i) => {
    const own = data.marks.filter((mark) => mark.kind === kind);
    return {
      type: "scatter", mode: "markers", name: kind, yaxis: "y2", x: own.map((mark) => mark.x / tScale[0]), y: own.map(() => 0.06 + 0.07 * i),
      text: own.map((mark) => escapeText(mark.text)), marker: { size: 7, symbol: MARK_SYMBOLS[kind] || "diamond", color: token(`--plot-${((i + 2) % HUES) + 1}`) },
      hovertemplate: `%{text}<br>%{x:.4~g} ${tScale[1]}<extra></extra>`,
    };
  });
}

// Lanes from top to bottom: compute, then channels, then stalls.
function lanesOf(data) {
  const rows = [{ name: "compute", kind: "compute", x: data.ops.start, to: data.ops.end }, ...data.lanes];
  return rows.map((lane, i) => ({ ...lane, height: rows.length - 1 - i }));
}

function laneParts(data, tScale) {
  const ops = data.ops;
  const words = ops.start.map((_, i) => `${escapeText(ops.texts[ops.name[i]])}${ops.what[i] === "op" ? "" : ` (${ops.what[i]})`}, ${ops.what[i] === "codec" ? "tensor" : "op"} ${ops.index[i]}<br>${escapeText(ops.texts[ops.module[i]])}`);
  const [compute, ...others] = lanesOf(data);
  const kinds = [...new Set(ops.what)].map((what) => {
    const own = ops.what.flatMap((one, i) => (one === what ? [i] : []));
    return { ...compute, name: what === "op" ? "compute" : what, x: own.map((i) => ops.start[i]), to: own.map((i) => ops.end[i]), words: own.map((i) => words[i]), color: { op: "--plot-8", recompute: "--plot-5" }[what] || "--plot-2" };
  });
  return [...kinds, ...others].map((lane, i) => {
    const bars = { starts: scaled(lane.x, tScale[0]), ends: scaled(lane.to, tScale[0]), words: lane.words || lane.x.map(() => escapeText(lane.name)), height: lane.height };
    const color = lane.color || (lane.kind === "channel" ? `--plot-${((i - kinds.length) % HUES) + 1}` : "--bad");
    return spansPart({ type: "scatter", mode: "lines", name: lane.name, showlegend: lane.kind === "compute" && kinds.length > 1, yaxis: "y3", line: { width: 9, color: token(color) }, hovertemplate: `%{text}<br>%{x:.6~g} ${tScale[1]}<extra></extra>` }, bars);
  });
}

function memoryLayout(data, tScale, bScale, narrow) {
  const lanes = lanesOf(data);
  const low = Math.min(0.42, 0.06 * lanes.length + 0.02), moves = data.arcs.length + data.marks.length > 0;
  const arcsTop = moves ? low + 0.2 : low;
  const plain = { gridcolor: token("--rule"), zerolinecolor: token("--rule"), linecolor: token("--rule-strong"), automargin: true };
  const line = (x, color, dash) => ({ type: "line", x0: x, x1: x, yref: "paper", y0: 0, y1: 1, line: { color: token(color), width: 1, dash } });
  return {
    font: { family: token("--font"), size: narrow ? 11 : 12, color: token("--ink") }, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    margin: { l: 48, r: 8, t: 8, b: 40 }, hovermode: "closest", hoverlabel: { font: { family: token("--font") } },
    xaxis: { ...plain, title: { text: `time (${tScale[1]})`, standoff: 8 }, range: [0, data.end / tScale[0]], anchor: "y3" },
    yaxis: { ...plain, title: { text: `device memory (${bScale[1]})` }, domain: [arcsTop + (moves ? 0.02 : 0.03), 1], rangemode: "tozero" },
    yaxis2: { ...plain, domain: [low + 0.02, Math.max(low + 0.03, arcsTop)], range: [0, 1.08], showticklabels: false, showgrid: false, title: { text: data.arcs.length ? "away" : moves ? "moves" : "" }, visible: moves, fixedrange: true },
    yaxis3: { ...plain, domain: [0, low], range: [-0.7, lanes.length - 0.3], tickvals: lanes.map((lane) => lane.height), ticktext: lanes.map((lane) => escapeText(narrow ? lane.name.replace("synchronization", "sync").replace("host to device", "H→D").replace("device to host", "D→H").replace("storage", "SSD") : lane.name)), showgrid: false, zeroline: false, fixedrange: true },
    legend: { orientation: "h", y: 1.01, yanchor: "bottom", x: 0 }, showlegend: true,
    shapes: [line(0, "--accent", "solid"), ...(data.peak === null ? [] : [line(data.peak / tScale[0], "--ink-soft", "dot")])],
    annotations: data.peak === null ? [] : [{ x: data.peak / tScale[0], yref: "paper", y: arcsTop + 0.03, yanchor: "bottom", bgcolor: token("--surface"), xanchor: data.peak > data.end / 2 ? "right" : "left", showarrow: false, text: "peak", font: { size: 11, color: token("--ink-soft") } }],
  };
}

function drawMemory(canvas) {
  const data = memoryData(canvas);
  const tScale = scaleOf("s", [{ x: [data.end] }], "x"), bScale = scaleOf("bytes", [{ y: [data.capacity || 0, ...data.total] }], "y");
  const moves = [...arcTraces(data, tScale), ...markTraces(data, tScale)];
  const parts = [...memoryParts(data, tScale, bScale), ...moves.map(wholePart), ...laneParts(data, tScale)];
  const options = {
    responsive: true, displaylogo: false, modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d", "sendChartToCloud"], toImageButtonOptions: { format: "png", scale: 2, filename: "memory" },
    modeBarButtonsToAdd: [{ name: "SVG", title: "Download as SVG", icon: Plotly.Icons.disk, click: (figure) => Plotly.downloadImage(figure, { format: "svg", filename: "memory" }) }],
  };
  drawParts(canvas, parts, memoryLayout(data, tScale, bScale, canvas.clientWidth < 600), options, (traces) => roomForLegend(canvas, traces));
  follow(canvas, data, tScale);
}

// The last index whose value is not above `time`; -1 before the first.
function before(values, time) {
  let low = 0, high = values.length;
  while (low < high) { const middle = (low + high) >> 1; if (values[middle] <= time) low = middle + 1; else high = middle; }
  return low - 1;
}

function amount(value, unit) {
  const [size, label] = scaleOf(unit, [{ y: [value] }], "y");
  return `${Number((value / size).toPrecision(4))} ${label}`;
}

function momentInWords(data, time) {
  time += 1e-9; // times are told to the nanosecond
  const op = before(data.ops.start, time), at = before(data.times, time);
  const running = op >= 0 && data.ops.end[op] >= time ? `${data.ops.what[op] === "op" ? "op" : data.ops.what[op]} ${data.ops.index[op]}, ${data.ops.texts[data.ops.name[op]]} ${data.ops.texts[data.ops.module[op]]}`.trim() : "compute stands still";
  const kinds = data.kinds.map((kind) => [kind.name, kind.y[at] || 0]).filter(([, value]) => value > 0).map(([name, value]) => `${name} ${amount(value, "bytes")}`);
  const busy = data.lanes.filter((lane) => { const i = before(lane.x, time); return i >= 0 && lane.to[i] >= time; }).map((lane) => lane.name);
  const away = data.arcs.filter((arc) => arc.start <= time && time < arc.end);
  const parts = [`At ${amount(time, "s")}: ${running}`, `${amount(at >= 0 ? data.total[at] : 0, "bytes")} on the device (${kinds.join(", ") || "nothing"})`];
  if (busy.length) parts.push(`busy: ${busy.join(", ")}`);
  if (away.length) parts.push(`${away.length} drawn tensors away, ${amount(away.reduce((sum, arc) => sum + arc.bytes, 0), "bytes")}`);
  return `${parts.join("; ")}.`;
}

function follow(canvas, data, tScale) {
  const slider = document.getElementById("memory-time"), readout = document.getElementById("memory-readout");
  const tell = (time) => {
    readout.textContent = momentInWords(data, time);
    slider.setAttribute("aria-valuetext", `${amount(time, "s")}`);
    Plotly.relayout(canvas, { "shapes[0].x0": time / tScale[0], "shapes[0].x1": time / tScale[0] });
  };
  slider.oninput = () => tell((Number(slider.value) / 1000) * data.end);
  const peak = document.querySelector('[data-moment="peak"]');
  const highest = data.peak ?? data.times[data.total.indexOf(data.total.reduce((most, bytes) => Math.max(most, bytes), 0))];
  const go = (time) => { slider.value = Math.round((time / data.end) * 1000); tell(time); };
  peak.onclick = () => go(highest);
  canvas.removeAllListeners("plotly_click");
  canvas.on("plotly_click", (event) => go(event.points[0].x * tScale[0]));
  if (!readout.textContent) go(highest);
}

function drawMemories(root) {
  for (const canvas of root.querySelectorAll("[data-memory]")) drawMemory(canvas);
}

whenFontIsThere(() => drawMemories(document));
document.addEventListener("htmx:afterSettle", (event) => drawMemories(event.target));
document.addEventListener("themechange", () => drawMemories(document));
