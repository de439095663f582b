// The parts of the page that need no browser.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { test } from "node:test";

const page = new URL("../../crates/server/src/dashboard/", import.meta.url);
const part = (name) => import(new URL(name, page));

const { proposals } = await part("complete.js");
const { History } = await part("metrics.js");
const { events } = await part("sse.js");
const { bodyOf, bodyText, commandOf, groups, kindOf, matches, members, pretty, requestOf } = await part("openapi.js");
const { outlineOf, pointOf, pointPaths } = await part("points.js");
const { age, bytes, duration, percent, short } = await part("units.js");

const known = {
  fields: [{ path: "user.name", types: ["text"] }, { path: "ms", types: ["int"] }, { path: "ok", types: ["bool"] }],
  values: new Map([["user.name", ["ann", "Ann Lee"]]]),
  points: ["at"],
};
const proposed = (text) => proposals(text, text.length, known).found.map((one) => one.text);

test("completion knows what may follow", () => {
  assert.deepEqual(proposed("us"), ["user.name"]);
  assert.deepEqual(proposed("wi"), ["within(at, rect("]);
  assert.ok(proposed("user.name ").includes("contains"));
  assert.ok(!proposed("ms ").includes("contains"));
  assert.deepEqual(proposed("user.name = a"), ["ann", '"Ann Lee"']);
  assert.deepEqual(proposed("ok = "), ["true", "false"]);
  assert.deepEqual(proposed("ms > 5 "), ["and", "or"]);
  assert.deepEqual(proposed("not ms is null "), ["and", "or"]);
  assert.deepEqual(proposed("(ms > 5) or u"), ["user.name"]);
  assert.deepEqual(proposed("user.name in (a"), ["ann", '"Ann Lee"']);
  // What stands behind the caret stays.
  assert.equal(proposals("ms > 5 and us", 2, known).at, 0);
});

test("events are read however the bytes are cut", async () => {
  const text = 'retry: 2000\n\n: alive\n\nid: 7\r\nevent: put\r\ndata: {"a":\r\ndata: "ü"}\r\n\r\nid: 8\ndata:x\n\n';
  const all = new TextEncoder().encode(text);
  for (const size of [1, 2, 3, 7, all.length]) {
    const pieces = [];
    for (let at = 0; at < all.length; at += size) pieces.push(all.slice(at, at + size));
    const found = [];
    for await (const event of events(ReadableStream.from(pieces))) found.push(event);
    assert.deepEqual(found, [{ id: "7", event: "put", data: '{"a":\n"ü"}' }, { id: "8", data: "x" }], `${size}`);
  }
});

function metrics(gets, slow) {
  const route = '/v1/datasets/{dataset}/records/{key}';
  return [
    `esker_http_requests_total{route="${route}",method="GET",status="200"} ${gets}`,
    'esker_http_requests_total{route="/v1/stat",method="GET",status="200"} 1000',
    ...[["0.001", gets - slow], ["0.01", gets], ["+Inf", gets]].map(([le, value]) =>
      `esker_http_request_seconds_bucket{le="${le}",route="${route}",method="GET"} ${value}`),
    "esker_calls_running 3",
  ].join("\n");
}

test("rates, shares and latencies follow from two samples", () => {
  const history = new History();
  const stat = (written) => ({ counters: {
    operations: written, log_bytes: written, flush_bytes: 100, merge_write_bytes: 150,
    blocks_cached: written * 3, blocks_read: written,
  } });
  history.add(stat(1000), metrics(100, 0), 1000);
  history.add(stat(3000), metrics(200, 50), 3000);
  const last = (name) => history.series[name].at(-1);
  assert.equal(history.series.writes[0], null);
  assert.equal(last("writes"), 1000);
  assert.equal(last("asked"), 50, "requests of the page itself do not count");
  assert.equal(last("amplification"), 2.5);
  assert.equal(last("hits"), 0.75);
  assert.ok(Math.abs(last("p50") - 0.001) < 1e-9 && last("p99") > 0.009, `${last("p50")} ${last("p99")}`);
  // After a restart nothing is known yet.
  history.add(stat(10), metrics(1, 0), 4000);
  assert.equal(last("writes"), null);
  for (let at = 0; at < 700; at += 1) history.add(stat(20 + at), undefined, 5000 + at * 1000);
  assert.equal(history.times.length, 600);
  assert.ok(Object.values(history.series).every((values) => values.length === 600));
});

test("points are found in each form that records have", () => {
  assert.deepEqual(pointOf({ at: [1, 2] }, ["at"]), [1, 2]);
  assert.deepEqual(pointOf({ at: { lon: 1, lat: 2 } }, ["at"]), [1, 2]);
  assert.deepEqual(pointOf({ a: { at: { type: "Point", coordinates: [1, 2] } } }, ["a.at"]), [1, 2]);
  assert.deepEqual(pointOf({ x: 1, y: 2 }, ["x,y"]), [1, 2]);
  assert.deepEqual(pointOf({ n: 5, at: [1, 2] }, []), [1, 2]);
  assert.equal(pointOf({ at: ["a", "b"] }, ["at"]), undefined);
  assert.equal(pointOf({ n: null, tags: ["a"] }, []), undefined);
  const indexes = [{ path: "at", type: "point" }, { path: "at@seen", type: "point-time" }, { path: "n", type: "int" }];
  assert.deepEqual(pointPaths({ definition: { indexes } }), ["at"]);
});

