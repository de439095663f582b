// Requests to the server, with the token of this tab.

const KEPT = "esker-token";

export function token() {
  return sessionStorage.getItem(KEPT) ?? "";
}

export function setToken(text) {
  if (text) sessionStorage.setItem(KEPT, text);
  else sessionStorage.removeItem(KEPT);
}

/** An answer that is an error: `status`, and the problem's `kind` and text. */
export class Refused extends Error {
  constructor(status, problem) {
    super(problem.detail ?? problem.title ?? `status ${status}`);
    this.status = status;
    this.kind = problem.type;
  }
}

/** The answer to a request; fails with `Refused` where it is an error. */
export async function ask(path, { method = "GET", body, accept, headers = {}, signal } = {}) {
  const all = new Headers(headers);
  if (token()) all.set("authorization", `Bearer ${token()}`);
  if (accept) all.set("accept", accept);
  if (body !== undefined) all.set("content-type", "application/json");
  const response = await fetch(path, {
    method,
    headers: all,
    body: body === undefined ? undefined : JSON.stringify(body),
    signal,
    cache: "no-store",
    credentials: "omit",
  });
  if (!response.ok) {
    const problem = await response.json().catch(() => ({}));
    if (response.status === 401) dispatchEvent(new Event("esker-token-needed"));
    throw new Refused(response.status, problem);
  }
  return response;
}

export async function get(path, options) {
  return (await ask(path, options)).json();
}

export async function text(path, options) {
  return (await ask(path, options)).text();
}

/** The path of a dataset, and of what belongs to it. */
export function dataset(name, rest = "") {
  return `/v1/datasets/${encodeURIComponent(name)}${rest}`;
}
