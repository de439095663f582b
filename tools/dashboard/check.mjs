// The dashboard in Chromium: what it shows, that it can be used by keys, in both colours, on narrow
// screens; nothing is logged as an error, nothing is asked of other hosts, axe finds nothing.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { createHash } from "node:crypto";
import { join } from "node:path";

import { Server, traceOf } from "./server.mjs";

const require = createRequire(join(process.env.ESKER_DASHBOARD_MODULES, "x.js"));
const { chromium } = require("playwright-core");
const axe = await readFile(require.resolve("axe-core/axe.min.js"), "utf8");

const [program, pictures] = process.argv.slice(2);
const VIEWS = ["overview", "layers", "datasets", "query", "live", "consumers"];
const RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"];

/** How long something may take, in milliseconds; other work may run beside. */
const PATIENCE = 60_000;

const problems = [];
let steps = 0;

async function step(name, work) {
  try {
    await work();
    steps += 1;
    console.log(`ok    ${name}`);
  } catch (error) {
    problems.push(name);
    console.log(`FAILS ${name}\n      ${String(error.stack ?? error).replaceAll("\n", "\n      ")}`);
  }
}

/** A page of its own whose errors are collected. */
async function open(browser, server, { theme = "light", width = 1400, height = 1000, hash = "" } = {}) {
  const context = await browser.newContext({ viewport: { width, height }, colorScheme: theme });
  context.setDefaultTimeout(PATIENCE);
  const page = await context.newPage();
  const errors = [];
  page.on("console", (message) => {
    if (["error", "warning"].includes(message.type())) errors.push(message.text());
  });
  page.on("pageerror", (error) => errors.push(String(error.stack)));
  page.on("request", (request) => {
    if (!request.url().startsWith(server.url) && !request.url().startsWith("data:")) errors.push(`asks ${request.url()}`);
  });
  await page.goto(`${server.url}/${hash}`);
  return { page, errors, end: () => context.close() };
}

async function audit(page, what) {
  // By the debugger: the page itself may not run scripts from elsewhere.
  await page.evaluate(`${axe};0`);
  const found = await page.evaluate((rules) => globalThis.axe.run(document, { runOnly: rules }), RULES);
  const said = found.violations.map(({ id, nodes }) => `${id}: ${nodes.map(({ target, failureSummary }) => `${target} (${failureSummary})`).slice(0, 3).join("; ")}`);
  assert.deepEqual(said, [], what);
}

const text = (page, selector) => page.locator(selector).innerText();

/** Waits until a function of the page is true. */
const until = (page, condition, argument) => page.waitForFunction(condition, argument, { polling: 100 });

const runsOfData = (page) => page.locator('section[aria-label="data"] tbody tr').count();

async function everyView(browser, server) {
  for (const [theme, width, height] of [["light", 1400, 1000], ["dark", 1400, 1000], ["light", 390, 844], ["dark", 390, 844]]) {
    await step(`all views, ${theme}, ${width} pixels wide`, async () => {
      const { page, errors, end } = await open(browser, server, { theme, width, height });
      await until(page, () => document.querySelectorAll(".chart-plot canvas").length === 9);
      for (const view of VIEWS) {
        await page.locator(`#views a[href="#${view}"]`).click();
        await page.locator(`#${view} h1`).waitFor();
        if (view === "layers") {
          await page.locator("#layers-dataset").selectOption("vehicles");
          await page.locator("#boxes-map canvas").waitFor();
          await until(page, () => /\d areas?$/.test(document.querySelector("#boxes-map canvas").getAttribute("aria-label")));
        }
        if (view === "datasets") await page.getByText("Expected costs").waitFor();
        assert.match(await page.title(), new RegExp(view, "i"));
        const over = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
        assert.ok(over <= 0, `${view} is ${over} pixels too wide`);
        await audit(page, view);
        await page.screenshot({ path: join(pictures, `${view}-${theme}-${width}.png`), fullPage: true });
      }
      assert.deepEqual(errors, []);
      await end();
    });
  }
}

