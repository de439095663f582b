// Consumers of changes with their lag, and named snapshots.

import { dataset, get } from "./api.js";
import { bar, byId, h, show, svg, table } from "./dom.js";
import { age, bytes, count, percent } from "./units.js";

/** A line of the last minutes. */
function spark(values) {
  const most = Math.max(...values, 1);
  const points = values.map((value, at) =>
    `${((at / Math.max(values.length - 1, 1)) * 118 + 1).toFixed(1)},${(23 - (value / most) * 21).toFixed(1)}`);
  return svg("svg", { viewBox: "0 0 120 24", width: 120, height: 24, class: "spark", "aria-hidden": "true" },
    svg("polyline", { points: points.join(" ") }));
}

export class Consumers {
  constructor(state) {
    this.state = state;
  }

  /** The consumers, with what their connections do at the moment. */
  async #consumers() {
    const { stat, names } = this.state;
    const known = stat.consumers?.map((one) => one.dataset).filter(Boolean);
    const datasets = [...new Set(known ?? names)];
    const lists = await Promise.all(datasets.map((name) => get(dataset(name, "/consumers"))));
    const active = lists.flatMap(({ consumers }, at) => consumers.map((one) => ({ ...one, dataset: datasets[at] })));
    // One of an earlier version may belong to no dataset.
    return [...active, ...(stat.consumers ?? []).filter((one) => !one.dataset)];
  }

  async update() {
    const { stat, history } = this.state;
    if (!stat) return;
    const consumers = await this.#consumers();
    show(byId("consumers-list"), table({
      caption: "Consumers of changes",
      empty: "No consumer of changes is registered. One is made by reading changes with a name: "
        + "GET /v1/datasets/DATASET/changes?consumer=NAME.",
      rows: consumers,
      columns: [
        { title: "Consumer", cell: (one) => one.name, head: true },
        { title: "Dataset", cell: (one) => one.dataset ?? "" },
        { title: "Lag", cell: (one) => bytes(one.lag_bytes), number: true },
        { title: "Last minutes", cell: (one) => spark(history.lags.get(`${one.dataset ?? ""}/${one.name}`) ?? []) },
        { title: "Oldest unread", cell: (one) => (one.unread_seconds === null ? "none" : age(one.unread_seconds)), number: true },
        { title: "Log kept", cell: (one) => kept(one) },
        { title: "Connections", cell: (one) => count(one.connections), number: true },
        { title: "Not acknowledged", cell: (one) => count(one.outstanding), number: true },
        { title: "Position", cell: (one) => one.position, style: "mono" },
      ],
    }));
    show(byId("snapshots-list"), table({
      caption: "Named snapshots",
      empty: "There is no named snapshot.",
      rows: stat.snapshots ?? [],
      columns: [
        { title: "Name", cell: (one) => one.name, head: true },
        { title: "Up to write", cell: (one) => count(one.seq), number: true },
        { title: "Tables", cell: (one) => bytes(one.bytes), number: true },
        { title: "Of these, only its own", cell: (one) => bytes(one.own_bytes), number: true },
      ],
    }));
  }
}

/** How much of what is kept at most is used. */
function kept(one) {
  const share = one.keeps_bytes > 0 ? one.lag_bytes / one.keeps_bytes : 0;
  // Beyond it, changes are dropped that the consumer has not read.
  return h("span", { class: share > 1 ? "meter bad" : "meter" },
    bar(share), `${percent(share)} of ${bytes(one.keeps_bytes)}`);
}
