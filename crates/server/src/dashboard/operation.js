// One operation: what it needs and answers, a form to send it, and what came back.

import { token } from "./api.js";
import { h, table } from "./dom.js";
import { bodyOf, bodyText, commandOf, kindOf, members, pretty, requestOf } from "./openapi.js";

/** An answer is shown up to this many characters. */
const MOST = 200_000;

const STREAM = "text/event-stream";

/** Text whose parts in backquotes are code. */
export function prose(text) {
  return text.split("`").map((part, at) => (at % 2 === 1 ? h("code", {}, part) : part));
}

export class Operation {
  constructor(document_, operation) {
    this.document = document_;
    this.operation = operation;
    this.id = operation.operationId;
    this.inputs = new Map();
    const { method, path, summary } = operation;
    this.content = h("div", { class: "operation-body" });
    this.element = h("details", { id: this.id, class: "operation", ontoggle: () => this.build() },
      h("summary", {},
        h("span", { class: `method ${method}` }, method.toUpperCase()),
        h("code", { class: "path" }, path),
        h("span", { class: "muted" }, prose(summary))),
      this.content);
  }

  open() {
    this.element.open = true;
    this.build();
    this.element.scrollIntoView();
    this.element.querySelector("summary").focus();
  }

  /** Fills the panel when it is opened first: there are many. */
  build() {
    if (!this.element.open || this.content.firstChild) return;
    const { description, requestBody } = this.operation;
    const [media, content] = Object.entries(requestBody?.content ?? {})[0] ?? [];
    this.media = media;
    this.content.append(
      h("p", {}, prose(description ?? "")),
      h("form", { class: "try", onsubmit: (event) => { event.preventDefault(); this.send(); } },
        this.parameters(),
        media === undefined ? undefined : this.body(media, content, requestBody),
        this.buttons()),
      this.answers());
    this.command();
  }

  /** A field of the form, with its label and text. */
  field(name, label, control, text) {
    const id = `${this.id}-${name}`;
    control.id = id;
    control.setAttribute("aria-describedby", `${id}-text`);
    control.addEventListener("input", () => this.command());
    this.inputs.set(name, control);
    return h("div", { class: "parameter" },
      h("label", { for: id }, label),
      control,
      h("p", { id: `${id}-text`, class: "hint" }, text));
  }

  parameters() {
    const { parameters = [] } = this.operation;
    return parameters.map(({ name, in: place, schema, required, description, example }) => {
      const kind = kindOf(this.document, schema);
      const sample = [example].flat()[0];
      const attributes = { class: "mono", spellcheck: "false", autocomplete: "off", required };
      let control;
      if (kind === "boolean") {
        control = h("select", attributes, ["", "true", "false"].map((value) => h("option", { value }, value || "not given")));
      } else if (schema.type === "array") {
        control = h("textarea", { ...attributes, rows: 1, placeholder: sample });
      } else {
        control = h("input", { ...attributes, type: "text", placeholder: required ? undefined : sample, value: required ? sample : undefined });
      }
      const label = [h("code", {}, name), h("span", { class: "muted" }, ` ${place}, ${kind}${required ? ", needed" : ""}`)];
      return this.field(name, label, control, prose(description ?? ""));
    });
  }

  body(media, content, { required }) {
    const control = h("textarea", { class: "mono body", rows: 6, spellcheck: "false", autocomplete: "off" });
    control.value = bodyText(media, content.example);
    const label = ["Body ", h("span", { class: "muted" }, `${media}${required ? ", needed" : ""}`)];
    const known = members(this.document, content.schema);
    const text = known.length === 0 ? [] : table({
      caption: "Members of the body",
      columns: [
        { title: "Member", head: true, cell: ({ name }) => h("code", {}, name) },
        { title: "Kind", cell: ({ kind, required: needed }) => (needed ? `${kind}, needed` : kind) },
        { title: "", style: "prose", cell: ({ description }) => h("span", {}, prose(description)) },
      ],
      rows: known,
    });
    const all = this.field("body", label, control, []);
    all.classList.add("wide");
    if (known.length > 0) {
      const region = h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": `Members of the body of ${this.id}` }, text);
      all.append(h("details", {}, h("summary", {}, "Members"), region));
    }
    return all;
  }

  /** The types of the answer, if there are several. */
  accepts() {
    return Object.keys(this.operation.responses["200"]?.content ?? {});
  }

