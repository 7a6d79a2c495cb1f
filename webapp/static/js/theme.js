// Before the first paint: the theme that the reader chose, if any; else the system's (see tokens.css).
"use strict";
(() => {
  const chosen = localStorage.getItem("theme");
  if (chosen === "dark" || chosen === "light") document.documentElement.dataset.theme = chosen;
})();
