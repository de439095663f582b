// Completion of a condition: fields, operators, values that were seen, and words.

import { h } from "./dom.js";

const OPERATORS = ["=", "!=", "<", "<=", ">", ">=", "^=", "in (", "contains", "exists", "is null", "is not null"];
const NUMBERS = ["=", "<", "<=", ">", ">=", "!=", "in (", "exists", "is null", "is not null"];
const WITHOUT_VALUE = /^(exists|null)$/;
const COMPARES = /^(=|!=|<|<=|>|>=|\^=|contains|in)$/;
const PIECES = /"(?:[^"\\]|\\.)*"?|[()]|<=|>=|!=|\^=|[=<>]|[^\s()=<>!^"]+/g;

/** Proposals that are shown. */
const SHOWN = 12;

/** The pieces before the caret, and the one that is being written. */
function pieces(text, caret) {
  const before = text.slice(0, caret);
  const all = [...before.matchAll(PIECES)].map((found) => ({ text: found[0], at: found.index }));
  const last = all.at(-1);
  const open = last && last.at + last.text.length === before.length && !/^[()]$/.test(last.text);
  const word = open ? all.pop() : { text: "", at: before.length };
  return { before: all.map((piece) => piece.text), word };
}

/** What may follow: `field`, `operator`, `value` or `joint`, and the field that it is about. */
function expects(before) {
  let [state, field] = ["field", ""];
  for (const piece of before) {
    const small = piece.toLowerCase();
    if (small === "and" || small === "or") state = "field";
    else if (piece === "(") state = state === "list" ? "value" : "field";
    else if (piece === ")") state = "joint";
    else if (state === "field" && small === "not") state = "field";
    else if (state === "field") [state, field] = ["operator", piece];
    else if (state === "operator" && WITHOUT_VALUE.test(small)) state = "joint";
    else if (state === "operator" && COMPARES.test(small)) state = small === "in" ? "list" : "value";
    else if (state === "operator") state = "operator";
    else if (state === "value") state = "joint";
  }
  return { state, field };
}

/** A value as it is written in a condition. */
function written(value) {
  const text = String(value);
  return /^[^\s()",=<>!^]+$/.test(text) ? text : JSON.stringify(text);
}

/** What may stand at the caret. `known` has `fields` (`{path, types}`) and `values` by path. */
export function proposals(text, caret, known) {
  const { before, word } = pieces(text, caret);
  const { state, field } = expects(before);
  const types = known.fields.find(({ path }) => path === field)?.types ?? [];
  let all = [];
  if (state === "field") {
    all = known.fields.map(({ path, types: of }) => ({ text: path, note: of.join(", ") }));
    const points = known.points.map((path) => ({ text: `within(${path}, rect(`, note: "area" }));
    all.push(...points, { text: "not", note: "" });
  } else if (state === "operator") {
    const isNumber = types.length > 0 && types.every((type) => type === "int" || type === "float" || type === "number");
    all = (isNumber ? NUMBERS : OPERATORS).map((one) => ({ text: one, note: "" }));
  } else if (state === "value" || state === "list") {
    all = (known.values.get(field) ?? []).map((value) => ({ text: written(value), note: "seen" }));
    if (types.includes("bool")) all.push({ text: "true", note: "" }, { text: "false", note: "" });
    if (state === "list") all = [{ text: "(", note: "" }];
  } else all = [{ text: "and", note: "" }, { text: "or", note: "" }];
  const wanted = word.text.toLowerCase();
  const begins = all.filter((one) => one.text.toLowerCase().startsWith(wanted));
  const has = all.filter((one) => !begins.includes(one) && one.text.toLowerCase().includes(wanted));
  const found = wanted ? [...begins, ...has] : all;
  return { at: word.at, found: found.filter((one) => one.text !== word.text).slice(0, SHOWN) };
}

/** Makes a text field complete what is written, as a combobox with a list. */
export class Completion {
  #found = [];
  #at = 0;
  #chosen = -1;

  /** `known` returns what proposals are made of. */
  constructor(input, list, known) {
    Object.assign(this, { input, list, known });
    input.addEventListener("input", () => this.#propose());
    input.addEventListener("keydown", (event) => this.#key(event));
    input.addEventListener("blur", () => this.#close());
    list.addEventListener("pointerdown", (event) => {
      // The field keeps the focus.
      event.preventDefault();
      const option = event.target.closest("[role=option]");
      if (option) this.#take([...list.children].indexOf(option));
    });
  }

  #propose() {
    const { at, found } = proposals(this.input.value, this.input.selectionStart, this.known());
    this.#at = at;
    this.#found = found;
    this.#chosen = -1;
    this.list.hidden = found.length === 0;
    this.input.setAttribute("aria-expanded", String(found.length > 0));
    this.input.removeAttribute("aria-activedescendant");
    this.list.replaceChildren(...found.map(({ text, note }, nth) =>
      h("li", { role: "option", id: `${this.list.id}-${nth}`, "aria-selected": "false" },
        h("span", { class: "mono" }, text), h("span", { class: "muted" }, note))));
  }

  #close() {
    this.#found = [];
    this.list.hidden = true;
    this.input.setAttribute("aria-expanded", "false");
    this.input.removeAttribute("aria-activedescendant");
  }

  #choose(nth) {
    this.#chosen = (nth + this.#found.length) % this.#found.length;
    [...this.list.children].forEach((option, at) => {
      option.setAttribute("aria-selected", String(at === this.#chosen));
    });
    const option = this.list.children[this.#chosen];
    option.scrollIntoView({ block: "nearest" });
    this.input.setAttribute("aria-activedescendant", option.id);
  }

  #take(nth) {
    const { text } = this.#found[nth];
    const caret = this.input.selectionStart;
    const begin = this.input.value.slice(0, this.#at) + text + (text.endsWith("(") ? "" : " ");
    this.input.value = begin + this.input.value.slice(caret).trimStart();
    this.input.setSelectionRange(begin.length, begin.length);
    this.#propose();
  }

  #key(event) {
    const isOpen = this.#found.length > 0;
    if (event.key === " " && event.ctrlKey) this.#propose();
    else if (event.key === "ArrowDown" && isOpen) this.#choose(this.#chosen + 1);
    else if (event.key === "ArrowDown") this.#propose();
    else if (event.key === "ArrowUp" && isOpen) this.#choose(Math.max(this.#chosen, 0) - 1);
    else if (event.key === "Escape" && isOpen) this.#close();
    else if (event.key === "Enter" && isOpen && this.#chosen >= 0) this.#take(this.#chosen);
    else {
      if (event.key === "Enter") this.#close();
      return;
    }
    event.preventDefault();
  }
}
