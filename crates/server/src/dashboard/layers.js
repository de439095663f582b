// The layers of a dataset as they are now: a row for each sorted run, drawn to scale.

import { Refused, ask, dataset, get } from "./api.js";
import { byId, h, scrolls, setOptions, show, svg, table } from "./dom.js";
import { runningJobs } from "./jobs.js";
import { PlotMap } from "./map.js";
import { age, bytes, count, counted, short } from "./units.js";

/** A table is marked as new for so long after the page has first seen it, in milliseconds. */
const NEW = 4000;

/** The width of a drawing in its own units. */
const WIDTH = 1000;

/** Tables that a list shows; there may be many thousands. */
const LISTED = 500;

/** The runs of a tree, newest first. */
function runs(tree) {
  const all = [];
  for (const one of tree.tables) {
    const last = all.at(-1);
    if (last && last.run === one.run) last.tables.push(one);
    else all.push({ level: one.level, run: one.run, tables: [one] });
  }
  for (const run of all) {
    run.bytes = run.tables.reduce((sum, one) => sum + one.bytes, 0);
    run.entries = run.tables.reduce((sum, one) => sum + one.entries, 0);
    run.deletes = run.tables.reduce((sum, one) => sum + one.deletes, 0);
    run.first = Math.min(...run.tables.map((one) => one.min_seq));
    run.last = Math.max(...run.tables.map((one) => one.max_seq));
    run.ages = run.tables.map((one) => one.seconds_ago).filter((one) => one !== undefined);
  }
  return all;
}

function bounds(one) {
  return one.first === null ? "" : `${one.first} … ${one.last}`;
}

function describe(one) {
  const parts = [`table ${one.number}`, bytes(one.bytes), counted(one.entries, "entry")];
  if (one.deletes > 0) parts.push(`${count(one.deletes)} of them deletions`);
  parts.push(`writes ${count(one.min_seq)} to ${count(one.max_seq)}`);
  if (one.first !== null) parts.push(bounds(one));
  if (one.seconds_ago !== undefined) parts.push(`${age(one.seconds_ago)} old`);
  return parts.join(" · ");
}