async function queries(browser, server) {
  await step("a query by keys alone, with completion; table, JSON, map and plan", async () => {
    const { page, errors, end } = await open(browser, server, { hash: "#query" });
    await page.locator("#query-dataset option").first().waitFor({ state: "attached" });
    const learnt = page.waitForResponse((response) => response.url().includes("visits/records?limit"));
    await page.locator("#query-dataset").selectOption("visits");
    await learnt;
    const where = page.locator("#query-where");
    await where.focus();
    await page.keyboard.type("us");
    await page.locator("#query-where-list [role=option]").filter({ hasText: "user.name" }).waitFor();
    await audit(page, "with an open list");
    await page.screenshot({ path: join(pictures, "completion.png") });
    await page.keyboard.press("ArrowDown");
    assert.equal(await where.getAttribute("aria-activedescendant"), "query-where-list-0");
    await page.keyboard.press("Enter");
    assert.equal(await where.inputValue(), "user.name ");
    await page.keyboard.type("= ann3 and ms > 300");
    await page.keyboard.press("Escape");
    await page.keyboard.press("Enter");
    await page.locator("#answer-table tbody tr").first().waitFor();
    assert.match(await text(page, "#query-status"), /^50 records, there may be more/);
    const first = await text(page, "#answer-table tbody tr:first-child");
    await page.locator("#query-next").click();
    await until(page, () => document.querySelector("#query-status").textContent.startsWith("Records 51"));
    assert.notEqual(await text(page, "#answer-table tbody tr:first-child"), first);
    await page.locator("#tab-table").focus();
    await page.keyboard.press("ArrowRight");
    const json = await text(page, "#answer-json pre");
    const traces = [...json.matchAll(/"id": (\d+),[^}]*\}[^}]*"trace": (\d+)/g)];
    assert.equal(traces.length, 50);
    // Numbers keep their digits.
    for (const [, id, trace] of traces) assert.equal(BigInt(trace), traceOf(Number(id)));
    await page.keyboard.press("ArrowRight");
    assert.match(await text(page, "#answer-plan"), /recent index of user\.name[\s\S]*Candidates[\s\S]*chosen/);
    await audit(page, "plan");
    await page.screenshot({ path: join(pictures, "plan.png"), fullPage: true });

    await where.fill("user.name ~ 3");
    await page.keyboard.press("Escape");
    await page.keyboard.press("Enter");
    await page.locator("#query-status.bad").waitFor();
    await where.fill("page = /docs/7");
    await page.keyboard.press("Escape");
    await page.locator("#query-count").click();
    await until(page, () => /^[\d,]+ records in/.test(document.querySelector("#query-status").textContent));

    await page.locator("#query-dataset").selectOption("vehicles");
    await where.fill("within(at, circle(13.4, 52.52, 9000))");
    await page.keyboard.press("Escape");
    await page.keyboard.press("Enter");
    await page.locator("#tab-map").click();
    await until(page, () => /\d+ points/.test(document.querySelector("#answer-map canvas").getAttribute("aria-label")));
    await audit(page, "map of an answer");
    await page.screenshot({ path: join(pictures, "answer-map.png") });
    // A refused condition is the only error.
    assert.deepEqual(errors.filter((error) => !error.includes("400")), []);
    await end();
  });
}

async function compaction(browser, server) {
  await step("a compaction is watched", async () => {
    const { page, errors, end } = await open(browser, server, { hash: "#layers" });
    await page.locator("#layers-dataset option").first().waitFor({ state: "attached" });
    await page.locator("#layers-dataset").selectOption("visits");
    await page.locator('section[aria-label="data"] tbody tr').first().waitFor();
    // The memtable has a row of its own.
    const before = await runsOfData(page);
    assert.ok(before > 2, `${before} rows`);
    await page.locator('section[aria-label="data"] summary').click();
    await page.locator('section[aria-label="data"] details tbody tr').first().waitFor();
    await page.locator("#layers-compact").click();
    await until(page, () => document.querySelector("#layers-jobs progress") || document.querySelector("rect.new"));
    await page.screenshot({ path: join(pictures, "compaction.png") });
    await until(page, () => document.querySelectorAll('section[aria-label="data"] .levels tbody tr').length === 2);
    await page.locator('section[aria-label="data"] rect[data-number]').first().hover();
    assert.match(await text(page, 'section[aria-label="data"] .pointed'), /table \d+ · .* · writes .* · 0 … \d+/);
    await page.screenshot({ path: join(pictures, "compacted.png") });
    await page.locator('#views a[href="#overview"]').click();
    await page.locator("#ended").getByText("requested").first().waitFor();
    assert.deepEqual(errors, []);
    await end();
  });
}

