// Queries: a condition with completion, answers as table, JSON and map, and the plan.

import { ask, dataset, get } from "./api.js";
import { Completion } from "./complete.js";
import { byId, h, setOptions, show } from "./dom.js";
import { PlotMap } from "./map.js";
import { planView } from "./plan.js";
import { pointOf, pointPaths } from "./points.js";
import { count, counted, duration } from "./units.js";

const TABS = ["table", "json", "map", "plan"];

/** Columns of a table; records may have hundreds of fields. */
const COLUMNS = 40;

/** Records whose values are proposed by completion. */
const SAMPLED = 100;

/** JSON as the server wrote it: integers keep all their digits. */
export function exactly(text) {
  return JSON.parse(text, (_, value, context) => {
    const isRounded = typeof value === "number" && context?.source && !Number.isSafeInteger(value)
      && /^-?\d+$/.test(context.source);
    return isRounded && JSON.rawJSON ? JSON.rawJSON(context.source) : value;
  });
}

/** A value of a cell. */
export function shown(value) {
  if (value === undefined) return "";
  if (value === null || typeof value === "number" || typeof value === "boolean") return String(value);
  if (typeof value === "string") return value;
  return JSON.stringify(value);
}

/** The fields of a record by their paths; objects in it are opened. */
function flat(record, prefix = "", into = new Map()) {
  for (const [name, value] of Object.entries(record)) {
    const isObject = value && typeof value === "object" && !Array.isArray(value) && !JSON.isRawJSON?.(value);
    if (isObject) flat(value, `${prefix}${name}.`, into);
    else into.set(prefix + name, value);
  }
  return into;
}

/** Fields and values of a dataset that conditions are made of. */
export async function knownOf(name, stats) {
  const [{ fields }, sample] = await Promise.all([
    get(dataset(name, "/fields")),
    get(dataset(name, `/records?limit=${SAMPLED}`)),
  ]);
  const values = new Map();
  for (const record of sample.records) {
    for (const [path, value] of flat(record)) {
      if (value === null || typeof value === "object" || String(value).length > 60) continue;
      const all = values.get(path) ?? new Set();
      values.set(path, all.add(value));
    }
  }
  return {
    fields: fields.filter(({ types }) => types.join() !== "object")
      .map(({ path, types }) => ({ path: path.replaceAll("[]", ""), types })),
    values: new Map([...values].map(([path, all]) => [path, [...all].slice(0, 30)])),
    points: pointPaths(stats),
  };
}

export const NOTHING_KNOWN = { fields: [], values: new Map(), points: [] };

export class Query {
  #known = NOTHING_KNOWN;
  #numbers = 0;

  constructor(state) {
    this.state = state;
    this.dataset = byId("query-dataset");
    this.map = new PlotMap(byId("answer-map"), { label: "Records of the answer" });
    new Completion(byId("query-where"), byId("query-where-list"), () => this.#known);
    byId("query-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#run();
    });
    byId("query-count").addEventListener("click", () => this.#count());
    byId("query-next").addEventListener("click", () => this.#run(this.next));
    this.dataset.addEventListener("change", () => this.#learn());
    for (const tab of TABS) byId(`tab-${tab}`).addEventListener("click", () => this.#open(tab));
    byId("tab-table").parentElement.addEventListener("keydown", (event) => this.#key(event));
  }

  update() {
    setOptions(this.dataset, this.state.names);
    if (this.dataset.value && this.dataset.value !== this.learnt) this.#learn();
  }

  async #learn() {
    const name = this.dataset.value;
    this.learnt = name;
    this.#known = NOTHING_KNOWN;
    const known = await this.state.try(knownOf(name, this.state.stat?.datasets?.[name]));
    if (known && this.learnt === name) this.#known = known;
  }

  #asked() {
    const text = (id) => byId(id).value.trim() || undefined;
    return {
      where: text("query-where") ? [text("query-where")] : [],
      order: text("query-order"),
      select: text("query-select"),
    };
  }

  async #count() {
    const where = this.#asked().where.map((one) => `where=${encodeURIComponent(one)}`).join("&");
    const begin = performance.now();
    await this.#answer(async () => {
      const found = await get(dataset(this.dataset.value, `/count?${where}`));
      this.#say(`${counted(found.count, "record")} in ${duration((performance.now() - begin) / 1000)}.`);
    });
  }