  buttons() {
    this.sends = h("button", { type: "submit", class: "primary" }, "Send");
    this.stops = h("button", { type: "button", hidden: true, onclick: () => this.abort?.abort() }, "Stop");
    this.shell = h("pre", { class: "shell", tabindex: 0, role: "region", "aria-label": `Command for ${this.id}` });
    const copied = h("span", { class: "muted", role: "status" });
    const copy = h("button", { type: "button", onclick: async () => {
      await navigator.clipboard.writeText(this.shell.textContent);
      copied.textContent = "Copied.";
    } }, "Copy curl");
    this.result = h("div", { class: "result" });
    const kinds = this.accepts();
    this.accept = kinds.length < 2 ? undefined : h("select", { "aria-label": `Type of the answer of ${this.id}`, onchange: () => this.command() },
      kinds.map((kind) => h("option", { value: kind }, kind)));
    return h("div", { class: "wide sending" },
      this.shell,
      h("div", { class: "tools" }, this.sends, this.stops, copy, this.accept, copied),
      this.result);
  }

  /** The request as the form has it. */
  request() {
    const values = Object.fromEntries([...this.inputs].map(([name, { value }]) => [name, value]));
    const body = this.media === undefined ? "" : bodyOf(this.media, values.body);
    return requestOf(this.operation, values, { media: this.media, body, accept: this.accept?.value });
  }

  needsToken() {
    const security = this.operation.security ?? this.document.security ?? [];
    return security.some((one) => one.bearer) && (token() !== "" || security.every((one) => one.bearer));
  }

  command() {
    try {
      this.shell.textContent = commandOf(location.origin, this.request(), this.needsToken());
    } catch (error) {
      this.shell.textContent = error.message;
    }
  }

  async send() {
    this.abort?.abort();
    const abort = new AbortController();
    this.abort = abort;
    const status = h("p", { class: "status", role: "status" }, "Sends.");
    const headers = h("dl", { class: "headers" });
    const text = h("pre", { tabindex: 0, role: "region", "aria-label": `Answer of ${this.id}` });
    this.result.replaceChildren(status);
    this.stops.hidden = false;
    const begin = performance.now();
    try {
      const { method, path, headers: sent, body } = this.request();
      if (token()) sent.authorization = `Bearer ${token()}`;
      const options = { method, headers: sent, body, signal: abort.signal, cache: "no-store", credentials: "omit" };
      const response = await fetch(path, options);
      const millis = Math.round(performance.now() - begin);
      status.textContent = `${response.status} ${response.statusText} in ${millis} ms`;
      status.classList.add(response.ok ? "good" : "bad");
      if (response.status === 401) dispatchEvent(new Event("esker-token-needed"));
      for (const [name, value] of response.headers) headers.append(h("dt", {}, name), h("dd", {}, value));
      this.result.append(headers, text);
      await show(response, text);
    } catch (error) {
      if (abort.signal.aborted) status.textContent += " Stopped.";
      else status.textContent = error.message;
    }
    if (text.textContent === "") text.remove();
    if (this.abort === abort) this.stops.hidden = true;
  }

  /** The answers that it may have. */
  answers() {
    const rows = Object.entries(this.operation.responses);
    const of = ([status, { description, content = {} }]) => {
      const [media, { example } = {}] = Object.entries(content)[0] ?? [];
      const sample = example === undefined ? [] : h("pre", { tabindex: 0, role: "region", "aria-label": `Example of ${status} of ${this.id}` },
        typeof example === "string" ? example : JSON.stringify(example, null, 2));
      return h("details", {},
        h("summary", {}, h("strong", {}, status), " ", description, media && h("span", { class: "muted" }, ` ${media}`)), sample);
    };
    return h("section", { class: "answers" }, h("h3", {}, "Answers"), rows.map(of));
  }
}

/** Shows an answer while it arrives. */
async function show(response, element) {
  const type = response.headers.get("content-type") ?? "";
  const isText = /json|text|xml/.test(type);
  const decoder = new TextDecoder();
  let [whole, bytes] = ["", 0];
  for await (const part of chunks(response.body)) {
    bytes += part.length;
    whole += isText ? decoder.decode(part, { stream: true }) : "";
    if (type.startsWith(STREAM)) element.textContent = whole.slice(-MOST);
    if (whole.length > MOST) break;
  }
  if (!isText) element.textContent = bytes > 0 ? `${bytes} bytes of ${type}` : "";
  else if (whole.length > MOST) element.textContent = `${whole.slice(0, MOST)}\n(cut here)`;
  else element.textContent = type.includes("json") ? pretty(whole) : whole;
}

async function* chunks(body) {
  const reader = body?.getReader();
  if (!reader) return;
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      yield value;
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
