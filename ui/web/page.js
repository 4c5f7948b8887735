"use strict";
// textual-serve's script starts the terminal and puts classes on the body: -first-byte, -closed.

// Without this the first click would be spent on giving the terminal the keyboard.
function takeKeys() {
  const keys = document.querySelector(".xterm-helper-textarea");
  if (keys) keys.focus();
}

window.addEventListener("DOMContentLoaded", () => {
  document.getElementById("again").addEventListener("click", () => location.reload());
  let begun = false;
  new MutationObserver(() => {
    if (!begun && document.body.classList.contains("-first-byte")) {
      begun = true;
      takeKeys();
    }
  }).observe(document.body, { attributes: true, attributeFilter: ["class"] });
});
window.addEventListener("focus", takeKeys);