/** What a tree shows. Lives as long as the tree has its name. */
class TreeView {
  constructor(name, isNew) {
    this.isNew = isNew;
    this.sizes = h("p", { class: "muted" });
    this.rows = scrolls(`Runs of ${name}`);
    this.pointed = h("p", { class: "hint pointed" });
    this.list = scrolls(`Tables of ${name}`);
    this.list.classList.add("tall");
    this.details = h("details", {}, h("summary", {}, "All tables"), this.list);
    this.details.addEventListener("toggle", () => this.tree && this.#list());
    this.rows.addEventListener("pointerover", ({ target }) => {
      const one = this.tree.tables.find(({ number }) => String(number) === target.dataset?.number);
      if (one) this.pointed.textContent = describe(one);
    });
    this.element = h("section", { class: "panel tree", "aria-label": name },
      h("div", { class: "panel-head" }, h("h2", {}, name), this.sizes),
      this.rows, h("div", { class: "tree-foot" }, this.details, this.pointed));
  }

  update(tree) {
    this.tree = tree;
    const all = runs(tree);
    const entries = all.reduce((sum, run) => sum + run.entries, 0);
    this.sizes.textContent = [bytes(tree.bytes), counted(tree.tables.length, "table"),
      counted(all.length, "run"), `${short(entries)} ${entries === 1 ? "entry" : "entries"}`].join(" · ");
    const most = Math.max(tree.memtable.bytes, ...all.map((run) => run.bytes), 1);
    const memory = {
      level: "Memory", bytes: tree.memtable.bytes, entries: tree.memtable.entries, most,
    };
    const drawn = table({
      caption: "Runs, newest first",
      rows: [memory, ...all.map((run) => ({ ...run, most }))],
      columns: [
        { title: "Level", cell: ({ level }) => (level === "Memory" ? level : `L${level}`), head: true },
        { title: "Size to scale", cell: (row) => this.#draw(row), style: "drawing" },
        { title: "Size", cell: (row) => bytes(row.bytes), number: true },
        { title: "Tables", cell: (row) => (row.tables ? count(row.tables.length) : ""), number: true },
        { title: "Entries", cell: (row) => count(row.entries), number: true },
        { title: "Deletions", cell: (row) => (row.tables ? count(row.deletes) : ""), number: true },
        { title: "Writes", cell: (row) => (row.tables ? `${count(row.first)} – ${count(row.last)}` : ""), number: true },
        { title: "Age", cell: ({ ages }) => (ages?.length ? range(ages) : ""), number: true },
      ],
    });
    drawn.classList.add("levels");
    show(this.rows, drawn, tree.damage ? h("p", { class: "bad" }, tree.damage) : null);
    if (this.details.open) this.#list();
  }

  /** The tables of a run side by side. Lengths grow with the square root of the size. */
  #draw(row) {
    const length = Math.max(Math.sqrt(row.bytes / row.most) * WIDTH, row.bytes > 0 ? 3 : 0);
    const drawing = svg("svg", { viewBox: `0 0 ${WIDTH} 16`, preserveAspectRatio: "none", "aria-hidden": "true" });
    if (!row.tables) {
      drawing.append(svg("rect", { x: 0, y: 0, width: length.toFixed(1), height: 16, class: "memory" }));
      return drawing;
    }
    const gap = Math.min(1.5, (length / row.tables.length) * 0.2);
    let x = 0;
    for (const one of row.tables) {
      const width = length * (one.bytes / Math.max(row.bytes, 1));
      drawing.append(svg("rect", {
        x: x.toFixed(1), y: 0, width: Math.max(width - gap, 0.8).toFixed(1), height: 16,
        class: `l${Math.min(row.level, 6)}${this.isNew(one.number) ? " new" : ""}`,
        "data-number": one.number,
      }));
      x += width;
    }
    return drawing;
  }

  #list() {
    const { tables } = this.tree;
    const left = tables.length - LISTED;
    show(this.list, table({
      caption: "Tables, newest run first",
      empty: "There are no tables yet.",
      rows: tables.slice(0, LISTED),
      columns: [
        { title: "Table", cell: (one) => one.number, number: true, head: true },
        { title: "Level", cell: (one) => `L${one.level}` },
        { title: "Run", cell: (one) => one.run, number: true },
        { title: "Size", cell: (one) => bytes(one.bytes), number: true },
        { title: "Entries", cell: (one) => count(one.entries), number: true },
        { title: "Deletions", cell: (one) => count(one.deletes), number: true },
        { title: "Writes", cell: (one) => `${count(one.min_seq)} – ${count(one.max_seq)}`, number: true },
        { title: "Bounds", cell: bounds, style: "mono clip" },
        { title: "Age", cell: (one) => age(one.seconds_ago), number: true },
      ],
    }), left > 0 ? h("p", { class: "muted" }, `and ${counted(left, "more table")}`) : null);
  }
}

function range(ages) {
  const [low, high] = [age(Math.min(...ages)), age(Math.max(...ages))];
  return low === high ? low : `${low} – ${high}`;
}

export class Layers {
  #trees = new Map();
  #seen = new Map();
  #boxes = [];
  #hiddenLevels = new Set();

