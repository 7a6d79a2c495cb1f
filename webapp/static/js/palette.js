// The palette: Ctrl-K (or the button) opens it, what is typed is looked for, arrows and Enter go there.
"use strict";

// In a function of its own: scripts of pages share their names.
(() => {
  const palette = document.getElementById("palette");
  const asked = palette.querySelector("input");
  const found = palette.querySelector("ul");
  let chosen = 0;
  let question = 0;
  let isStale = true;
  let goAtOnce = false;

  function mark() {
    [...found.children].forEach((option, index) => option.setAttribute("aria-selected", String(index === chosen)));
    const option = found.children[chosen];
    if (option) {
      asked.setAttribute("aria-activedescendant", option.id);
      option.scrollIntoView({ block: "nearest" });
    } else asked.removeAttribute("aria-activedescendant");
  }

  function optionOf(place, index) {
    const option = document.createElement("li");
    option.id = `place-${index}`;
    option.setAttribute("role", "option");
    option.dataset.href = place.href;
    const kind = document.createElement("span");
    kind.className = "soft small";
    kind.textContent = place.kind;
    option.append(`${place.label} `, kind);
    option.addEventListener("mousemove", () => { if (chosen !== index) { chosen = index; mark(); } });
    option.addEventListener("click", () => location.assign(place.href));
    return option;
  }

  async function ask() {
    const mine = ++question;
    let places = [];
    try {
      const answer = await fetch(`${palette.dataset.address}?q=${encodeURIComponent(asked.value)}`);
      if (answer.ok) ({ places } = await answer.json());
    } catch { /* the network is away: nothing is found, and typing on asks again */ }
    if (mine !== question) return;
    found.replaceChildren(...places.map(optionOf));
    palette.querySelector("[role=status]").textContent = places.length ? `${places.length} found` : "Nothing is named so.";
    chosen = 0;
    isStale = false;
    mark();
    if (goAtOnce) go();
  }

  // Who types faster than the answer comes means what they typed, not what still stands there.
  function go() {
    goAtOnce = isStale;
    if (!isStale && found.children[chosen]) location.assign(found.children[chosen].dataset.href);
  }

  function open() {
    if (palette.open) return;
    asked.value = "";
    goAtOnce = false;
    isStale = true;
    palette.showModal();
    ask();
  }

  let waiting = 0;
  document.addEventListener("keydown", (event) => {
    if ((event.ctrlKey || event.metaKey) && !event.altKey && !event.shiftKey && event.key.toLowerCase() === "k") {
      event.preventDefault();
      open();
    }
  });
  document.querySelector("[data-open-palette]").addEventListener("click", open);
  asked.addEventListener("input", () => {
    isStale = true;
    question += 1;
    clearTimeout(waiting);
    waiting = setTimeout(ask, 120);
  });
  asked.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && found.children.length) {
      event.preventDefault();
      chosen = (chosen + step + found.children.length) % found.children.length;
      mark();
    } else if (event.key === "Enter") {
      event.preventDefault();
      go();
    }
  });
  palette.addEventListener("click", (event) => { if (event.target === palette) palette.close(); });
})();
