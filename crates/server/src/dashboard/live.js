// What happens now: changes of a dataset or publications to a topic, on a map and as a list.

import { ask, dataset, get } from "./api.js";
import { Completion } from "./complete.js";
import { byId, h, setOptions, show, table } from "./dom.js";
import { PlotMap } from "./map.js";
import { outlineOf, pointOf, pointPaths } from "./points.js";
import { NOTHING_KNOWN, exactly, knownOf, shown } from "./query.js";
import { events } from "./sse.js";
import { count, rate } from "./units.js";

/** Events of the list. */
const LISTED = 50;

/** Points of the map, and places of the way of each. */
const POINTS = 2000;
const TRAIL = 24;

/** Topics that are proposed. */
const TOPICS = 200;

/** Points fade over so many milliseconds, down to this strength. */
const FADE = 60_000;

/** How long it waits before it connects again, in milliseconds. */
const PAUSE = 2000;

export class Live {
  #known = NOTHING_KNOWN;
  #latest = [];
  #points = new Map();
  #all = 0;
  #arrived = [];

  constructor(state) {
    this.state = state;
    this.dataset = byId("live-dataset");
    this.map = new PlotMap(byId("live-map"), { label: "Latest places", height: 460 });
    new Completion(byId("live-where"), byId("live-where-list"), () => this.#known);
    byId("live-kind").addEventListener("change", () => this.#kind());
    this.dataset.addEventListener("change", () => this.#learn());
    byId("live-form").addEventListener("submit", (event) => {
      event.preventDefault();
      const isMissing = byId("live-kind").value !== "topic" && !this.dataset.value;
      if (this.stop) this.#end("Stopped.");
      else if (isMissing) this.#say("There is no dataset yet.", true);
      else this.#start();
    });
    setInterval(() => this.#draw(), 500);
  }

  update() {
    setOptions(this.dataset, this.state.names);
    if (this.dataset.value && this.dataset.value !== this.learnt) this.#learn();
  }

  #kind() {
    const kind = byId("live-kind").value;
    for (const field of byId("live-form").querySelectorAll("[data-kind]")) {
      field.hidden = !field.dataset.kind.split(" ").includes(kind);
    }
    if (kind !== "topic") {
      this.#learn();
      return;
    }
    this.#known = NOTHING_KNOWN;
    this.#listTopics();
  }

  async #listTopics() {
    const listed = await this.state.try(get("/v1/topics"));
    const names = ["#", ...(listed?.topics ?? []).slice(0, TOPICS).map(({ topic }) => topic)];
    byId("live-topics").replaceChildren(...names.map((value) => h("option", { value })));
  }

  async #learn() {
    const name = this.dataset.value;
    this.learnt = name;
    const known = await this.state.try(knownOf(name, this.state.stat?.datasets?.[name]));
    if (known && this.learnt === name) this.#known = known;
  }

  /** The address of the stream that the form asks for. */
  #address() {
    const parameters = new URLSearchParams();
    const add = (name, id) => {
      const text = byId(id).value.trim();
      if (text) parameters.set(name, text);
    };
    add("where", "live-where");
    const kind = byId("live-kind").value;
    if (kind === "changes") return dataset(this.dataset.value, `/changes?${parameters}`);
    add("area", "live-area");
    if (kind === "fence") {
      parameters.set("field", this.paths[0] ?? "");
      parameters.set("events", "enter,exit,inside");
      return dataset(this.dataset.value, `/fence?${parameters}`);
    }
    add("since", "live-since");
    return `/v1/topics/${encodeURIComponent(byId("live-topic").value.trim())}/subscribe?${parameters}`;
  }

