// The points of records, and areas.

/** The paths of a dataset that have points, as its definition says. */
export function pointPaths(stats) {
  const indexes = stats?.definition?.indexes ?? [];
  const paths = indexes.filter(({ type }) => /^(point|plane)/.test(type ?? ""));
  // `at@seen` is a point at a time.
  return [...new Set(paths.map(({ path }) => path.split("@")[0]))];
}

function valueAt(record, path) {
  return path.split(".").reduce((value, name) => value?.[name], record);
}

function pair(x, y) {
  const [a, b] = [Number(x), Number(y)];
  return x !== undefined && x !== null && Number.isFinite(a) && Number.isFinite(b) ? [a, b] : undefined;
}

/** A point as records may have it: an array, `lon` and `lat`, GeoJSON, or two numbers as text. */
function asPoint(value) {
  if (Array.isArray(value)) return value.length === 2 ? pair(...value) : undefined;
  if (typeof value === "string") return value.includes(",") ? pair(...value.split(",", 2)) : undefined;
  if (!value || typeof value !== "object") return undefined;
  if (Array.isArray(value.coordinates)) return asPoint(value.coordinates.slice(0, 2));
  return pair(value.lon ?? value.lng ?? value.longitude ?? value.x, value.lat ?? value.latitude ?? value.y);
}

/** The point of a record at the first path that has one; without paths, where it looks like one. */
export function pointOf(record, paths) {
  if (!record || typeof record !== "object") return undefined;
  for (const path of paths) {
    const parts = path.split(",");
    const found = parts.length === 2
      ? pair(valueAt(record, parts[0]), valueAt(record, parts[1]))
      : asPoint(valueAt(record, path));
    if (found) return found;
  }
  if (paths.length > 0) return undefined;
  const own = asPoint(record);
  if (own) return own;
  return Object.values(record).map((value) => (typeof value === "object" ? asPoint(value) : undefined)).find(Boolean);
}

const METRES_PER_DEGREE = 111_195;

/** Corners that stand for a circle. */
const CORNERS = 72;

/** The outline of an area as conditions have it: `rect`, `circle`, `polygon` or GeoJSON. */
export function outlineOf(text) {
  const [, name, inside] = /^(rect|circle|polygon)\((.*)\)$/.exec(text.trim()) ?? [];
  if (name === "rect" || name === "circle") {
    const numbers = inside.split(",").map(Number);
    const known = numbers.every(Number.isFinite) && numbers.length === (name === "rect" ? 4 : 3);
    if (!known) return undefined;
    return name === "rect" ? rectangle(...numbers) : circle(...numbers);
  }
  try {
    const ring = name ? JSON.parse(inside) : JSON.parse(text).coordinates[0];
    return ring.map(([x, y]) => [x, y]);
  } catch {
    return undefined;
  }
}

function rectangle(west, south, east, north) {
  // One across the line where days begin goes on beyond 180 degrees.
  const end = east < west ? east + 360 : east;
  return [[west, south], [end, south], [end, north], [west, north], [west, south]];
}

function circle(x, y, metres) {
  const high = metres / METRES_PER_DEGREE;
  const wide = high / Math.max(Math.cos((y * Math.PI) / 180), 0.01);
  return Array.from({ length: CORNERS + 1 }, (_, nth) => {
    const angle = (nth / CORNERS) * 2 * Math.PI;
    return [x + Math.cos(angle) * wide, y + Math.sin(angle) * high];
  });
}
