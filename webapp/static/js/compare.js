// Menus of a comparison take effect at once; without scripts the buttons beside them do.
"use strict";

document.addEventListener("change", (event) => {
  const form = event.target.closest("[data-comparison]");
  if (form && event.target.matches("select")) form.requestSubmit();
});
