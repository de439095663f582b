// The page: its views, the token, the colours, and the look at the server each second.

import { Refused, dataset, get, text } from "./api.js";
import { Consumers } from "./consumers.js";
import { Datasets } from "./datasets.js";
import { byId } from "./dom.js";
import { frame } from "./frame.js";
import { Layers } from "./layers.js";
import { Live } from "./live.js";
import { History } from "./metrics.js";
import { Overview } from "./overview.js";
import { Query } from "./query.js";
import { age } from "./units.js";

/** Milliseconds between two looks. */
const PAUSE = 1000;

/** Datasets of a token for parts of the store whose state is asked for one by one. */
const PARTS = 20;

/** What the views share. */
const state = {
  /** The answer of `/v1/stat`. */
  stat: undefined,
  history: new History(),
  /** The datasets that the caller may read. */
  names: [],
  isAdmin: false,
  /** Looks now, and does not wait for the next second. */
  refresh: () => look(),
  /** The result of a request, or undefined: its error is shown. */
  async try(request) {
    try {
      return await request;
    } catch (error) {
      say(error.message);
      return undefined;
    }
  },
};

const views = {
  overview: new Overview(state),
  layers: new Layers(state),
  datasets: new Datasets(state),
  query: new Query(state),
  live: new Live(state),
  consumers: new Consumers(state),
};

let shownView = "overview";
let answeredAt;
let viewFailed = false;
let timer;

function say(message) {
  byId("notice").textContent = message;
  byId("notice").hidden = !message;
}

/** Shows the view that the address names. */
function route() {
  const name = location.hash.slice(1);
  shownView = name in views ? name : "overview";
  for (const view of Object.keys(views)) byId(view).hidden = view !== shownView;
  for (const link of byId("views").querySelectorAll("a")) {
    const isHere = link.hash === `#${shownView}`;
    if (isHere) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
    if (isHere) document.title = `${link.textContent} · Esker`;
  }
  say("");
  updateView();
}

async function updateView() {
  try {
    await views[shownView].update();
    // What has been overcome is no news.
    if (viewFailed) say("");
    viewFailed = false;
  } catch (error) {
    if (error instanceof Refused && error.status === 401) return;
    viewFailed = true;
    say(error.message);
  }
}

/** The state of the parts of the store that the token is for. */
async function partialStat() {
  const { datasets } = await get("/v1/datasets");
  const names = datasets.slice(0, PARTS).map(({ name }) => name);
  const stats = await Promise.all(names.map((name) => get(dataset(name, "/stat"))));
  return { datasets: Object.fromEntries(names.map((name, at) => [name, stats[at]])) };
}

async function measure() {
  if (state.isPartial) return [await partialStat(), undefined];
  try {
    return await Promise.all([get("/v1/stat"), text("/metrics")]);
  } catch (error) {
    if (!(error instanceof Refused) || error.status !== 403) throw error;
    state.isPartial = true;
    say("This token is for parts of the store: what concerns all of it is not shown.");
    return [await partialStat(), undefined];
  }
}

async function look() {
  clearTimeout(timer);
  try {
    const [stat, metrics] = await measure();
    state.stat = stat;
    state.names = Object.keys(stat.datasets ?? {});
    state.history.add(stat, metrics, Date.now());
    answeredAt = Date.now();
    connected(true);
    await updateView();
  } catch (error) {
    connected(false, error);
  }
  clearTimeout(timer);
  timer = setTimeout(look, PAUSE);
}

/** What was said last is not said again each second. */
function connected(isConnected, error) {
  const needsToken = error instanceof Refused && error.status === 401;
  let words = location.host;
  if (!isConnected) {
    words = needsToken ? "needs a token" : `no answer${answeredAt ? ` for ${age((Date.now() - answeredAt) / 1000)}` : ""}`;
  }
  byId("connection").dataset.state = isConnected ? "on" : "off";
  if (byId("connection-text").textContent !== words) byId("connection-text").textContent = words;
}

async function learnCaller() {
  try {
    const caller = await get("/v1/caller");
    state.isAdmin = caller.role === "admin";
  } catch {
    // The look each second says what is wrong.
  }
}

frame(async () => {
  state.isPartial = false;
  await learnCaller();
  look();
});
addEventListener("hashchange", route);

route();
await learnCaller();
look();
