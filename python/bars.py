"""Measures gets, loads of dicts, the import. Medians of a few runs, as JSON.

`python bars.py [RECORDS]`, with the package that is to be measured.
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any, Callable

import esker


def flight(n: int) -> dict[str, Any]:
    return {
        "id": n,
        "carrier": ["AA", "UA", "DL", "WN"][n % 4],
        "number": n % 7000,
        "origin": ["ORD", "ATL", "DFW", "DEN", "LAX"][n % 5],
        "dest": ["JFK", "SFO", "SEA", "MIA"][n % 4],
        "scheduled": "2026-11-21T09:00:00Z",
        "delay": n % 90 - 10,
        "distance": 100 + n % 2500,
        "cancelled": n % 50 == 0,
    }


def median(runs: int, measure: Callable[[], float]) -> float:
    return statistics.median(measure() for _ in range(runs))


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 300_000
    found: dict[str, float] = {}
    flights = [flight(n) for n in range(count)]
    lines = [json.dumps(f).encode() for f in flights]
    with tempfile.TemporaryDirectory() as folder, esker.open(folder + "/db", durability="os") as db:

        def load(records: list[Any]) -> float:
            dataset = db.create("flights", key="id:int")
            begin = time.perf_counter()
            dataset.load(records)
            took = time.perf_counter() - begin
            db.drop("flights")
            return count / took

        found["dicts loaded a second"] = median(3, lambda: load(flights))
        found["lines of bytes loaded a second"] = median(3, lambda: load(lines))
        dataset = db.create("flights", key="id:int")
        dataset.load(lines)
        db.compact()

        def each(call: Callable[[int], Any]) -> float:
            keys = [n * 7919 % count for n in range(50_000)]
            begin = time.perf_counter()
            for key in keys:
                call(key)
            return (time.perf_counter() - begin) / len(keys) * 1e6

        each(dataset.get)
        found["get of a dict, us"] = median(5, lambda: each(dataset.get))
        found["get of bytes, us"] = median(5, lambda: each(dataset.get_bytes))

        def read_all() -> float:
            begin = time.perf_counter()
            read = sum(1 for _ in dataset.find().order_by("key"))
            return read / (time.perf_counter() - begin)

        found["dicts read a second"] = median(3, read_all)
    program = "import time; b = time.perf_counter(); import esker; print((time.perf_counter() - b) * 1e3)"
    imports = lambda: float(subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout)
    found["import, ms"] = median(7, imports)
    print(json.dumps({name: round(value, 2) for name, value in found.items()}, indent=1))


if __name__ == "__main__":
    main()
