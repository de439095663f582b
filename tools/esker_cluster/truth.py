#!/usr/bin/env python3
"""Real events in a real cluster, which is started here: the answers of other software, by index and by scan.

    truth.py EXE cassandra|hbase [1|3] [DATASET...]    EXE is the binary; DATASET is osm_edits or events, or both

Each dataset is loaded and asked; then 2,000 records are changed and changed back, with one of three servers killed, asked
again, repaired, asked again, and checked. ESKER_DATA names the folder of truth.json and the records (without it
../shared/data beside the repository), ESKER_CASSANDRA and ESKER_HBASE those of the servers' jars. The exit code is 1 if an
answer is wrong.
"""
import json
import os
import re
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
DATA = os.environ.get("ESKER_DATA") or os.path.join(HERE, "..", "..", "..", "shared", "data")
INDEXES = {
    "osm_edits": ["user", "kind", "time", "node"],
    "events": ["time", "author", "committer", "path"],
}
OPERATORS = ("=", ">=", "<=", ">", "<")
MOVED = 2000


class Cluster:
    def __init__(self, kind, nodes):
        self.kind, self.nodes = kind, nodes
        net = os.environ.get("ESKER_CASSANDRA_NET") or "127.0.0"
        port = 9090 + int(os.environ.get("ESKER_HBASE_PORTS") or 0)
        self.host = f"{net}.1" if kind == "cassandra" else f"127.0.0.1:{port}"

    def run(self, *words):
        script = os.path.join(HERE, self.kind + ".py")
        done = subprocess.run([sys.executable, script, *map(str, words)], capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{self.kind} {words}: {done.stdout}{done.stderr}")

    def __enter__(self):
        self.run("down")
        self.run("up", self.nodes)
        return self

    def __exit__(self, *_):
        self.run("down")

    def size(self):
        """The bytes of the servers' folder."""
        variable = "ESKER_CASSANDRA" if self.kind == "cassandra" else "ESKER_HBASE"
        home = os.environ.get(variable)
        if not home:
            return {}
        found = {}
        for folder, _, files in os.walk(os.path.join(home, "run")):
            for name in files:
                path = os.path.join(folder, name)
                parts = os.path.relpath(path, os.path.join(home, "run")).split(os.sep)
                try:
                    found["/".join(parts[:2])] = found.get("/".join(parts[:2]), 0) + os.stat(path).st_blocks * 512
                except OSError:
                    pass
        return found


class Truth:
    def __init__(self, exe, cluster, dataset):
        self.exe, self.dataset = exe, dataset
        self.address = f"{cluster.kind}://{cluster.host}/{dataset}"
        with open(os.path.join(DATA, "truth.json")) as file:
            queries = json.load(file)["queries"]
        self.queries = [query for query in queries if query["dataset"] == dataset and self.is_asked(query)]
        self.asked, self.wrong = 0, []

    @staticmethod
    def is_asked(query):
        where = query.get("where") or []
        is_other = query.get("mutate") or query.get("offset") or query.get("rect") or query["op"] != "select"
        return bool(where) and not is_other and all(part[1] in OPERATORS for part in where)

    def run(self, *words, text=None):
        done = subprocess.run([self.exe, *words], input=text, capture_output=True, text=True)
        return done

    def must(self, *words, text=None):
        begun = time.monotonic()
        done = self.run(*words, text=text)
        if done.returncode:
            self.wrong.append(f"{' '.join(words[:3])} exits {done.returncode}: {done.stderr[-300:]}")
        print(f"  {words[0]}: {time.monotonic() - begun:.1f} s  {done.stderr.strip().splitlines()[-1:]}", flush=True)
        return done

    def ask(self, label):
        for query in self.queries:
            self.asked += 1
            done = self.run("find", self.address, "d", *(f"{path}{op}{value}" for path, op, value in query["where"]))
            ids = sorted(json.loads(line)["id"] for line in done.stdout.splitlines())
            result = query["result"]
            is_right = len(ids) == result["matched"]
            if "ids" in result and not query.get("limit"):
                is_right = is_right and ids == sorted(result["ids"])
            if not is_right:
                self.wrong.append(f"{label}, {query['q']}: {len(ids)} for {result['matched']} {done.stderr[:200]}")
        print(f"  {label}: {len(self.queries)} questions", flush=True)

    def all(self, cluster):
        file = os.path.join(DATA, f"{self.dataset}.ndjson.zst")
        indexes = [word for path in INDEXES[self.dataset] for word in ("--index", f"{path}:composite")]
        self.must("load", self.address, "d", file, "--key", "id", *indexes)
        print(f"  on disk: {show(cluster.size())}", flush=True)
        self.ask("fresh")
        if cluster.nodes == 3:
            cluster.run("kill", 3)
        path = INDEXES[self.dataset][0 if self.dataset == "osm_edits" else 1]
        lines = subprocess.run(["zstd", "-dcq", file], capture_output=True, text=True).stdout.splitlines()[:MOVED]
        records = [json.loads(line) for line in lines]
        moved = "".join(json.dumps({**record, path: "nobody"}) + "\n" for record in records)
        self.must("load", self.address, "d", "-", text=moved)
        found = len(self.run("lookup", self.address, "d", path, "nobody").stdout.splitlines())
        if found != len(records):
            self.wrong.append(f"{found} of {len(records)} changed records are found")
        self.must("load", self.address, "d", "-", text="".join(line + "\n" for line in lines))
        if self.run("lookup", self.address, "d", path, "nobody").stdout:
            self.wrong.append("obsolete entries show")
        self.ask("changed and changed back")
        if cluster.nodes == 3:
            cluster.run("start", 3)
        self.must("repair", self.address, "d")
        self.ask("repaired")
        self.must("check", self.address)
        print(f"  on disk: {show(cluster.size())}", flush=True)


def show(sizes):
    return ", ".join(f"{name} {size >> 20} MiB" for name, size in sorted(sizes.items()) if size >> 20)


def main(words):
    kinds = ("cassandra", "hbase")
    if len(words) < 2 or words[1] not in kinds:
        sys.exit(__doc__.strip())
    exe, kind, rest = words[0], words[1], words[2:]
    nodes = int(rest.pop(0)) if rest and re.fullmatch("[13]", rest[0]) else 1
    with Cluster(kind, nodes) as cluster:
        truths = [Truth(exe, cluster, dataset) for dataset in rest or INDEXES]
        for truth in truths:
            print(f"{truth.dataset} on {kind}, {nodes} node(s)", flush=True)
            truth.all(cluster)
    wrong = [text for truth in truths for text in truth.wrong]
    asked = sum(truth.asked for truth in truths)
    for text in wrong:
        print(f"WRONG: {text}")
    print(f"{asked} questions, {len(wrong)} wrong")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main(sys.argv[1:])