async function live(browser, server) {
  const { paths } = await (await fetch(`${server.url}/v1/openapi.json`)).json();
  if (!paths["/v1/datasets/{dataset}/changes"]) {
    console.log("NOT CHECKED: live changes, which this program does not serve");
    return;
  }
  await step("changes arrive, on the map and in the list", async () => {
    const { page, errors, end } = await open(browser, server, { hash: "#live" });
    await page.locator("#live-dataset option").first().waitFor({ state: "attached" });
    await page.locator("#live-dataset").selectOption("vehicles");
    await page.locator("#live-where").fill("line = 3");
    await page.keyboard.press("Escape");
    await page.keyboard.press("Enter");
    await until(page, () => document.querySelector("#live-status").textContent.startsWith("Connected"));
    for (let round = 0; round < 20; round += 1) await server.move();
    await until(page, () => document.querySelectorAll("#live-events tbody tr").length === 50);
    await until(page, () => /\b1[67] points/.test(document.querySelector("#live-map canvas").getAttribute("aria-label")));
    const records = await page.locator("#live-events tbody td:last-child").allInnerTexts();
    assert.ok(records.every((record) => record.includes('"line":3')), records[0]);
    await audit(page, "live");
    await page.screenshot({ path: join(pictures, "live.png") });
    await page.locator("#live-start").click();
    await until(page, () => document.querySelector("#live-status").textContent === "Stopped.");

    await page.locator("#live-kind").selectOption("topic");
    await page.locator("#live-area").fill("circle(13.4,52.52,9000)");
    await page.locator("#live-where").fill("kind = roadworks");
    await page.keyboard.press("Escape");
    await page.keyboard.press("Enter");
    await until(page, () => document.querySelector("#live-status").textContent.startsWith("Connected"));
    for (const [x, kind] of [[13.41, "roadworks"], [13.42, "accident"], [14.5, "roadworks"], [13.39, "roadworks"]]) {
      await server.ask("POST", `/v1/topics/city%2Fincidents?x=${x}&y=52.52`, { kind });
    }
    await until(page, () => document.querySelectorAll("#live-events tbody tr").length === 2);
    await until(page, () => document.querySelector("#live-map canvas").getAttribute("aria-label").includes("2 points"));
    await page.screenshot({ path: join(pictures, "topic.png") });
    assert.deepEqual(errors, []);
    await end();
  });
  await step("a consumer of changes is listed with its lag", async () => {
    const stop = new AbortController();
    const path = `${server.url}/v1/datasets/vehicles/changes?consumer=mirror`;
    const reader = (await fetch(path, { signal: stop.signal })).body.getReader();
    await reader.read();
    await server.move();
    const { page, errors, end } = await open(browser, server, { hash: "#consumers" });
    const row = page.locator("#consumers-list tbody tr").filter({ hasText: "mirror" });
    await row.waitFor();
    assert.match(await row.innerText(), /vehicles[\s\S]*KiB/);
    await audit(page, "consumers");
    await page.screenshot({ path: join(pictures, "consumers.png") });
    assert.deepEqual(errors, []);
    await end();
    stop.abort();
  });
}

async function fence(browser, server) {
  const { paths } = await (await fetch(`${server.url}/v1/openapi.json`)).json();
  if (!paths["/v1/datasets/{dataset}/fence"]) {
    console.log("NOT CHECKED: geofences, which this program does not serve");
    return;
  }
  await step("records enter an area and leave it", async () => {
    const { page, errors, end } = await open(browser, server, { hash: "#live" });
    await page.locator("#live-dataset option").first().waitFor({ state: "attached" });
    await page.locator("#live-kind").selectOption("fence");
    await page.locator("#live-dataset").selectOption("vehicles");
    await page.locator("#live-area").fill("rect(13.1,52.52,13.7,52.8)");
    await page.keyboard.press("Enter");
    await until(page, () => document.querySelector("#live-status").textContent.startsWith("Connected"));
    for (let round = 0; round < 20; round += 1) await server.move();
    for (const event of ["enter", "exit"]) {
      await until(page, (name) => document.querySelector(`#live-events .${name}`), event);
      for (let round = 0; round < 5; round += 1) await server.move();
    }
    await audit(page, "fence");
    await page.screenshot({ path: join(pictures, "fence.png") });
    assert.deepEqual(errors, []);
    await end();
  });
}

