// The store at a glance: its sizes, what it does over time, flushes and compactions.

import { Chart } from "./charts.js";
import { byId, h, show } from "./dom.js";
import { endedJobs, runningJobs } from "./jobs.js";
import { byteRate, bytes, count, duration, percent, rate, short } from "./units.js";

const times = (value) => (Number.isFinite(value) ? `${value.toFixed(2)}×` : "–");
const busy = (value) => (Number.isFinite(value) ? `${short(value)} s/s` : "–");

const CHARTS = [
  { title: "Writes", unit: rate,
    lines: [{ name: "writes", label: "operations" }, { name: "batches", label: "batches" }] },
  { title: "Requests", unit: rate,
    lines: [{ name: "asked", label: "all" }, { name: "failed", label: "failed" }] },
  { title: "Latency", unit: duration,
    lines: [{ name: "p99", label: "99th percentile" }, { name: "p50", label: "median" }] },
  { title: "Tables written", unit: byteRate, binary: true,
    lines: [{ name: "flushed", label: "flushes" }, { name: "merged", label: "compactions" }] },
  { title: "Write amplification", unit: times,
    lines: [{ name: "amplification", label: "bytes of tables for each byte flushed" }] },
  { title: "Writers held back", unit: busy,
    lines: [{ name: "stalled", label: "stalled" }, { name: "slowed", label: "slowed" }] },
  { title: "Cache hits", unit: percent, top: 1, lines: [{ name: "hits", label: "blocks found in the cache" }] },
  { title: "Read from files", unit: byteRate, binary: true,
    lines: [{ name: "read", label: "by queries" }] },
  { title: "Memory", unit: bytes, binary: true,
    lines: [{ name: "cache", label: "block cache" }, { name: "memtables", label: "memtables" }] },
];

export class Overview {
  #charts = CHARTS.map((chart) => new Chart(chart));
  #fresh = true;

  constructor(state) {
    this.state = state;
    byId("charts").append(...this.#charts.map((chart) => chart.element));
    addEventListener("esker-theme", () => {
      this.#fresh = true;
      this.update();
    });
  }

  update() {
    const { stat, history } = this.state;
    if (!stat) return;
    show(byId("facts"), facts(stat));
    for (const chart of this.#charts) chart.draw(history, this.#fresh);
    this.#fresh = byId("overview").hidden;
    show(byId("running"), runningJobs(stat.jobs), failures(stat.failures));
    show(byId("ended"), endedJobs(stat.ended_jobs));
  }
}

function facts(stat) {
  const trees = Object.values(stat.datasets ?? {}).flatMap((dataset) => dataset.trees);
  const total = trees.reduce((sum, tree) => sum + tree.bytes, 0);
  const entries = trees.filter((tree) => tree.name === "data").reduce(
    (sum, tree) => sum + tree.memtable.entries
      + tree.levels.reduce((all, level) => all + level.entries, 0), 0);
  const { memory } = stat;
  const fact = (name, value, of) => h("div", {}, h("dt", {}, name),
    h("dd", {}, value, of ? h("span", { class: "muted" }, ` ${of}`) : null));
  return [
    fact("Datasets", count(Object.keys(stat.datasets ?? {}).length)),
    fact("Entries of records", short(entries)),
    fact("Tables", bytes(total)),
    memory ? fact("Cache", bytes(memory.cache_bytes), `of ${bytes(memory.cache_limit_bytes)}`) : null,
    memory ? fact("Memtables", bytes(memory.memtable_bytes)) : null,
    fact("Jobs", count(stat.jobs?.length ?? 0)),
    fact("Consumers", count(stat.consumers?.length ?? 0)),
  ].filter(Boolean);
}

function failures(all = []) {
  return all.map((failed) => h("p", { class: "bad" },
    `A ${failed.job}${failed.tree ? ` of ${failed.tree}` : ""} has failed ${count(failed.times)} `
    + `times, and is tried again ${failed.next_attempt}: ${failed.error}`));
}
