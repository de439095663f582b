// A server with data, as the check needs it: `esker serve` on a folder that is removed at the end.

import { spawn } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** Records of each load. */
const PART = 2000;

export class Server {
  /** Starts the program; with `settings`, the text of a file of settings. */
  static async start(program, settings) {
    const server = new Server();
    server.folder = await mkdtemp(join(tmpdir(), "esker-dashboard-"));
    const more = [];
    if (settings) {
      await writeFile(join(server.folder, "esker.toml"), settings);
      more.push("--config", join(server.folder, "esker.toml"));
    } else more.push("--memory", "24M");
    const args = ["serve", join(server.folder, "db"), "--listen", "127.0.0.1:0", ...more];
    server.process = spawn(program, args, { stdio: ["ignore", "ignore", "pipe"] });
    server.ended = new Promise((done) => { server.process.on("exit", done); });
    server.url = await new Promise((found, failed) => {
      let text = "";
      server.process.stderr.on("data", (data) => {
        text += data;
        const address = /http:\/\/[\d.]+:\d+/.exec(text);
        if (address) found(address[0]);
      });
      server.ended.then((code) => failed(new Error(`the server has ended with ${code}: ${text}`)));
    });
    return server;
  }

  async stop() {
    this.process.kill("SIGTERM");
    await this.ended;
    await rm(this.folder, { recursive: true, force: true });
  }

  async ask(method, path, body, type = "application/json") {
    const text = typeof body === "string" ? body : JSON.stringify(body);
    const response = await fetch(this.url + path, { method, body: text, headers: { "content-type": type, ...this.headers } });
    const answer = await response.text();
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${answer}`);
    return answer && JSON.parse(answer);
  }

  /** Loads records. */
  load(dataset, records) {
    const lines = records.map((record) => JSON.stringify(record).replace(/"trace":"(\d+)"/, '"trace":$1')).join("\n");
    return this.ask("POST", `/v1/datasets/${dataset}/records`, lines, "application/x-ndjson");
  }

  /** Two datasets: visits of pages, and vehicles that move. */
  async fill(visits) {
    await this.ask("PUT", "/v1/datasets/vehicles", {
      key: "id:int", indexes: ["at:spatial", "line:composite:int"], old_records: true,
    });
    await this.ask("PUT", "/v1/datasets/visits", { key: "id:int", indexes: ["user.name:recent:string", "ms:embedded:int", "page:lazy:string"] });
    for (let first = 0; first < visits; first += PART) {
      await this.load("visits", Array.from({ length: PART }, (_, nth) => visit(first + nth)));
    }
    for (let round = 0; round < 3; round += 1) await this.move();
  }

  /** Each vehicle moves on. */
  async move() {
    this.moved = (this.moved ?? 0) + 1;
    await this.load("vehicles", Array.from({ length: 200 }, (_, id) => {
      const angle = this.moved * 0.06 + id;
      const reach = 0.03 + (id % 40) * 0.004;
      return {
        id, line: id % 12, speed: 20 + (id % 30),
        at: [13.4 + Math.cos(angle) * reach * 1.6, 52.52 + Math.sin(angle) * reach],
      };
    }));
  }
}

function visit(id) {
  return {
    id,
    user: { name: `ann${id % 97}` },
    page: `/docs/${id % 53}`,
    ms: (id * 7919) % 900,
    at: new Date(Date.UTC(2026, 0, 1) + id * 1000).toISOString(),
    // Loaded as a number.
    trace: traceOf(id).toString(),
  };
}

/** A number of more digits than a double has. */
export function traceOf(id) {
  return BigInt.asUintN(62, BigInt(id + 1) * 0x9e3779b97f4a7c15n) + 2n ** 60n;
}
