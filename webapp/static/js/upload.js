// The drop zone: each file is sent on its own, two at a time, with a bar; its row then follows its fate (htmx).
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

function finish(row, request) {
  if (request.status === 201) {
    moveBar(row, 1);
    const holder = document.createElement("tbody");
    holder.innerHTML = request.responseText;
    const fate = holder.firstElementChild;
    row.replaceWith(fate);
    htmx.process(fate);
  } else if (request.status === 422) {
    say(row, request.responseText.trim(), true);
  } else {
    say(row, `the server answered ${request.status}`, true);
  }
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
      await send(zone, row, file);
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, worker));
}

document.addEventListener("DOMContentLoaded", () => {
  const zone = document.getElementById("drop-zone");
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