test("numbers are short", () => {
  assert.deepEqual([bytes(0), bytes(999), bytes(1536), bytes(5 << 20)], ["0 B", "999 B", "1.5 KiB", "5 MiB"]);
  assert.deepEqual([short(9999), short(12_345), short(2.5e6)], ["9,999", "12.3 k", "2.50 M"]);
  assert.deepEqual([duration(0.0000015), duration(0.0123), duration(75)], ["1.50 µs", "12 ms", "1 min"]);
  assert.deepEqual([percent(0.9997), percent(1), percent(0.5)], ["99.97 %", "100 %", "50 %"]);
  assert.deepEqual([age(59.9), age(7200), age(3 * 86400)], ["59 s", "2 h", "3 d"]);
});

test("areas have outlines", () => {
  assert.deepEqual(outlineOf("rect(1,2,3,4)"), [[1, 2], [3, 2], [3, 4], [1, 4], [1, 2]]);
  assert.deepEqual(outlineOf("rect(170,0,-170,1)")[1], [190, 0]);
  const round = outlineOf("circle(10,0,111195)");
  assert.ok(Math.abs(round[0][0] - 11) < 1e-9 && round.length === 73);
  assert.deepEqual(outlineOf("polygon([[0,0],[9,0],[9,9],[0,0]])"), [[0, 0], [9, 0], [9, 9], [0, 0]]);
  assert.deepEqual(outlineOf('{"type":"Polygon","coordinates":[[[0,0],[9,0],[9,9],[0,0]]]}').length, 4);
  for (const text of ["", "rect(1,2,3)", "circle(a,b,c)", "polygon([[0,", "{}"]) assert.equal(outlineOf(text), undefined);
});

const description = {
  tags: [{ name: "records", description: "Records" }, { name: "none", description: "" }],
  paths: {
    "/v1/{dataset}/{key}": {
      put: { tags: ["records"], operationId: "put", summary: "Puts a record" },
      get: { tags: ["records"], operationId: "get", summary: "Gets a record" },
    },
  },
  components: {
    schemas: {
      Seq: { type: "integer" },
      Write: { properties: { op: { $ref: "#/components/schemas/Op" }, seq: { oneOf: [{ $ref: "#/components/schemas/Seq" }, { type: "null" }] } }, required: ["op"] },
      Op: { type: "string", enum: ["put", "delete"] },
      Both: { allOf: [{ $ref: "#/components/schemas/Write" }, { properties: { n: { type: ["number", "null"], description: "A number" } } }] },
    },
  },
};

test("operations stand in the groups of the document", () => {
  const [group, ...others] = groups(description);
  assert.deepEqual(others, []);
  assert.deepEqual(group.operations.map(({ method, operationId }) => [method, operationId]), [["get", "get"], ["put", "put"]]);
  assert.ok(matches(group.operations[0], "GET key"));
  assert.ok(!matches(group.operations[0], "puts"));
});

test("schemas are told in words", () => {
  assert.equal(kindOf(description, { type: "array", items: { type: "string" } }), "list of string");
  assert.deepEqual(members(description, { $ref: "#/components/schemas/Both" }), [
    { name: "op", kind: '"put" or "delete"', required: true, description: "" },
    { name: "seq", kind: "integer", required: false, description: "" },
    { name: "n", kind: "number", required: false, description: "A number" },
  ]);
});

test("a form becomes a request and a command", () => {
  const operation = {
    method: "put",
    path: "/v1/{dataset}/{key}",
    parameters: [
      { name: "dataset", in: "path" },
      { name: "key", in: "path" },
      { name: "where", in: "query", schema: { type: "array" } },
      { name: "limit", in: "query" },
      { name: "if-match", in: "header" },
    ],
  };
  const values = { dataset: "visits", key: "a/b?", where: "n > 5\nuser = 'ann'\n", limit: "", "if-match": '"3"' };
  const request = requestOf(operation, values, { media: "application/json", body: "{\"it's\": 1}" });
  assert.equal(request.path, "/v1/visits/a%2Fb%3F?where=n+%3E+5&where=user+%3D+%27ann%27");
  assert.deepEqual(request.headers, { "if-match": '"3"', "content-type": "application/json" });
  const command = commandOf("http://localhost:7700", request, true);
  const run = (text) => execFileSync("bash", ["-c", `curl() { printf '%s\\n' "$@"; }\n${text}`], { encoding: "utf8", env: { ESKER_TOKEN: "from-the-shell" } });
  assert.deepEqual(run(command).trimEnd().split("\n"), [
    "-X", "PUT", `http://localhost:7700${request.path}`,
    "-H", "authorization: Bearer from-the-shell", "-H", 'if-match: "3"', "-H", "content-type: application/json",
    "--data-binary", "{\"it's\": 1}",
  ]);
  assert.ok(!commandOf("", request, false).includes("authorization"));
  // Frames are bytes.
  const frames = "application/x-esker-rows";
  const text = bodyText(frames, 'D\u0002\u0000"');
  assert.equal(bodyOf(frames, text), 'D\u0002\u0000"');
  const binary = commandOf("", { method: "POST", path: "/", headers: {}, body: "D\u0002\u0000" }, false);
  assert.match(binary, /^printf '\\104\\002\\000' \| curl/);
});

test("JSON is laid out unless digits would be lost", () => {
  assert.equal(pretty('{"a":1}'), '{\n  "a": 1\n}');
  assert.equal(pretty('{"a":12345678901234567890}'), '{"a":12345678901234567890}');
  assert.equal(pretty("no JSON"), "no JSON");
});