  constructor(state) {
    this.state = state;
    this.select = byId("layers-dataset");
    this.field = byId("boxes-field");
    this.map = new PlotMap(byId("boxes-map"), { label: "Areas of tables" });
    this.select.addEventListener("change", () => this.#restart());
    this.field.addEventListener("change", () => this.#restart());
    byId("layers-compact").addEventListener("click", () => this.#compact());
  }

  async update() {
    const { stat, names, isAdmin } = this.state;
    setOptions(this.select, names);
    byId("layers-compact").hidden = !isAdmin;
    const name = this.select.value;
    byId("layers-none").hidden = !stat || Boolean(name);
    byId("layers-jobs").hidden = !name;
    if (!name || !stat) return;
    const jobs = (stat.jobs ?? []).filter((job) => job.tree?.startsWith(`${name}/`));
    show(byId("layers-jobs"), runningJobs(jobs));
    // A slow answer is not asked for twice.
    if (this.asking) return;
    this.asking = true;
    try {
      const { trees } = await get(dataset(name, "/levels"));
      if (name !== this.select.value) return;
      this.#show(trees);
      await this.#showBoxes(name);
    } finally {
      this.asking = false;
    }
  }

  #restart() {
    this.#trees.clear();
    this.#seen.clear();
    this.fitted = undefined;
    byId("trees").replaceChildren();
    this.state.refresh();
  }

  #show(trees) {
    const now = Date.now();
    // What is there when the page looks for the first time is not new.
    const first = this.#seen.size === 0 ? 0 : now;
    for (const { number } of trees.flatMap((tree) => tree.tables)) {
      if (!this.#seen.has(number)) this.#seen.set(number, first);
    }
    const isNew = (number) => Date.now() - this.#seen.get(number) < NEW;
    const names = trees.map((tree) => tree.name);
    for (const [name, view] of this.#trees) {
      if (names.includes(name)) continue;
      view.element.remove();
      this.#trees.delete(name);
    }
    for (const tree of trees) {
      let view = this.#trees.get(tree.name);
      if (!view) {
        view = new TreeView(tree.name, isNew);
        this.#trees.set(tree.name, view);
        byId("trees").append(view.element);
      }
      view.update(tree);
    }
  }

  async #showBoxes(name) {
    const indexes = this.state.stat.datasets?.[name]?.definition.indexes ?? [];
    const spatial = indexes.filter(({ kind }) => /^(spatial|space-time)/.test(kind) && !kind.endsWith(":embedded"));
    setOptions(this.field, spatial.map(({ path }) => path));
    const panel = byId("boxes-panel");
    panel.hidden = spatial.length === 0;
    if (panel.hidden) return;
    try {
      const path = dataset(name, `/boxes?field=${encodeURIComponent(this.field.value)}`);
      this.#boxes = (await get(path)).boxes;
    } catch (error) {
      // An index without a tree of its own has no boxes.
      if (!(error instanceof Refused) || error.status !== 400) throw error;
      panel.hidden = true;
      return;
    }
    const { type } = spatial.find(({ path }) => path === this.field.value);
    this.map.isPlane = type.startsWith("plane");
    this.#levels();
    this.#drawBoxes();
    const place = `${name} ${this.field.value}`;
    if (this.fitted !== place && this.#boxes.length > 0) {
      this.fitted = place;
      this.map.fit();
    }
  }

  #levels() {
    const levels = [...new Set(this.#boxes.map((box) => box.level))].sort((a, b) => a - b);
    const place = byId("boxes-levels");
    if (place.dataset.levels === levels.join()) return;
    place.dataset.levels = levels.join();
    place.replaceChildren(h("legend", { class: "hidden" }, "Levels"), ...levels.map((level) => {
      const box = h("input", { type: "checkbox", checked: !this.#hiddenLevels.has(level) });
      box.addEventListener("change", () => {
        if (box.checked) this.#hiddenLevels.delete(level);
        else this.#hiddenLevels.add(level);
        this.#drawBoxes();
      });
      return h("label", {}, box, h("span", { class: `key l${Math.min(level, 6)}` }), `Level ${level}`);
    }));
  }

  #drawBoxes() {
    const shown = this.#boxes.filter((box) => !this.#hiddenLevels.has(box.level));
    this.map.setBoxes(shown.map((box) => ({
      ...box,
      text: `table ${box.table}, L${box.level} · ${bytes(box.bytes)} · ${counted(box.entries, "entry")}`,
    })));
  }

  async #compact() {
    await this.state.try(ask(dataset(this.select.value, "/compact"), { method: "POST" }));
    this.state.refresh();
  }
}
