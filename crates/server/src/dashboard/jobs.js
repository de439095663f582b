// Flushes and compactions, running and ended.

import { h, table } from "./dom.js";
import { age, bytes, duration } from "./units.js";

/** `L0–L1 → L2`. */
function path(job) {
  if (job.job === "flush") return "memory → L0";
  // Other jobs may concern no levels, such as a sweep of what is obsolete.
  if (!job.from_levels) return "";
  const [first, last] = job.from_levels;
  const from = first === last ? `L${first}` : `L${first}–L${last}`;
  return `${from} → L${job.to_level}`;
}

/** The tree of a job, or the first of several. */
function treeName(job) {
  if (!job.tree) return "";
  return job.trees > 1 ? `${job.tree} and ${job.trees - 1} more` : job.tree;
}

/** Running jobs with their progress. */
export function runningJobs(jobs = []) {
  if (jobs.length === 0) return h("p", { class: "empty" }, "No flush or compaction is running.");
  return h("ul", { class: "jobs" }, jobs.map((job) => {
    const share = job.bytes_in > 0 ? Math.min(job.bytes_written / job.bytes_in, 1) : 0;
    const label = [`${job.job} of ${treeName(job)}`, path(job)].filter(Boolean).join(", ");
    return h("li", {},
      h("span", { class: "job-kind" }, job.job),
      h("span", { class: "job-tree" }, treeName(job)),
      h("span", { class: "mono" }, path(job)),
      h("progress", { max: 1, value: share.toFixed(3), "aria-label": label }),
      h("span", { class: "number" }, `${bytes(job.bytes_written)} of ${bytes(job.bytes_in)}`),
      h("span", { class: "number" }, duration(job.seconds)),
      h("span", { class: "muted" }, job.why));
  }));
}

/** False for a job that looked for unused space and found none. */
const hasDone = (job) => Boolean(job.error || job.tree || job.bytes_in || job.bytes_written);

/** Jobs that ended, newest first. */
export function endedJobs(jobs = []) {
  return table({
    caption: "Ended flushes and compactions, newest first",
    empty: "None has ended yet.",
    rows: jobs.filter(hasDone).slice(0, 30),
    columns: [
      { title: "Ended", cell: (job) => `${age(job.seconds_ago)} ago`, number: true },
      { title: "Job", cell: ({ job }) => job },
      { title: "Tree", cell: treeName },
      { title: "Levels", cell: path, style: "mono" },
      { title: "Why", cell: (job) => job.error ?? job.why },
      { title: "Read", cell: (job) => bytes(job.bytes_in), number: true },
      { title: "Written", cell: (job) => bytes(job.bytes_written), number: true },
      { title: "Took", cell: (job) => duration(job.seconds), number: true },
    ],
  });
}