  async #start() {
    const stop = new AbortController();
    this.stop = stop;
    this.#latest = [];
    this.#points.clear();
    this.#arrived = [];
    this.#all = 0;
    this.fitted = false;
    const kind = byId("live-kind").value;
    this.paths = kind === "topic" ? [] : pointPaths(this.state.stat?.datasets?.[this.dataset.value]);
    const area = kind === "changes" ? "" : byId("live-area").value;
    this.map.setOutline((area && outlineOf(area)) || []);
    this.map.fit();
    byId("live-start").textContent = "Stop";
    const address = this.#address();
    let id;
    while (!stop.signal.aborted) {
      this.#say("Connects …");
      try {
        const headers = id ? { "last-event-id": id } : {};
        const response = await ask(address, { accept: "text/event-stream", headers, signal: stop.signal });
        if (response.status === 204) return this.#end("The subscription is over.");
        this.#say("Connected: waits for what happens.");
        for await (const event of events(response.body)) {
          id = event.id ?? id;
          if (event.event === "error") return this.#end(exactly(event.data).detail, true);
          this.#add(event);
        }
      } catch (error) {
        if (stop.signal.aborted) return;
        // A refusal stays one; a connection that broke is made again.
        if (error.status && error.status < 500) return this.#end(error.message, true);
      }
      if (stop.signal.aborted) return;
      this.#say("The connection has ended: connects again …");
      await new Promise((done) => { setTimeout(done, PAUSE); });
    }
  }

  #end(text, isBad = false) {
    this.stop?.abort();
    this.stop = undefined;
    byId("live-start").textContent = "Start";
    this.#say(text, isBad);
    this.#draw();
  }

  #say(text, isBad = false) {
    byId("live-status").textContent = text;
    byId("live-status").classList.toggle("bad", isBad);
  }

  #add({ event, data }) {
    const now = Date.now();
    const value = exactly(data);
    const key = shown(value.key ?? value.record?.id ?? value.topic);
    // Of a fence: whether the record has entered, or is inside, or has left.
    const change = value.event ?? value.change ?? event ?? "message";
    // A record that moves within a fence moves on the map alone: it would push the others out.
    if (change !== "inside") {
      this.#all += 1;
      this.#arrived.push(now);
      this.#latest.unshift({ now, change, key, value });
      this.#latest.length = Math.min(this.#latest.length, LISTED);
    }
    const name = value.topic ? `${value.topic} ${value.record?.id ?? value.seq}` : key;
    if (value.change === "delete" || value.change === "expire") {
      this.#points.delete(name);
      return;
    }
    const place = value.x === undefined ? pointOf(value.record, this.paths) : [value.x, value.y];
    if (!place) return;
    const trail = [...(this.#points.get(name)?.trail ?? []), place].slice(-TRAIL);
    // The newest is last: it is drawn above the others.
    this.#points.delete(name);
    this.#points.set(name, { trail, now, text: `${key} · ${place.join(", ")}` });
    if (this.#points.size > POINTS) this.#points.delete(this.#points.keys().next().value);
  }

  #draw() {
    const now = Date.now();
    this.#arrived = this.#arrived.filter((time) => time > now - 5000);
    if (byId("live").hidden) return;
    byId("live-events-title").textContent = this.#all === 0 ? "Latest"
      : `Latest of ${count(this.#all)}, ${rate(this.#arrived.length / 5)}`;
    show(byId("live-events"), table({
      caption: "Latest events, newest first",
      empty: "Nothing has arrived yet.",
      rows: this.#latest,
      columns: [
        { title: "Time", cell: (one) => new Date(one.now).toLocaleTimeString("en-GB"), number: true },
        { title: "Event", cell: (one) => h("span", { class: `change ${one.change}` }, one.change) },
        { title: "Key", cell: (one) => one.key, style: "mono" },
        { title: "Record", cell: (one) => text(one.value), style: "mono clip" },
      ],
    }));
    this.map.setPoints([...this.#points.values()].map((point) => ({
      x: point.trail.at(-1)[0],
      y: point.trail.at(-1)[1],
      trail: point.trail,
      text: point.text,
      strength: Math.max(1 - (now - point.now) / FADE, 0.1),
    })));
    if (!this.fitted && this.#points.size > 0) {
      this.fitted = this.#points.size > 20 || this.#arrived.length < this.#points.size;
      this.map.fit();
    }
  }
}

function text(value) {
  return shown(value.record ?? value.text ?? value.base64 ?? "").slice(0, 200);
}
