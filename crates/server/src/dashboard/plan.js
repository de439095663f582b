// The plan of a query and its costs: which way was chosen, what was read, what was left.

import { bar, h, scrolls, table } from "./dom.js";
import { bytes, count, duration, percent } from "./units.js";

/** The way to the candidates in a sentence. */
function way(plan) {
  if (plan.scan) return ["Scan", plan.scan];
  if (plan.index) return [`${plan.kind} index of ${plan.index}`, plan.condition];
  if (plan.union?.length) return [`Union of ${plan.union.length} indexes`, plan.union.map(({ condition }) => condition).join(" or ")];
  if (plan.combined) return [`${plan.combined.indexes.length} indexes together`, plan.combined.condition];
  return ["Plan", ""];
}

/** The steps from candidates to answers, each with a bar. */
function funnel(steps) {
  const rows = [
    ["Scanned", steps.scanned, "records that a scan read"],
    ["Candidates", steps.candidates, "from the index, or from the scan"],
    ["Obsolete", steps.obsolete, "of them replaced, deleted or expired"],
    ["Ruled out", steps.ruled_out, "by entries of further indexes"],
    ["Probed", steps.probed, "looked up in the tree of keys"],
    ["Fetched", steps.fetched, "records read for candidates"],
    ["Discarded", steps.discarded, "did not meet another condition"],
    ["Answers", steps.answers, "records of the answer; one more than a page says that there is a next one"],
  ].filter(([name, value]) => value > 0 || name === "Answers" || name === "Candidates");
  const most = Math.max(...rows.map(([, value]) => value), 1);
  return table({
    caption: "Steps of the query",
    rows,
    columns: [
      { title: "Step", cell: ([name]) => name, head: true },
      { title: "Number", cell: ([, value]) => count(value), number: true },
      { title: "To scale", cell: ([, value]) => bar(value / most) },
      { title: "What it is", cell: ([, , what]) => what, style: "muted" },
    ],
  });
}

function alternatives(all) {
  return table({
    caption: "Ways that were weighed",
    rows: all,
    columns: [
      { title: "Way", cell: ({ way: name }) => name, head: true },
      { title: "Condition", cell: ({ condition }) => condition, style: "mono" },
      { title: "Expected records", cell: ({ expected }) => count(expected), number: true },
      { title: "Expected work", cell: ({ work }) => (work === undefined ? "–" : duration(work / 1e6)), number: true },
      { title: "Outcome", cell: ({ outcome }) => (outcome ? h("span", { class: "tag" }, `chosen, ${count(outcome.fetched)} read`) : "") },
    ],
  });
}

function costs(cost) {
  const names = { data: "Records", place: "Records by location", index: "Index", keys: "Tree of keys" };
  const rows = Object.entries(cost).filter(([, reads]) =>
    reads.blocks_cached + reads.blocks_read + reads.filters_probed + reads.synopses_probed > 0);
  return table({
    caption: "Reads by tree",
    empty: "Nothing was read from tables: everything was in memory.",
    rows,
    columns: [
      { title: "Tree", cell: ([name]) => names[name] ?? name, head: true },
      { title: "Blocks from cache", cell: ([, reads]) => count(reads.blocks_cached), number: true },
      { title: "Blocks from files", cell: ([, reads]) => count(reads.blocks_read), number: true },
      { title: "Cached", cell: ([, reads]) => cached(reads) },
      { title: "Read", cell: ([, reads]) => bytes(reads.bytes_read), number: true },
      { title: "Filters", cell: ([, reads]) => `${count(reads.filters_probed)}, ${count(reads.filters_negative)} negative`, number: true },
      { title: "Summaries", cell: ([, reads]) => `${count(reads.synopses_probed)}, ${count(reads.synopses_negative)} negative`, number: true },
    ],
  });
}

function cached(reads) {
  const all = reads.blocks_cached + reads.blocks_read;
  if (all === 0) return "";
  return h("span", { class: "meter" }, bar(reads.blocks_cached / all), percent(reads.blocks_cached / all));
}

/** The whole plan. */
export function planView(explain) {
  const { plan, notes, steps, cost } = explain;
  const [name, condition] = way(plan);
  return h("div", { class: "plan" },
    h("div", { class: "plan-way" }, h("strong", {}, name), condition ? h("code", {}, condition) : null,
      h("span", { class: "muted" }, `${count(steps.rounds)} ${steps.rounds === 1 ? "round" : "rounds"}`)),
    notes.map((note) => h("p", { class: "note" }, note)),
    h("h2", {}, "Steps"), scrolls("Steps of the query", funnel(steps)),
    plan.alternatives?.length ? [h("h2", {}, "Ways that were weighed"), scrolls("Ways that were weighed", alternatives(plan.alternatives))] : null,
    h("h2", {}, "Reads"), scrolls("Reads by tree", costs(cost)));
}
