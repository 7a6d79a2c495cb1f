// Sliders of powers of two next to the fields of batch and sequence; htmx fetches the answer.
"use strict";

function field(slider) {
  return document.getElementById(slider.dataset.powers);
}

function place(slider) {
  const value = Number(field(slider).value);
  if (value >= 1) slider.value = Math.round(Math.log2(value));
}

function placeAll() {
  document.querySelectorAll("[data-powers]").forEach(place);
}

document.addEventListener("input", (event) => {
  const slider = event.target.closest("[data-powers]");
  if (slider) field(slider).value = 2 ** Number(slider.value);
  else document.querySelectorAll("[data-powers]").forEach((one) => field(one) === event.target && place(one));
}, true);

// The address says what is shown, so that it can be shared.
document.addEventListener("htmx:afterRequest", (event) => {
  const form = event.target.closest?.("[data-fit]");
  if (!form || !event.detail.successful) return;
  const asked = new URLSearchParams();
  for (const [name, value] of new FormData(form)) {
    if (name === "devices" || name === "trained" || name.startsWith("option:")) asked.set(name, value);
  }
  history.replaceState(null, "", `?${asked}`);
});

placeAll();
document.addEventListener("htmx:afterSettle", placeAll);
