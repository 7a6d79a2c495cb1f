// Choices of a comparison take effect at once; without scripts the buttons beside them do.
"use strict";

const PAUSE = 400; // of typing, in ms
let typing;

function submitAtOnce(event) {
  const form = event.target.closest("form[data-comparison]");
  if (form) form.requestSubmit(form.querySelector("[data-search]"));
}

// How many runs are ticked.
function countTicks() {
  const count = document.querySelectorAll("input[name=run]:checked").length;
  for (const said of document.querySelectorAll("[data-ticked]")) said.textContent = `${count} ticked`;
}

document.addEventListener("change", (event) => {
  if (event.target.matches("select")) submitAtOnce(event);
  if (event.target.matches("input[name=run]")) countTicks();
});
document.addEventListener("input", (event) => {
  if (!event.target.matches("input[type=search], input[type=text]")) return;
  clearTimeout(typing);
  typing = setTimeout(() => submitAtOnce(event), PAUSE);
});

// Where a search was typed, the reader goes on typing after the page has followed.
document.addEventListener("DOMContentLoaded", () => {
  const search = document.querySelector("form[data-comparison] :is(input[name=q], input[name=find-q])");
  if (search?.value) {
    search.focus({ preventScroll: true });
    search.setSelectionRange(search.value.length, search.value.length);
  }
});
