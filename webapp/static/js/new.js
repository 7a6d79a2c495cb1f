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

// A published machine brings its devices: what describes them is then not asked.
const node = document.getElementById("id_node");
const askForDevices = () => {
  for (const name of ["devices_per_node", "cluster_device"]) document.getElementById(`id_${name}`).disabled = Boolean(node.value);
};
if (node) {
  node.addEventListener("change", askForDevices);
  askForDevices();
}
