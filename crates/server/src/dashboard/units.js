// Numbers for people.

const BYTES = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
const whole = new Intl.NumberFormat("en");

/** About three digits. */
export function short(value) {
  if (!Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size >= 1e9) return `${digits(value / 1e9)} G`;
  if (size >= 1e6) return `${digits(value / 1e6)} M`;
  if (size >= 1e4) return `${digits(value / 1e3)} k`;
  return digits(value);
}

function digits(value) {
  const size = Math.abs(value);
  if (size >= 100 || Number.isInteger(value)) return whole.format(Math.round(value));
  return value.toFixed(size >= 10 ? 1 : 2);
}

export function count(value) {
  return Number.isFinite(value) ? whole.format(value) : "–";
}

/** `3 tables`, `1 table`, `2 entries`. */
export function counted(value, thing) {
  const many = thing.endsWith("y") ? `${thing.slice(0, -1)}ies` : `${thing}s`;
  return `${count(value)} ${value === 1 ? thing : many}`;
}

export function bytes(value) {
  if (!Number.isFinite(value)) return "–";
  let [size, unit] = [value, 0];
  while (Math.abs(size) >= 1000 && unit + 1 < BYTES.length) {
    size /= 1024;
    unit += 1;
  }
  const text = unit === 0 ? Math.round(size) : size.toFixed(Math.abs(size) >= 99.5 ? 0 : 1);
  return `${String(text).replace(/\.0$/, "")} ${BYTES[unit]}`;
}

export function rate(value) {
  return `${short(value)}/s`;
}

export function byteRate(value) {
  return `${bytes(value)}/s`;
}

export function percent(share) {
  if (!Number.isFinite(share)) return "–";
  // 99.97 % is not 100 %.
  const digits = share > 0.995 && share < 1 ? 2 : 1;
  return `${(share * 100).toFixed(digits).replace(/\.0$/, "")} %`;
}

/** A time that something took. */
export function duration(seconds) {
  if (!Number.isFinite(seconds)) return "–";
  if (seconds === 0) return "0 s";
  if (seconds < 0.001) return `${digits(seconds * 1e6)} µs`;
  if (seconds < 1) return `${(seconds * 1e3).toFixed(seconds < 0.01 ? 1 : 0)} ms`;
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  return age(seconds);
}

/** An age: whole units are enough. */
export function age(seconds) {
  if (!Number.isFinite(seconds)) return "–";
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 48 * 3600) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86400)} d`;
}
