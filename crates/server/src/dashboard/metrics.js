// The measurements of the last ten minutes: one sample a second of `/v1/stat` and `/metrics`.

/** Samples that are kept. */
const KEPT = 600;

/** Latencies are those of the last so many samples: a second alone has too few requests. */
const WINDOW = 10;

/** Routes that this page itself asks again and again. They would hide what others do. */
const OWN = /^\/(metrics$|api$|v1\/openapi\.json$|v1\/stat$|v1\/caller$|dashboard\/|$)|\/(levels|boxes|fields|stat|advise)$/;

/** The labels and the value of each line of a metric. */
function* lines(text, name) {
  for (const line of text.split("\n")) {
    if (!line.startsWith(name) || (line[name.length] !== "{" && line[name.length] !== " ")) continue;
    const end = line.lastIndexOf(" ");
    const labels = {};
    for (const [, label, value] of line.slice(0, end).matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)) {
      labels[label] = value;
    }
    yield [labels, Number(line.slice(end + 1))];
  }
}

/** The requests so far, of other clients, by the bounds of their times. */
function requests(text) {
  const buckets = new Map();
  for (const [{ route, le }, value] of lines(text, "esker_http_request_seconds_bucket")) {
    if (OWN.test(route)) continue;
    const bound = Number(le.replace("+Inf", "Infinity"));
    buckets.set(bound, (buckets.get(bound) ?? 0) + value);
  }
  let [all, failed] = [0, 0];
  for (const [{ route, status }, value] of lines(text, "esker_http_requests_total")) {
    if (OWN.test(route)) continue;
    all += value;
    if (status >= "500") failed += value;
  }
  return { all, failed, buckets: [...buckets].sort(([a], [b]) => a - b) };
}

function single(text, name) {
  for (const [, value] of lines(text, name)) return value;
  return NaN;
}

/** The value below which this share of the counts lies, by the bounds of the buckets. */
function quantile(share, buckets) {
  const all = buckets.at(-1)?.[1] ?? 0;
  if (all <= 0) return null;
  let [low, before] = [0, 0];
  for (const [bound, count] of buckets) {
    if (count >= share * all) {
      if (!Number.isFinite(bound)) return low;
      return low + (bound - low) * ((share * all - before) / Math.max(count - before, 1e-9));
    }
    [low, before] = [bound, count];
  }
  return low;
}

/** The samples, and what follows from them as series for charts: `null` where nothing is known. */
export class History {
  #samples = [];
  /** By name of a series; all have the length of `times`. */
  series = {};
  times = [];
  /** The lag of each consumer of changes, by its name. */
  lags = new Map();

  /** Adds a sample. `metrics` is the text of `/metrics`, or undefined. */
  add(stat, metrics, time) {
    const counters = stat.counters ?? {};
    const sample = {
      time,
      counters,
      http: metrics === undefined ? undefined : requests(metrics),
    };
    const before = this.#samples.at(-1);
    this.#samples.push(sample);
    if (this.#samples.length > WINDOW + 1) this.#samples.shift();
    // After a restart of the server the counters begin anew.
    const restarted = before && (counters.log_bytes ?? 0) < (before.counters.log_bytes ?? 0);
    if (restarted) this.#samples = [sample];
    this.#push(time, {
      ...this.#rates(sample, restarted ? undefined : before),
      ...this.#latencies(sample),
      ...levelsOf(stat, metrics),
    });
    for (const consumer of stat.consumers ?? []) {
      const name = `${consumer.dataset ?? ""}/${consumer.name}`;
      const lags = this.lags.get(name) ?? [];
      lags.push(consumer.lag_bytes);
      if (lags.length > KEPT) lags.shift();
      this.lags.set(name, lags);
    }
  }

  #rates(now, before) {
    const none = Object.fromEntries(
      ["writes", "batches", "logged", "flushed", "merged", "read", "hits", "slowed", "stalled",
        "asked", "failed"].map((name) => [name, null]));
    if (!before) return none;
    const seconds = Math.max((now.time - before.time) / 1000, 0.001);
    const grown = (name) => Math.max((now.counters[name] ?? 0) - (before.counters[name] ?? 0), 0);
    const each = (name) => grown(name) / seconds;
    const [cached, read] = [grown("blocks_cached"), grown("blocks_read")];
    const asked = now.http && before.http && {
      asked: Math.max(now.http.all - before.http.all, 0) / seconds,
      failed: Math.max(now.http.failed - before.http.failed, 0) / seconds,
    };
    return {
      ...none,
      writes: each("operations"),
      batches: each("batches"),
      logged: each("log_bytes"),
      flushed: each("flush_bytes"),
      merged: each("merge_write_bytes"),
      read: each("bytes_read"),
      hits: cached + read > 0 ? cached / (cached + read) : null,
      // Of all writers together: more than a second in a second is possible.
      slowed: each("slowed_micros") / 1e6,
      stalled: each("stalled_micros") / 1e6,
      ...asked,
    };
  }

  #latencies(now) {
    const first = this.#samples.find((sample) => sample.http);
    if (!now.http || !first || first === now) return { p50: null, p99: null };
    const old = new Map(first.http.buckets);
    const buckets = now.http.buckets.map(([bound, value]) => [bound, value - (old.get(bound) ?? 0)]);
    return { p50: quantile(0.5, buckets), p99: quantile(0.99, buckets) };
  }

  #push(time, values) {
    this.times.push(time / 1000);
    for (const [name, value] of Object.entries(values)) {
      this.series[name] ??= Array(this.times.length - 1).fill(null);
      this.series[name].push(value);
    }
    if (this.times.length > KEPT) {
      this.times.shift();
      for (const values of Object.values(this.series)) values.shift();
    }
  }
}

/** What is a height and no rate. */
function levelsOf(stat, metrics) {
  const { flush_bytes: flushed, merge_write_bytes: merged } = stat.counters ?? {};
  const counter = (name) => (metrics === undefined ? null : single(metrics, name));
  return {
    amplification: flushed > 0 ? (flushed + merged) / flushed : null,
    cache: stat.memory?.cache_bytes ?? null,
    memtables: stat.memory?.memtable_bytes ?? null,
    running: counter("esker_calls_running"),
    waiting: counter("esker_calls_waiting"),
  };
}
