// What every page does: theme switch, local times, menus that close, copy buttons, questions before deleting.
"use strict";

function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

function switchTheme() {
  const theme = isDark() ? "light" : "dark";
  document.documentElement.dataset.theme = theme;
  localStorage.setItem("theme", theme);
  document.dispatchEvent(new CustomEvent("themechange"));
}

const parts = { day: "2-digit", month: "short", hour: "2-digit", minute: "2-digit" };
const localFormat = new Intl.DateTimeFormat(undefined, parts);
const otherYearFormat = new Intl.DateTimeFormat(undefined, { ...parts, year: "numeric" });

function showLocalTimes(root) {
  for (const time of root.querySelectorAll("time[data-local]")) {
    const moment = new Date(time.dateTime);
    const isThisYear = moment.getFullYear() === new Date().getFullYear();
    time.textContent = (isThisYear ? localFormat : otherYearFormat).format(moment);
    time.removeAttribute("data-local");
  }
}

async function copy(button) {
  const source = document.getElementById(button.dataset.copy);
  await navigator.clipboard.writeText(source.textContent.trim());
  const label = button.textContent;
  button.textContent = "copied";
  setTimeout(() => { button.textContent = label; }, 1500);
}

document.addEventListener("click", (event) => {
  const target = event.target;
  if (target.closest("[data-switch-theme]")) switchTheme();
  const copier = target.closest("[data-copy]");
  if (copier) copy(copier);
  for (const open of document.querySelectorAll("details.drop[open]")) {
    if (!open.contains(target)) open.open = false;
  }
});

document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  for (const open of document.querySelectorAll("details.drop[open]")) {
    open.open = false;
    open.querySelector("summary").focus();
  }
});

document.addEventListener("focusout", ({ target, relatedTarget }) => {
  const left = target.closest("details.drop[open]");
  if (left && relatedTarget && !left.contains(relatedTarget)) left.open = false;
});

document.addEventListener("submit", (event) => {
  const question = event.target.dataset.confirm;
  if (question && !window.confirm(question)) event.preventDefault();
});

// What the reader has unfolded stays so when a part of the page is renewed.
const unfolded = new Set();
const note = (fold) => { if (fold.id) unfolded[fold.open ? "add" : "delete"](fold.id); };
document.addEventListener("toggle", ({ target }) => note(target), true);
// A fold opened a moment ago has not told it yet.
document.addEventListener("htmx:beforeSwap", () => document.querySelectorAll("details[id]").forEach(note));
document.addEventListener("htmx:afterSwap", () => {
  for (const id of unfolded) document.getElementById(id)?.setAttribute("open", "");
});

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  document.dispatchEvent(new CustomEvent("themechange"));
});
// On a phone the menu scrolls sideways: the entry of this page is brought into sight.
function showCurrentEntry() {
  const entry = document.querySelector(".menu [aria-current]");
  if (entry) entry.parentElement.scrollLeft = entry.offsetLeft - (entry.parentElement.clientWidth - entry.offsetWidth) / 2;
}

document.addEventListener("DOMContentLoaded", () => { showLocalTimes(document); showCurrentEntry(); });
document.addEventListener("htmx:afterSettle", (event) => showLocalTimes(event.target.parentElement || document));
