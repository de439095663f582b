// Elements from code. Text is always text: nothing from the store is read as markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== undefined && child !== null));
  return element;
}

/** An element: `h("p", {class: "muted"}, "text", child)`. `onclick` adds a listener. */
export function h(name, attributes, ...children) {
  return fill(document.createElement(name), attributes, children);
}

/** An element of a drawing. */
export function svg(name, attributes, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

export function byId(id) {
  return document.getElementById(id);
}

/**
 * A table. A column is `{title, cell, number}`: what it shows of a row, and whether it is a number.
 * `rows` of length 0 give the text `empty` instead.
 */
export function table({ caption, columns, rows, empty, current, key }) {
  if (rows.length === 0 && empty) return h("p", { class: "empty" }, empty);
  const heads = columns.map(({ title, number }) =>
    h("th", { scope: "col", class: number && "number" }, title));
  const lines = rows.map((row) => {
    const cells = columns.map(({ cell, number, head, style }) => {
      const content = cell(row);
      const kind = [number && "number", style].filter(Boolean).join(" ");
      return h(head ? "th" : "td", { class: kind || undefined, scope: head && "row" },
        content instanceof Node ? content : String(content ?? ""));
    });
    return h("tr", { class: current !== undefined && key(row) === current && "current" }, cells);
  });
  return h("table", {},
    h("caption", { class: "hidden" }, caption),
    h("thead", {}, h("tr", {}, heads)),
    h("tbody", {}, lines));
}

/** A share from 0 to 1 as a bar. The number itself stands beside it. */
export function bar(share) {
  return svg("svg", { viewBox: "0 0 100 8", preserveAspectRatio: "none", class: "bar", "aria-hidden": "true" },
    svg("rect", { width: 100, height: 8, class: "track" }),
    svg("rect", { width: (Math.min(share, 1) * 100).toFixed(1), height: 8 }));
}

/** A part of the page that scrolls for itself, also by keys. */
export function scrolls(label, ...content) {
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": label }, ...content);
}

/** Gives a select these options, and keeps its choice if it is still one of them. */
export function setOptions(select, options) {
  const now = [...select.options].map((option) => option.value);
  if (now.length === options.length && now.every((value, at) => value === options[at])) return;
  const before = select.value;
  select.replaceChildren(...options.map((value) => h("option", { value }, value)));
  if (options.includes(before)) select.value = before;
}

/** Replaces the children only if what they show has changed: a selection of text stays. */
export function show(element, ...children) {
  const next = h("div", {}, ...children);
  if (next.innerHTML === element.innerHTML) return;
  const { scrollTop, scrollLeft } = element;
  element.replaceChildren(...next.childNodes);
  element.scrollTop = scrollTop;
  element.scrollLeft = scrollLeft;
}

/** A colour of the style sheet as a canvas takes it. */
export function colour(name) {
  const probe = byId("main");
  probe.style.setProperty("outline-color", `var(${name})`);
  const found = getComputedStyle(probe).outlineColor;
  probe.style.removeProperty("outline-color");
  return found;
}
