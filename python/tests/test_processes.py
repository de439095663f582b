"""Threads, forks, signals, memory."""

import gc
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
import tracemalloc
from typing import Callable

import pytest

import esker


def test_threads_write_and_read_at_once(db: esker.Database) -> None:
    shared = db.create("shared", key="id:int", indexes={"t": "composite:int"})
    failed: list[BaseException] = []

    def work(thread: int) -> None:
        try:
            for n in range(200):
                shared.put({"id": thread * 1000 + n, "t": thread})
                if n % 50 == 0:
                    assert shared.count(t=thread) == n + 1
                shared.update(-1, lambda record: {"id": -1, "n": (record or {"n": 0})["n"] + 1})
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert shared[-1] == {"id": -1, "n": 1200} and shared.count() == 1201


def test_an_iterator_of_one_thread_is_not_read_by_another_at_once(db: esker.Database) -> None:
    many = db.create("many", key="id:int")
    many.load({"id": n} for n in range(20000))
    rows = iter(many.find())
    seen: list[int] = []
    refused: list[RuntimeError] = []

    def read() -> None:
        while True:
            try:
                row = next(rows, None)
            except RuntimeError as error:
                refused.append(error)
                continue
            if row is None:
                return
            seen.append(row["id"])

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(seen) == list(range(20000))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_process_neither_uses_nor_closes_the_store(db: esker.Database, visits: esker.Dataset) -> None:
    rows, query, batch, feed = iter(visits.find()), visits.find(n=1), visits.batch(), visits.changes()
    batch.put({"id": 1000})
    next(rows)
    child = os.fork()
    if child == 0:
        # What fails here shows by the exit code.
        code = 1
        try:
            calls: list[Callable[[], object]] = [
                lambda: visits[1],
                lambda: visits.put({"id": 1}),
                db.datasets,
                db.close,
                query.count,
                lambda: next(rows),
                batch.commit,
                lambda: feed.wait(0),
            ]
            forked = 0
            for call in calls:
                try:
                    call()
                except esker.ForkedError:
                    forked += 1
            del visits, query, rows, batch, feed, calls, call
            gc.collect()
            code = 0 if forked == 8 else 2
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    batch.commit()
    assert 1000 in visits and visits.count() == 101


INTERRUPTED = """
import os, signal, sys, threading, time
import esker

db = esker.open(sys.argv[1])
many = db.create("many", key="id:int")
many.load({"id": n, "text": "x" * 50} for n in range(60000))


# An interrupted answer goes on, or says that it was cancelled: it never looks complete.
def rows():
    while True:
        answer, seen = iter(many.find()), 0
        try:
            for _ in answer:
                seen += 1
        except KeyboardInterrupt:
            try:
                seen += sum(1 for _ in answer)
            except esker.CancelledError:
                raise KeyboardInterrupt from None
            # One record may have been returned without being counted.
            assert seen in (59999, 60000), seen
            raise


calls = {
    "rows": rows,
    "count": lambda: [many.count(f"text = y{n}") for n in range(100000)],
    "find": lambda: [list(many.find(f"text = y{n}")) for n in range(100000)],
    "load": lambda: many.load({"id": n} for n in range(10**9)),
    "changes": lambda: next(many.changes()),
}
# The signal comes when the call is under way, as Ctrl-C does.
threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    calls[sys.argv[2]]()
except KeyboardInterrupt:
    # The store is as usable as before.
    many.put({"id": -1})
    assert many[-1] == {"id": -1}
    db.close()
    print("interrupted")
"""


@pytest.mark.parametrize("call", ["count", "find", "rows", "load", "changes"])
def test_ctrl_c_ends_long_calls(tmp_path: pathlib.Path, call: str) -> None:
    run = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, str(tmp_path / "db"), call], capture_output=True, text=True, timeout=300
    )
    assert run.stdout == "interrupted\n", run.stderr


def test_other_threads_run_while_the_store_works(db: esker.Database) -> None:
    many = db.create("many", key="id:int")
    many.load({"id": n, "text": "x" * 100} for n in range(50000))
    counting = threading.Event()
    done = threading.Event()

    def count() -> None:
        counting.set()
        for n in range(20):
            many.count(f"text = y{n}")
        done.set()

    thread = threading.Thread(target=count)
    thread.start()
    counting.wait()
    turns = 0
    while not done.is_set():
        time.sleep(0)
        turns += 1
    thread.join()
    # With the lock held in calls there would be a turn for each at most.
    assert turns > 100


def test_a_store_left_open_ends_with_its_process(tmp_path: pathlib.Path) -> None:
    program = "import esker, sys; db = esker.open(sys.argv[1]); d = db.create('d', key='id:int'); d.put({'id': 1}); rows = iter(d.find())"
    for _ in range(2):
        run = subprocess.run([sys.executable, "-c", program, str(tmp_path / "db")], capture_output=True, text=True, timeout=300)
        assert run.returncode == 0 or "exists already" in run.stderr
    with esker.open(tmp_path / "db", mode="write") as db:
        assert list(db["d"]) == [1]


def test_nothing_leaks(db: esker.Database) -> None:
    # A shell starts programs in the background with SIGINT ignored.
    handler = signal.getsignal(signal.SIGINT)
    small = db.create("small", key="id:int", indexes={"v": "composite:int"})

    def once() -> None:
        for n in range(50):
            small.put({"id": n, "v": n % 5, "text": f"x{n}", "deep": {"a": [1, 2.5, None]}})
        for _ in small.find(v=1):
            pass
        small.get(1), small.count(v=2), small.aggregate("count", by="v")
        next(iter(small.find()))
        with small.batch() as batch:
            batch.put({"id": 1})
        try:
            small.put({"id": "x"})
        except esker.InputError:
            pass
        small.update(1, lambda record: {"id": 1, "n": 1})

    for _ in range(20):
        once()
    gc.collect()
    tracemalloc.start()
    once()
    gc.collect()
    before = tracemalloc.take_snapshot()
    for _ in range(20):
        once()
    gc.collect()
    after = tracemalloc.take_snapshot()
    tracemalloc.stop()
    grown = sum(stat.size_diff for stat in after.compare_to(before, "filename") if "tracemalloc" not in str(stat.traceback))
    # 20 rounds make some 20,000 objects: one that is left in each round is at least 50 bytes each.
    assert grown < 20_000, after.compare_to(before, "lineno")[:10]
    assert signal.getsignal(signal.SIGINT) is handler
