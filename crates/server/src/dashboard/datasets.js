// Datasets, their indexes with their use, and what kind of index would fit.

import { dataset, get } from "./api.js";
import { bar, byId, h, scrolls, show, table } from "./dom.js";
import { bytes, count, duration, percent, short } from "./units.js";

function summary(name, stats) {
  const data = stats.trees.find((tree) => tree.name === "data");
  const entries = (data?.memtable.entries ?? 0)
    + (data?.levels ?? []).reduce((sum, level) => sum + level.entries, 0);
  const { definition, strategy } = stats;
  return {
    name,
    stats,
    key: `${definition.key}: ${definition.key_type}`,
    entries,
    bytes: stats.trees.reduce((sum, tree) => sum + tree.bytes, 0),
    indexes: definition.indexes.length,
    maintenance: `${strategy.automatic ? "auto, now " : ""}${strategy.maintenance}`,
    obsolete: strategy.known_obsolete,
    // A failing job or a damaged tree is what a person must see first.
    health: stats.trees.find((tree) => tree.damage)?.damage
      ?? stats.failures[0]?.error ?? strategy.error ?? "ok",
  };
}

export class Datasets {
  constructor(state) {
    this.state = state;
    this.detail = byId("dataset-detail");
  }

  update() {
    const { stat } = this.state;
    if (!stat) return;
    const rows = Object.entries(stat.datasets ?? {}).map(([name, stats]) => summary(name, stats));
    this.chosen ??= rows[0]?.name;
    // A list that is drawn anew each second would take the focus away.
    const focused = document.activeElement?.dataset?.dataset;
    show(byId("datasets-list"), h("div", { class: "scroll" }, table({
      caption: "Datasets",
      empty: "There is no dataset yet.",
      rows,
      current: this.chosen,
      key: (row) => row.name,
      columns: [
        { title: "Dataset", cell: (row) => this.#button(row.name), head: true },
        { title: "Key", cell: (row) => row.key, style: "mono" },
        { title: "Entries", cell: (row) => count(row.entries), number: true },
        { title: "Size", cell: (row) => bytes(row.bytes), number: true },
        { title: "Indexes", cell: (row) => row.indexes, number: true },
        { title: "Maintenance", cell: (row) => row.maintenance },
        { title: "Known obsolete", cell: (row) => count(row.obsolete), number: true },
        { title: "Health", cell: (row) => h("span", { class: row.health === "ok" ? "good" : "bad" }, row.health) },
      ],
    })));
    if (!byId("datasets-list").dataset.listens) {
      byId("datasets-list").dataset.listens = "yes";
      byId("datasets-list").addEventListener("click", ({ target }) => this.#choose(target.dataset?.dataset));
    }
    if (focused) byId("datasets-list").querySelector(`[data-dataset="${CSS.escape(focused)}"]`)?.focus();
    const row = rows.find(({ name }) => name === this.chosen);
    if (row && this.shown !== this.chosen) this.#load(row);
    if (!row) this.chosen = undefined;
  }

  #button(name) {
    return h("button", { type: "button", class: "link", "data-dataset": name, "aria-pressed": String(name === this.chosen) }, name);
  }

  #choose(name) {
    if (!name) return;
    this.chosen = name;
    this.update();
  }

  /** The advice reads some thousand blocks: it is asked for once, and on request. */
  async #load(row) {
    this.shown = row.name;
    show(this.detail, h("p", { class: "muted" }, `Reads samples of ${row.name} …`));
    const advice = await this.state.try(get(dataset(row.name, "/advise")));
    if (this.shown !== row.name) return;
    if (!advice) {
      this.shown = undefined;
      return;
    }
    this.detail.replaceChildren(this.#indexes(row, advice), this.#costs(advice));
  }

  #indexes(row, advice) {
    const { stats, name } = row;
    const size = (index) => {
      const tree = stats.trees.find((one) => one.name === `${index.kind} index of ${index.path}`);
      return tree ? bytes(tree.bytes) : "in the data";
    };
    const declared = new Map(stats.definition.indexes.map((index) => [index.path, index]));
    const again = h("button", { type: "button", class: "small", onclick: () => this.#load(row) }, "Measure again");
    return h("section", { class: "panel", "aria-label": `Indexes of ${name}` },
      h("div", { class: "panel-head" }, h("h2", {}, `Indexes of ${name}`), again),
      h("p", { class: "muted" }, `${count(advice.counted.puts)} puts, ${count(advice.counted.deletes)} deletions and `
        + `${count(advice.counted.gets)} gets by key were counted; the mix of operations is ${advice.mix}.`),
      scrolls(`Indexes of ${name} and their use`, table({
        caption: `Indexes of ${name}, their use, and advice`,
        empty: "No field is indexed, and none was queried.",
        rows: advice.attributes,
        columns: [
          { title: "Field", cell: (one) => one.path, head: true, style: "mono" },
          { title: "Index", cell: (one) => one.now ?? "none" },
          { title: "Type", cell: (one) => declared.get(one.path)?.type ?? "" },
          { title: "Size", cell: (one) => (declared.has(one.path) ? size(declared.get(one.path)) : ""), number: true },
          { title: "Lookups", cell: (one) => count(one.counted.lookups), number: true },
          { title: "Ranges", cell: (one) => count(one.counted.ranges), number: true },
          { title: "By scan", cell: (one) => count(one.counted.scans), number: true },
          { title: "Values", cell: (one) => `≥ ${short(one.distinct)}`, number: true },
          { title: "Most frequent", cell: (one) => percent(one.top_share), number: true },
          { title: "Advice", cell: advised },
          { title: "Why", cell: (one) => one.why, style: "prose" },
        ],
      })));
  }

  /** What an operation would cost with each kind of index. */
  #costs(advice) {
    const compared = advice.attributes.filter((one) => one.costs.length > 1);
    if (compared.length === 0) return "";
    return h("section", { class: "panel", "aria-labelledby": "costs-title" },
      h("h2", { id: "costs-title" }, "Expected costs of an operation"),
      h("p", { class: "muted" }, "By kind of index, of the counted mix of writes and queries. The shortest bar costs least."),
      h("div", { class: "costs" }, compared.map(costsOf)));
  }
}

function advised(one) {
  if (one.change === "keep" || one.change === "none") return h("span", { class: "muted" }, "keep");
  return h("strong", {}, `${one.change} to ${one.advised}`);
}

function costsOf({ path, now, advised: best, costs }) {
  const most = Math.max(...costs.map((cost) => cost.operation_us));
  const marks = ({ kind }) => [kind === now && "in use", kind === best && kind !== now && "advised"].filter(Boolean).join(", ");
  return scrolls(`Costs of ${path}`, table({
    caption: `Costs of kinds of index of ${path}`,
    rows: costs,
    columns: [
      { title: path, cell: (cost) => cost.kind, head: true },
      { title: "To scale", cell: (cost) => bar(cost.operation_us / most) },
      { title: "Operation", cell: (cost) => duration(cost.operation_us / 1e6), number: true },
      { title: "Write", cell: (cost) => duration(cost.write_us / 1e6), number: true },
      { title: "Query", cell: (cost) => duration(cost.query_us / 1e6), number: true },
      { title: "State", cell: (cost) => h("span", { class: "tag" }, marks(cost)) },
    ],
  }));
}
