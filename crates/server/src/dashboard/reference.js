// The page that shows the OpenAPI document, and lets a person send each operation.

import { get } from "./api.js";
import { byId, h } from "./dom.js";
import { frame } from "./frame.js";
import { groups, matches } from "./openapi.js";
import { Operation } from "./operation.js";

/** The panels of the operations by their names. */
const panels = new Map();

/** The sections of the groups: `{section, link, panels}`. */
const sections = [];

function filter() {
  const words = byId("filter").value.trim();
  let found = 0;
  for (const { section, link, panels: own } of sections) {
    const shown = own.filter((panel) => {
      panel.element.hidden = !matches(panel.operation, words);
      return !panel.element.hidden;
    });
    section.hidden = shown.length === 0;
    link.hidden = section.hidden;
    found += shown.length;
  }
  byId("found").textContent = words ? `${found} operations.` : "";
}

/** Opens the operation that the address names. */
function route() {
  const name = location.hash.slice(1);
  const panel = panels.get(name);
  if (!panel) return;
  if (panel.element.hidden) {
    byId("filter").value = "";
    filter();
  }
  panel.open();
}

function add(document_, { name, description, operations }) {
  const own = operations.map((operation) => new Operation(document_, operation));
  for (const panel of own) panels.set(panel.id, panel);
  const section = h("section", { class: "panel", "aria-labelledby": `group-${name}` },
    h("div", { class: "panel-head" },
      h("h2", { id: `group-${name}`, tabindex: -1 }, name),
      h("p", { class: "hint" }, description)),
    own.map(({ element }) => element));
  const link = h("li", {}, h("a", { href: `#group-${name}` }, name));
  byId("operations").append(section);
  byId("groups").append(link);
  sections.push({ section, link, panels: own });
}

frame(() => {
  for (const panel of panels.values()) if (panel.shell) panel.command();
});
addEventListener("hashchange", route);
byId("filter").addEventListener("input", filter);
addEventListener("keydown", (event) => {
  const isInField = /^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement?.tagName ?? "");
  if (event.key !== "/" || isInField || event.ctrlKey || event.metaKey) return;
  event.preventDefault();
  byId("filter").focus();
});

try {
  const description = await get("/v1/openapi.json");
  byId("title").textContent = `API of ${description.info.title} ${description.info.version}`;
  byId("about").textContent = description.info.description;
  for (const group of groups(description)) add(description, group);
  route();
} catch (error) {
  byId("notice").textContent = error.message;
  byId("notice").hidden = false;
}
