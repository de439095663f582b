// What the pages have in their frame: the colours, and the token of the tab.

import { setToken, token } from "./api.js";
import { byId } from "./dom.js";

function askForToken() {
  if (byId("token-dialog").open) return;
  byId("token").value = "";
  byId("token-forget").hidden = !token();
  byId("token-dialog").showModal();
}

function setTheme(theme) {
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  localStorage.setItem("esker-theme", theme);
  dispatchEvent(new Event("esker-theme"));
}

/** Makes the controls of the frame work. `changed` is called when there is another token. */
export function frame(changed) {
  const use = (value) => {
    setToken(value);
    byId("token-dialog").close();
    changed();
  };
  let asked = false;
  addEventListener("esker-token-needed", () => {
    // Once: a person may want to look at the page without one.
    if (!asked) askForToken();
    asked = true;
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => dispatchEvent(new Event("esker-theme")));
  byId("token-button").addEventListener("click", askForToken);
  byId("token-forget").addEventListener("click", () => use(""));
  byId("token-form").addEventListener("submit", (event) => {
    event.preventDefault();
    use(byId("token").value.trim());
  });
  byId("theme").value = localStorage.getItem("esker-theme") ?? "auto";
  byId("theme").addEventListener("change", ({ target }) => setTheme(target.value));
}
