// A new experiment: every choice acts at once (htmx asks for what follows), and the address says what is chosen.
"use strict";

const form = document.getElementById("new");

const command = document.getElementById("as-command");

const chips = (place) => [...place.querySelectorAll("input[name=policies]")];

// The form as it is asked about and as its address has it: without what is empty.
document.addEventListener("htmx:configRequest", (event) => {
  if (event.target !== form && event.target !== command) return;
  const fields = event.detail.formData;
  fields.delete("csrfmiddlewaretoken");
  for (const name of new Set(fields.keys())) {
    if (!fields.getAll(name).some((value) => value !== "")) fields.delete(name);
  }
});

const isUnreached = (is) => { document.getElementById("unreached").hidden = !is; };

const isWaiting = (waits) => form.classList.toggle("waiting", waits);

// Another question or workload is a step that one can go back; any other choice changes the address in place.
document.addEventListener("htmx:afterRequest", (event) => {
  if (event.target !== form) return;
  isWaiting(false);
  const address = event.detail.xhr?.getResponseHeader("New-Address");
  if (!address) return;
  isUnreached(false);
  const about = (url) => ["family", "artifacts"].map((name) => new URL(url, location).searchParams.getAll(name)).join();
  const isStep = about(address) !== about(location.href);
  history[isStep ? "pushState" : "replaceState"](null, "", address);
});
// What is no answer (a page to sign in, an error) takes nothing's place and is said.
document.addEventListener("htmx:beforeSwap", (event) => {
  if (event.detail.requestConfig?.elt !== form || event.detail.xhr.getResponseHeader("New-Address")) return;
  event.detail.shouldSwap = false;
  isUnreached(true);
});
document.addEventListener("htmx:sendError", (event) => { if (event.target === form) isUnreached(true); });
document.addEventListener("htmx:beforeRequest", (event) => { if (event.target === form) isWaiting(true); });
window.addEventListener("popstate", () => location.reload());

// What the server finds wrong stands at its field too, and goes when it is right again.
function markErrors() {
  for (const old of form.querySelectorAll("ul.errors")) old.remove();
  for (const old of form.querySelectorAll(".field.wrong")) {
    old.classList.remove("wrong");
    old.querySelector("[aria-invalid]")?.removeAttribute("aria-invalid");
  }
  for (const line of form.querySelectorAll("[data-wrong]")) {
    const field = form.elements[line.dataset.wrong];
    if (!(field instanceof Element) || !field.closest(".field")) continue;
    field.setAttribute("aria-invalid", "true");
    field.closest(".field").classList.add("wrong");
    const errors = document.createElement("ul");
    errors.className = "errors";
    errors.append(Object.assign(document.createElement("li"), { textContent: line.dataset.error }));
    field.after(errors);
  }
}

document.addEventListener("htmx:afterSettle", () => {
  markErrors();
  recount();
  search();
});

function choose(keys) {
  const wanted = new Set(keys);
  for (const box of chips(form)) box.checked = wanted.has(box.value);
  tell();
}

function tell() {
  recount();
  form.dispatchEvent(new Event("change", { bubbles: true }));
}

// How many are chosen, in all and of each group; knobs of what is chosen.
function recount() {
  for (const place of form.querySelectorAll("#policies, [data-group]")) {
    const boxes = chips(place), chosen = boxes.filter((box) => box.checked).length;
    place.querySelector("[data-count]").textContent = `${chosen} of ${boxes.length}`;
    const button = place.matches("[data-group]") && place.querySelector("[data-toggle-group]");
    if (button) button.firstChild.textContent = boxes.every((box) => box.checked || box.closest(".off")) ? "none" : "all";
  }
  const chosen = new Set(chips(form).filter((box) => box.checked).map((box) => box.value));
  for (const row of form.querySelectorAll("[data-knobs]")) row.hidden = !chosen.has(row.dataset.knobs);
}

function search() {
  const words = document.getElementById("find-policy").value.toLowerCase().split(/\s+/);
  let found = 0;
  for (const group of form.querySelectorAll("[data-group]")) {
    const shown = [...group.querySelectorAll(".chip")].filter((chip) => {
      chip.hidden = !words.every((word) => chip.dataset.words.includes(word));
      return !chip.hidden;
    });
    group.hidden = !shown.length;
    found += shown.length;
  }
  document.getElementById("none-found").hidden = found > 0;
}

// The commands are of what is chosen when they are looked at.
command?.addEventListener("toggle", () => { if (command.open) command.dispatchEvent(new Event("asked")); });

if (form) {
  history.replaceState(null, "", form.dataset.address);
  form.addEventListener("click", (event) => {
    const button = event.target.closest("[data-choose], [data-toggle-group]");
    if (!button) return;
    if (button.matches("[data-choose]")) {
      button.closest("details.drop")?.removeAttribute("open");
      choose(button.dataset.choose.split(" "));
      return;
    }
    // Those that cannot be carried out in the chosen way are checked one by one, if at all.
    const boxes = chips(button.closest("[data-group]")), offered = boxes.filter((box) => !box.closest(".off"));
    const check = offered.some((box) => !box.checked);
    for (const box of check ? offered : boxes) box.checked = check;
    tell();
  });
  form.addEventListener("change", recount);
  // The search asks the server nothing.
  for (const name of ["input", "change"]) {
    document.addEventListener(name, (event) => {
      if (event.target.id !== "find-policy") return;
      event.stopPropagation();
      search();
    }, true);
  }
  form.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && event.target.id === "find-policy") event.preventDefault();
  });
}
