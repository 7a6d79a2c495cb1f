// Choices of a form with data-at-once take effect at once, and so does what is typed (not where it says
// "choices"); without scripts the buttons next to them do.
"use strict";

const PAUSE = 400; // of typing, in ms
const STEPS = /^(Arrow|Page|Home|End|.$)/u;
const KEPT_FOCUS = "focus-after-a-choice";
let typing;
let stepped = null; // the select that keys step through
let isPending = false; // ... and have changed

// The page that follows has the focus where it was, or where the choice was made.
function submitAtOnce(field, focused) {
  const form = field.closest("form[data-at-once]");
  if (!form) return;
  sessionStorage.setItem(KEPT_FOCUS, focused?.id || field.id);
  if (form.dataset.atOnce === "choices") form.submit();
  else form.requestSubmit(form.querySelector("[data-search]"));
}

function takeFocusBack() {
  const field = document.getElementById(sessionStorage.getItem(KEPT_FOCUS));
  sessionStorage.removeItem(KEPT_FOCUS);
  field?.focus();
  if (field?.matches("input")) field.setSelectionRange(field.value.length, field.value.length);
}

// How many runs are ticked.
function countTicks() {
  const count = document.querySelectorAll("input[name=run]:checked").length;
  for (const said of document.querySelectorAll("[data-ticked]")) said.textContent = `${count} ticked`;
}

function endSteps(focused) {
  const field = stepped;
  const isChanged = isPending;
  stepped = null;
  isPending = false;
  if (field && isChanged) submitAtOnce(field, focused);
}

// Keys change a select at every step: what they chose holds once Enter is pressed or the select is left.
document.addEventListener("keydown", (event) => {
  if (!event.target.matches("form[data-at-once] select")) return;
  if (event.key === "Enter" && isPending) {
    event.preventDefault();
    endSteps(event.target);
  } else if (STEPS.test(event.key) && event.key !== " " && !event.altKey) stepped = event.target;
});
document.addEventListener("pointerdown", () => { if (!isPending) stepped = null; });
document.addEventListener("focusout", (event) => { if (event.target === stepped) endSteps(event.relatedTarget); });
document.addEventListener("change", (event) => {
  if (event.target === stepped) isPending = true;
  else if (event.target.matches("select")) submitAtOnce(event.target);
  if (event.target.matches("input[name=run]")) countTicks();
});
document.addEventListener("input", (event) => {
  if (!event.target.matches("form[data-at-once=''] input:is([type=search], [type=text])")) return;
  clearTimeout(typing);
  typing = setTimeout(() => submitAtOnce(event.target), PAUSE);
});

document.addEventListener("DOMContentLoaded", takeFocusBack);
