// Search while typing: rows without what is sought go out of sight, and the address follows.
"use strict";

function seek(form) {
  const text = form.elements.q.value.trim().toLowerCase();
  const table = document.getElementById(form.dataset.seek);
  let seen = 0;
  for (const row of table.querySelectorAll("tr[data-words]")) {
    row.hidden = !row.dataset.words.includes(text);
    if (!row.hidden) seen += 1;
  }
  document.getElementById(`${form.dataset.seek}-count`).textContent = `${seen} system${seen === 1 ? "" : "s"}`;
  const address = new URL(location.href);
  if (text) address.searchParams.set("q", form.elements.q.value.trim());
  else address.searchParams.delete("q");
  history.replaceState(null, "", address);
}

document.addEventListener("DOMContentLoaded", () => {
  for (const form of document.querySelectorAll("form[data-seek]")) {
    form.elements.q.addEventListener("input", () => seek(form));
    form.addEventListener("submit", (event) => { event.preventDefault(); seek(form); });
    seek(form);
  }
});