  /** Asks for a page: the first, or the one with a token. */
  async #run(after) {
    const name = this.dataset.value;
    const limit = Number(byId("query-limit").value) || 50;
    const body = { ...this.#asked(), limit, explain: true, after };
    const begin = performance.now();
    await this.#answer(async () => {
      const response = await ask(dataset(name, "/query"), { method: "POST", body });
      const page = exactly(await response.text());
      const took = duration((performance.now() - begin) / 1000);
      const first = after ? this.#numbers : 0;
      this.#numbers = first + page.records.length;
      this.next = page.next;
      const which = page.records.length > 0 && after ? `${count(first + 1)} to ${count(this.#numbers)}` : counted(page.records.length, "record");
      this.#say(`${after ? `Records ${which}` : which}${page.next ? ", there may be more" : ""}, in ${took}.`);
      this.#show(page, name);
    });
  }

  async #answer(work) {
    if (!this.dataset.value) {
      this.#say("There is no dataset yet.", true);
      return;
    }
    this.#say("Asks …");
    try {
      await work();
    } catch (error) {
      this.#say(error.message, true);
    }
  }

  #say(text, isBad = false) {
    const status = byId("query-status");
    status.textContent = text;
    status.classList.toggle("bad", isBad);
  }

  #show(page, name) {
    byId("query-result").hidden = false;
    byId("query-next").hidden = !page.next;
    show(byId("answer-table"), recordsTable(page.records));
    show(byId("answer-json"), h("pre", {}, page.records.map((record) => jsonText(record))));
    show(byId("answer-plan"), page.explain ? planView(page.explain) : null);
    const paths = pointPaths(this.state.stat?.datasets?.[name]);
    const points = page.records.map((record) => {
      const place = pointOf(record, paths);
      return place && { x: place[0], y: place[1], text: JSON.stringify(record).slice(0, 160) };
    }).filter(Boolean);
    byId("tab-map").hidden = points.length === 0;
    if (points.length === 0 && !byId("answer-map").hidden) this.#open("table");
    this.map.setPoints(points);
    this.map.fit();
  }

  #open(tab) {
    for (const one of TABS) {
      const isOpen = one === tab;
      byId(`tab-${one}`).setAttribute("aria-selected", String(isOpen));
      byId(`tab-${one}`).tabIndex = isOpen ? 0 : -1;
      byId(`answer-${one}`).hidden = !isOpen;
    }
    if (tab === "map") this.map.fit();
  }

  #key(event) {
    const open = TABS.filter((tab) => !byId(`tab-${tab}`).hidden);
    const now = open.findIndex((tab) => byId(`tab-${tab}`) === document.activeElement);
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (now < 0 || !by) return;
    event.preventDefault();
    const next = open[(now + by + open.length) % open.length];
    this.#open(next);
    byId(`tab-${next}`).focus();
  }
}

function recordsTable(records) {
  if (records.length === 0) return h("p", { class: "empty" }, "No record meets the condition.");
  const rows = records.map((record) => flat(record));
  const paths = [...new Set(rows.flatMap((row) => [...row.keys()]))];
  const isNumber = (path) => rows.every((row) => !row.has(path) || typeof row.get(path) === "number" || JSON.isRawJSON?.(row.get(path)));
  const columns = paths.slice(0, COLUMNS).map((path) => [path, isNumber(path)]);
  return h("table", {},
    h("caption", { class: "hidden" }, "Records of the answer"),
    h("thead", {}, h("tr", {}, columns.map(([path, number]) => h("th", { scope: "col", class: number && "number" }, path)))),
    h("tbody", {}, rows.map((row) => h("tr", {}, columns.map(([path, number]) => {
      const text = shown(row.get(path));
      return h("td", { class: number ? "number" : "clip", title: text.length > 40 && text }, text);
    })))));
}

/** JSON with its names apart. */
function jsonText(record) {
  const text = JSON.stringify(record, undefined, 2);
  const parts = text.split(/^(\s*"(?:[^"\\]|\\.)*":)/m);
  return [...parts.map((part, at) => (at % 2 ? h("span", { class: "name" }, part) : part)), "\n"];
}
