// Choices of a comparison take effect at once; without scripts the buttons beside them do.
"use strict";

const PAUSE = 400; // of typing, in ms
let typing;

function submitAtOnce(event) {
  const form = event.target.closest("form[data-comparison]");
  if (form) form.requestSubmit();
}

document.addEventListener("change", (event) => { if (event.target.matches("select")) submitAtOnce(event); });
document.addEventListener("input", (event) => {
  if (!event.target.matches("input[type=search], input[type=text]")) return;
  clearTimeout(typing);
  typing = setTimeout(() => submitAtOnce(event), PAUSE);
});

// Where a search was typed, the reader goes on typing after the page has followed.
document.addEventListener("DOMContentLoaded", () => {
  const search = document.querySelector("form[data-comparison] input[name=q]");
  if (search?.value) {
    search.focus({ preventScroll: true });
    search.setSelectionRange(search.value.length, search.value.length);
  }
});
