// "all <family> policies": checks every policy of the family, or unchecks them when all are checked.
"use strict";
document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-all]");
  if (!button) return;
  const boxes = [...button.closest("fieldset").querySelectorAll("input[name=policies]")];
  const check = boxes.some((box) => !box.checked);
  for (const box of boxes) box.checked = check;
  boxes[0].dispatchEvent(new Event("change", { bubbles: true }));
});