async function keys(browser, server) {
  await step("keys reach everything, and the colours can be chosen", async () => {
    const { page, errors, end } = await open(browser, server, {});
    await page.keyboard.press("Tab");
    assert.equal(await page.evaluate(() => document.activeElement.textContent), "Skip to the content");
    await page.keyboard.press("Tab");
    await page.keyboard.press("Tab");
    await page.keyboard.press("Enter");
    await page.locator("#layers h1").waitFor();
    assert.equal(await page.locator("#views a[aria-current=page]").innerText(), "Layers");
    const colour = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    const light = await colour();
    await page.locator("#theme").selectOption("dark");
    const dark = await colour();
    assert.notEqual(dark, light);
    await page.reload();
    assert.equal(await colour(), dark);
    assert.deepEqual(errors, []);
    await end();
  });
}

/** The operation with this name, opened. */
async function operation(page, name) {
  const panel = page.locator(`#${name}`);
  await panel.locator("summary").first().click();
  await panel.locator("form").waitFor();
  return panel;
}

async function reference(browser, server) {
  for (const [theme, width] of [["light", 1400], ["dark", 1400], ["light", 390], ["dark", 390]]) {
    await step(`the interface, ${theme}, ${width} pixels wide`, async () => {
      const { page, errors, end } = await open(browser, server, { theme, width, height: 900, hash: "api" });
      await page.locator("#operations details").first().waitFor();
      await audit(page, "list");
      await page.screenshot({ path: join(pictures, `api-${theme}-${width}.png`) });
      for (const name of ["apply_batch", "find", "write"]) {
        const panel = await operation(page, name);
        await panel.scrollIntoViewIfNeeded();
        const over = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
        assert.ok(over <= 0, `${name} is ${over} pixels too wide`);
        await audit(page, name);
        await panel.screenshot({ path: join(pictures, `api-${name}-${theme}-${width}.png`) });
      }
      assert.deepEqual(errors, []);
      await end();
    });
  }
  await step("every operation can be opened, and says what it needs", async () => {
    const { page, errors, end } = await open(browser, server, { hash: "api" });
    await page.locator("#operations details").first().waitFor();
    const names = await page.locator("#operations > section > details").evaluateAll((all) => all.map(({ id }) => id));
    assert.ok(names.length > 60, `${names.length}`);
    await page.locator("#operations > section > details").evaluateAll((all) => { for (const one of all) one.open = true; });
    await until(page, (count) => document.querySelectorAll("#operations .try .shell").length === count, names.length);
    await audit(page, "all operations");
    assert.deepEqual(errors, []);
    await end();
  });
  await step("operations are found and sent by keys alone", async () => {
    const { page, errors, end } = await open(browser, server, { hash: "api" });
    await page.locator("#operations details").first().waitFor();
    await page.keyboard.press("/");
    await page.keyboard.type("create_dataset");
    await until(page, () => document.querySelector("#found").textContent === "1 operations.");
    await page.keyboard.press("Tab");
    for (let count = 0; count < 10 && await page.evaluate(() => document.activeElement.tagName !== "SUMMARY"); count += 1) {
      await page.keyboard.press("Tab");
    }
    await page.keyboard.press("Enter");
    const panel = page.locator("#create_dataset");
    await panel.locator("form").waitFor();
    await panel.locator("#create_dataset-dataset").fill("tried it");
    await page.keyboard.press("Enter");
    await panel.locator(".result .bad").waitFor();
    assert.match(await panel.locator(".result").innerText(), /^400[\s\S]*problem\+json[\s\S]*"bad-input"/);
    await panel.locator("#create_dataset-dataset").fill("tried");
    assert.match(await panel.locator(".shell").innerText(), /^curl -X PUT[\s\S]*\/v1\/datasets\/tried'[\s\S]*id:int/);
    await page.keyboard.press("Enter");
    await panel.locator(".result .good").waitFor();
    assert.match(await panel.locator(".result").innerText(), /^201[\s\S]*"name": "tried"/);
    await audit(page, "an answer");
    await page.screenshot({ path: join(pictures, "api-answer.png"), fullPage: true });

    await page.goto(`${server.url}/api#changes`);
    const changes = page.locator("#changes");
    await changes.locator("#changes-dataset").fill("vehicles");
    await changes.locator("#changes-from").fill("oldest");
    await changes.locator("#changes-where").fill("id = 3");
    await changes.getByRole("button", { name: "Send" }).click();
    await until(page, () => document.querySelector("#changes .result pre")?.textContent.includes("event: put"));
    await changes.getByRole("button", { name: "Stop" }).click();
    await until(page, () => document.querySelector("#changes .result .status").textContent.endsWith("Stopped."));
    assert.deepEqual(errors.filter((error) => !error.includes("400")), []);
    await end();
  });
}

async function tokens(browser) {
  const sha256 = createHash("sha256").update("secret").digest("hex");
  const parts = createHash("sha256").update("parts").digest("hex");
  const settings = `[[tokens]]\nname = "root"\nsha256 = "${sha256}"\nrole = "admin"\n`
    + `[[tokens]]\nname = "parts"\nsha256 = "${parts}"\nrole = "read"\ndatasets = ["visits"]\n`;
  const server = await Server.start(program, settings);
  server.headers = { authorization: "Bearer secret" };
  await server.fill(2000);
  await step("the interface has the token of the tab, and its commands have none", async () => {
    const { page, errors, end } = await open(browser, server, { hash: "api" });
    const panel = await operation(page, "list_datasets");
    await panel.getByRole("button", { name: "Send" }).click();
    await page.locator("#token-dialog[open]").waitFor();
    await audit(page, "dialog of the interface");
    await page.locator("#token").fill("secret");
    await page.keyboard.press("Enter");
    await panel.getByRole("button", { name: "Send" }).click();
    await panel.locator(".result .good").waitFor();
    const shell = await panel.locator(".shell").innerText();
    assert.match(shell, /-H "authorization: Bearer \$ESKER_TOKEN"/);
    assert.ok(!shell.includes("secret"), shell);
    await page.goto(server.url);
    await until(page, () => document.querySelector("#connection").dataset.state === "on");
    assert.deepEqual(errors.filter((error) => !/401/.test(error)), []);
    await end();
  });
  await step("a token is asked for, and kept in the tab alone", async () => {
    const { page, errors, end } = await open(browser, server, {});
    await page.locator("#token-dialog[open]").waitFor();
    await audit(page, "dialog");
    await page.locator("#token").fill("wrong");
    await page.keyboard.press("Enter");
    await until(page, () => document.querySelector("#connection-text").textContent === "needs a token");
    await page.locator("#token-button").click();
    await page.locator("#token").fill("secret");
    await page.keyboard.press("Enter");
    await until(page, () => document.querySelector("#connection").dataset.state === "on");
    assert.equal(await page.evaluate(() => localStorage.getItem("esker-token")), null);
    await page.locator("#token-button").click();
    await page.locator("#token").fill("parts");
    await page.keyboard.press("Enter");
    await page.getByText("This token is for parts of the store").waitFor();
    await page.locator('#views a[href="#layers"]').click();
    await page.locator('section[aria-label="data"]').waitFor();
    assert.deepEqual(await page.locator("#layers-dataset option").allInnerTexts(), ["visits"]);
    assert.equal(await page.locator("#layers-compact").isVisible(), false);
    assert.deepEqual(errors.filter((error) => !/40[13]/.test(error)), []);
    await end();
  });
  await server.stop();
}

async function ending(browser, server) {
  await step("a server that has gone is said", async () => {
    const { page, end } = await open(browser, server, {});
    await until(page, () => document.querySelector("#connection").dataset.state === "on");
    await server.stop();
    await until(page, () => document.querySelector("#connection-text").textContent.startsWith("no answer"));
    await end();
  });
}

const browser = await chromium.launch({ executablePath: process.env.CHROMIUM, args: ["--no-sandbox"] });
const server = await Server.start(program);
try {
  await server.fill(60_000);
  await queries(browser, server);
  await compaction(browser, server);
  await live(browser, server);
  await fence(browser, server);
  await keys(browser, server);
  await everyView(browser, server);
  await reference(browser, server);
  await tokens(browser);
} finally {
  await ending(browser, server);
  await browser.close();
}
console.log(`${steps} steps, ${problems.length} failed; pictures in ${pictures}`);
process.exitCode = problems.length > 0 ? 1 : 0;
