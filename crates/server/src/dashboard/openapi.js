// What the OpenAPI document says of its operations, and the requests that follow. No browser is
// needed.

const METHODS = ["get", "put", "post", "patch", "delete"];

/** The schema itself, where it is a reference. */
export function resolve(document, schema) {
  const name = /^#\/components\/schemas\/(.+)$/.exec(schema?.$ref ?? "")?.[1];
  return name === undefined ? schema ?? {} : document.components.schemas[name] ?? {};
}

/** The operations by the groups of the document: `{name, description, operations}`. */
export function groups(document) {
  const all = Object.entries(document.paths).flatMap(([path, item]) =>
    METHODS.filter((method) => item[method]).map((method) => ({ path, method, ...item[method] })));
  return document.tags
    .map(({ name, description }) => ({ name, description, operations: all.filter(({ tags }) => tags?.[0] === name) }))
    .filter(({ operations }) => operations.length > 0);
}

/** True if all words are in the path, the name or the texts of an operation. */
export function matches({ method, path, summary, operationId }, words) {
  const text = `${method} ${path} ${summary} ${operationId}`.toLowerCase();
  return words.toLowerCase().split(/\s+/).every((word) => text.includes(word));
}

/** The kind of values that a schema allows, in words. */
export function kindOf(document, schema) {
  const { type, items, enum: values, oneOf, format } = resolve(document, schema);
  if (values) return values.map((value) => JSON.stringify(value)).join(" or ");
  if (oneOf) return oneOf.map((one) => kindOf(document, one)).filter(Boolean).join(" or ");
  if (type === "array") return `list of ${kindOf(document, items)}`;
  const types = [type ?? "anything"].flat().filter((one) => one !== "null");
  return format === "double" ? "number" : types.join(" or ");
}

/** The members of an object: `{name, kind, required, description}`. */
export function members(document, schema) {
  const found = new Map();
  const add = (one) => {
    const { properties, required = [], allOf = [] } = resolve(document, one);
    allOf.forEach(add);
    for (const [name, member] of Object.entries(properties ?? {})) {
      const description = member.description ?? resolve(document, member).description ?? "";
      found.set(name, { name, kind: kindOf(document, member), required: required.includes(name), description });
    }
  };
  add(schema);
  for (const one of resolve(document, schema).oneOf ?? []) add(one);
  return [...found.values()];
}

const FRAMES = "application/x-esker-rows";

/** The example of a body as it stands in a form. Frames are bytes: they are written with escapes. */
export function bodyText(media, example) {
  if (media === FRAMES) return JSON.stringify(example ?? "").slice(1, -1);
  return typeof example === "string" ? example : JSON.stringify(example ?? {}, null, 2);
}

/** The body that a form's text means. */
export function bodyOf(media, text) {
  return media === FRAMES ? JSON.parse(`"${text}"`) : text;
}

/**
 * The request that a form describes. `values` are the texts of parameters by name (a list has its
 * values on lines of their own), `body` is a text.
 */
export function requestOf({ method, path, parameters = [] }, values, { media, body, accept } = {}) {
  const query = new URLSearchParams();
  const headers = {};
  let address = path;
  for (const { name, in: place, schema } of parameters) {
    const value = values[name] ?? "";
    if (place === "path") address = address.replace(`{${name}}`, encodeURIComponent(value));
    else if (value === "") continue;
    else if (place === "header") headers[name] = value;
    else if (schema?.type === "array") value.split("\n").filter(Boolean).forEach((one) => query.append(name, one));
    else query.append(name, value);
  }
  if (media !== undefined && body !== "") headers["content-type"] = media;
  if (accept !== undefined) headers.accept = accept;
  const search = query.toString();
  return { method: method.toUpperCase(), path: search ? `${address}?${search}` : address, headers, body: body || undefined };
}

const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

/** The command that makes a request. A token is never part of it: the shell has it. */
export function commandOf(origin, { method, path, headers, body }, needsToken) {
  const parts = [`${method === "GET" ? "curl" : `curl -X ${method}`} ${quoted(origin + path)}`];
  if (needsToken) parts.push('-H "authorization: Bearer $ESKER_TOKEN"');
  for (const [name, value] of Object.entries(headers)) parts.push(`-H ${quoted(`${name}: ${value}`)}`);
  if (body === undefined) return parts.join(" \\\n  ");
  if (/[\0-\x08]/.test(body)) {
    const octal = [...new TextEncoder().encode(body)].map((byte) => `\\${byte.toString(8).padStart(3, "0")}`).join("");
    return `printf '${octal}' | ${[...parts, "--data-binary @-"].join(" \\\n  ")}`;
  }
  return [...parts, `--data-binary ${quoted(body)}`].join(" \\\n  ");
}

/** JSON with one member a line, if no number would lose digits; else as it is. */
export function pretty(text) {
  try {
    const value = JSON.parse(text);
    return JSON.stringify(value) === text.trim() ? JSON.stringify(value, null, 2) : text;
  } catch {
    return text;
  }
}
