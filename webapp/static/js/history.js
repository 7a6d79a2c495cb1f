// The table of all runs: completion in the search box, sorting by a column, the chosen runs for a tag.
"use strict";

const box = document.getElementById("search");
const list = document.getElementById("completion");
let words = [];
let place = -1;
let asked = 0;

function hide() {
  list.hidden = true;
  place = -1;
  box.setAttribute("aria-expanded", "false");
  box.removeAttribute("aria-activedescendant");
}

function show() {
  list.replaceChildren(...words.map((word, index) => {
    const option = document.createElement("li");
    option.id = `completion-${index}`;
    option.setAttribute("role", "option");
    option.setAttribute("aria-selected", String(index === place));
    option.textContent = word;
    option.addEventListener("mousedown", (event) => { event.preventDefault(); take(word); });
    return option;
  }));
  list.hidden = words.length === 0;
  box.setAttribute("aria-expanded", String(!list.hidden));
  if (place >= 0) box.setAttribute("aria-activedescendant", `completion-${place}`);
  else box.removeAttribute("aria-activedescendant");
}

function take(word) {
  const end = box.selectionStart;
  const before = box.value.slice(0, end).replace(/[^\s()<>=!,:"]*$/, "");
  const written = word.endsWith("(") ? word : `${word} `;
  box.value = `${before}${written}${box.value.slice(end)}`;
  const caret = before.length + written.length;
  box.setSelectionRange(caret, caret);
  hide();
}

async function ask() {
  const mine = ++asked;
  const text = box.value.slice(0, box.selectionStart);
  const answer = await fetch(`${box.dataset.completion}?${new URLSearchParams({ q: text })}`);
  if (mine !== asked || !answer.ok) return;
  words = (await answer.json()).words;
  place = -1;
  show();
}

let waiting;
box.addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(ask, 120); });
box.addEventListener("blur", hide);
box.addEventListener("keydown", (event) => {
  if (list.hidden) return;
  if (event.key === "ArrowDown" || event.key === "ArrowUp") {
    event.preventDefault();
    place = (place + (event.key === "ArrowDown" ? 1 : words.length - 1) + (place < 0 && event.key === "ArrowUp" ? 1 : 0)) % words.length;
    show();
  } else if ((event.key === "Tab" || event.key === "Enter") && place >= 0) {
    event.preventDefault();
    take(words[place]);
  } else if (event.key === "Escape") {
    event.preventDefault(); // which would empty the box
    hide();
  }
});

for (const button of document.querySelectorAll("[data-order]")) {
  button.addEventListener("click", () => {
    const bare = box.value.replace(/\s*order\s+by\s+\S+(\s+(asc|desc))?\s*$/i, "");
    const up = new RegExp(`order\\s+by\\s+${button.dataset.order.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")}(\\s+asc)?\\s*$`, "i").test(box.value);
    box.value = `${bare} order by ${button.dataset.order} ${up ? "desc" : "asc"}`.trim();
    box.form.requestSubmit();
  });
}

document.querySelector("[data-choose-all]")?.addEventListener("change", (event) => {
  for (const one of document.querySelectorAll('#chosen [name="run"]')) one.checked = event.target.checked;
});

// All that the search finds is compared by its search, not by the runs of this page.
document.getElementById("chosen")?.addEventListener("submit", (event) => {
  const whole = document.querySelector("[data-compare-whole]");
  if (!whole || !document.querySelector("[data-whole]")?.checked) return;
  event.preventDefault();
  window.location.assign(whole.href);
});

// The forms beside the table are about the chosen runs, or about all that the search finds.
function addHidden(form, name, value) {
  const hidden = document.createElement("input");
  Object.assign(hidden, { type: "hidden", name, value });
  hidden.dataset.chosen = "";
  form.append(hidden);
}

for (const name of ["tag-form", "archive-form", "trash-form"]) {
  document.getElementById(name)?.addEventListener("submit", (event) => {
    for (const old of event.target.querySelectorAll("[data-chosen]")) old.remove();
    if (document.querySelector("[data-whole]")?.checked) addHidden(event.target, "whole", "1");
    for (const one of document.querySelectorAll('#chosen [name="run"]:checked')) addHidden(event.target, "run", one.value);
  });
}
