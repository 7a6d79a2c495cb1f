// The drop zone: each file is sent on its own, two at a time, with a bar; its row then follows its fate (htmx).
// A large file goes in chunks: after a lost connection, or when it is dropped again after a reload, it goes on where it was.
"use strict";

const AT_ONCE = 2;

function humanBytes(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  const power = bytes ? Math.min(Math.floor(Math.log2(bytes) / 10), 4) : 0;
  return `${Number((bytes / 1024 ** power).toPrecision(3))} ${units[power]}`;
}

function addRow(list, file) {
  const row = document.getElementById("upload-row").content.firstElementChild.cloneNode(true);
  row.querySelector("[data-name]").textContent = file.name;
  row.querySelector("[data-size]").textContent = humanBytes(file.size);
  list.prepend(row);
  return row;
}

function say(row, text, bad) {
  const state = row.querySelector("[data-state]");
  state.textContent = text;
  state.classList.toggle("state-failed", bad);
}

function moveBar(row, fraction) {
  const percent = Math.round(100 * fraction);
  row.querySelector(".bar > span").style.width = `${percent}%`;
  row.querySelector(".bar").setAttribute("aria-valuenow", percent);
}

function send(zone, row, file) {
  return new Promise((resolve) => {
    const body = new FormData();
    body.append("files", file);
    const request = new XMLHttpRequest();
    request.open("POST", zone.action);
    request.setRequestHeader("HX-Request", "true");
    request.setRequestHeader("X-CSRFToken", zone.elements.csrfmiddlewaretoken.value);
    request.upload.addEventListener("progress", (event) => {
      if (event.lengthComputable) moveBar(row, event.loaded / event.total);
    });
    request.addEventListener("load", () => { finish(row, request); resolve(); });
    request.addEventListener("error", () => { say(row, "connection lost: drop the file again", true); resolve(); });
    request.send(body);
  });
}

function showFate(row, html) {
  const holder = document.createElement("tbody");
  holder.innerHTML = html;
  const fate = holder.firstElementChild;
  row.replaceWith(fate);
  htmx.process(fate);
}

function finish(row, request) {
  if (request.status === 201) {
    showFate(row, request.responseText);
  } else if (request.status === 422) {
    say(row, request.responseText.trim(), true);
  } else {
    say(row, `the server answered ${request.status}`, true);
  }
}

// Waits between tries after a lost connection (seconds); then the row says how to go on.
const PATIENCE = [1, 2, 4, 8, 16, 30, 30, 30];

const LOST = "connection lost: drop the file again, and it goes on where it was";

async function pause(row, seconds) {
  say(row, "connection lost, trying again", true);
  await new Promise((go) => setTimeout(go, 1000 * seconds));
}

function fingerprint(file) {
  return `${file.name}-${file.size}-${file.lastModified}`.slice(0, 400);
}

async function ask(zone, url, options) {
  const headers = { "X-CSRFToken": zone.elements.csrfmiddlewaretoken.value, "HX-Request": "true", ...options.headers };
  return fetch(url, { ...options, headers, credentials: "same-origin" });
}

async function sendInChunks(zone, row, file) {
  const body = new URLSearchParams({ name: file.name, size: file.size, fingerprint: fingerprint(file) });
  const begun = await patiently(row, () => ask(zone, zone.dataset.begin, { method: "POST", body }));
  if (!begun) return;
  if (begun.status !== 201) { say(row, (await begun.text()).trim() || `the server answered ${begun.status}`, true); return; }
  await sendFrom(zone, row, file, begun.headers.get("Location"), Number(begun.headers.get("Upload-Offset")));
}

// One chunk after the other from `offset`; a chunk whose answer was lost is asked after with HEAD.
async function sendFrom(zone, row, file, url, offset) {
  for (let lost = 0; offset < file.size;) {
    moveBar(row, offset / file.size);
    say(row, offset ? `sending, ${humanBytes(offset)} are there` : "sending", false);
    const chunk = file.slice(offset, offset + Number(zone.dataset.chunk));
    const headers = { "Upload-Offset": offset, "Content-Type": "application/offset+octet-stream" };
    let answer = await ask(zone, url, { method: "PATCH", body: chunk, headers }).catch(() => null);
    if (!answer && lost === PATIENCE.length) { say(row, LOST, true); return; }
    if (!answer) await pause(row, PATIENCE[lost++]); else lost = 0;
    answer = answer ?? await patiently(row, () => ask(zone, url, { method: "HEAD" }));
    if (!answer) return;
    if (answer.status === 201) { showFate(row, await answer.text()); return; }
    if (![200, 204, 409].includes(answer.status)) { say(row, (await answer.text()).trim() || `the server answered ${answer.status}`, true); return; }
    offset = Number(answer.headers.get("Upload-Offset"));
  }
  const answer = await patiently(row, () => ask(zone, url, { method: "GET" }));
  if (answer) showFate(row, await answer.text());
}

// The answer of `request`, tried again while the connection is lost; undefined when patience is at its end.
async function patiently(row, request) {
  for (const seconds of [0, ...PATIENCE]) {
    if (seconds) await pause(row, seconds);
    const answer = await request().catch(() => null);
    if (answer) return answer;
  }
  say(row, LOST, true);
  return undefined;
}

async function sendAll(zone, files) {
  const list = document.getElementById("uploads");
  const cap = Number(zone.dataset.cap);
  list.closest("[hidden]")?.removeAttribute("hidden");
  const waiting = [];
  for (const file of files) {
    const row = addRow(list, file);
    if (file.size > cap) say(row, `too large: at most ${humanBytes(cap)} are taken`, true);
    else waiting.push([row, file]);
  }
  const worker = async () => {
    while (waiting.length) {
      const [row, file] = waiting.shift();
      say(row, "sending", false);
      await (file.size > Number(zone.dataset.chunk) ? sendInChunks : send)(zone, row, file);
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, worker));
  if (zone.dataset.lead && files.length === 1) lead(zone, list);
}

// A single file leads to its own page, with what was chosen beside the zone (`data-lead` names the field).
function lead(zone, list) {
  const link = list.querySelector("tr a");
  if (!link) return;
  const page = new URL(link.href);
  page.searchParams.set(zone.dataset.lead, zone.elements[zone.dataset.lead].value);
  location.assign(page);
}

document.addEventListener("DOMContentLoaded", () => {
  const zone = document.getElementById("drop-zone");
  if (!zone || zone.querySelector("fieldset:disabled")) return;
  const input = zone.querySelector("input[type=file]");
  zone.querySelector("[type=submit]").hidden = true;
  input.addEventListener("change", () => { sendAll(zone, [...input.files]); input.value = ""; });
  for (const name of ["dragenter", "dragover"]) {
    zone.addEventListener(name, (event) => { event.preventDefault(); zone.classList.add("over"); });
  }
  for (const name of ["dragleave", "drop"]) zone.addEventListener(name, () => zone.classList.remove("over"));
  zone.addEventListener("drop", (event) => {
    event.preventDefault();
    sendAll(zone, [...event.dataTransfer.files]);
  });
});
