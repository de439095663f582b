"""The change feed, for loops and for asyncio."""

import asyncio
import threading

import pytest

import esker


def test_changes_come_in_order(visits: esker.Dataset) -> None:
    feed = visits.changes(timeout=0)
    assert list(feed) == []
    visits.put({"id": 1, "n": 1})
    visits.delete(1)
    with visits.batch() as batch:
        batch.put({"id": 2})
        batch.put({"id": 3})
    changes = list(feed)
    assert [(c.kind, c.key, c.record) for c in changes] == [
        ("put", 1, {"id": 1, "n": 1}),
        ("deleted", 1, None),
        ("put", 2, {"id": 2}),
        ("put", 3, {"id": 3}),
    ]
    assert [c.seq for c in changes] == sorted(c.seq for c in changes)
    assert repr(changes[1]) == f"<Change deleted 1, seq {changes[1].seq}>"
    again = list(visits.changes(changes[1].position, timeout=0))
    assert [c.key for c in again] == [2, 3]
    assert [c.key for c in visits.changes(changes[1].seq, timeout=0)] == [2, 3]
    assert feed.position == changes[3].position
    for wrong in ("yesterday", None.__class__):
        with pytest.raises(esker.InputError):
            visits.changes(wrong)  # type: ignore[arg-type]


def test_old_records(db: esker.Database, visits: esker.Dataset) -> None:
    with pytest.raises(esker.NoOldRecordsError):
        visits.changes(old=True)
    kept = db.create("kept", key="id:int", old_records=True)
    feed = kept.changes(old=True, timeout=0)
    kept.put({"id": 1, "n": 1})
    kept.put({"id": 1, "n": 2})
    assert [(c.old, c.record) for c in feed] == [(None, {"id": 1, "n": 1}), ({"id": 1, "n": 1}, {"id": 1, "n": 2})]


def test_a_consumer_continues_behind_what_is_done(visits: esker.Dataset) -> None:
    feed = visits.consume("worker", "now", timeout=0)
    visits.put({"id": 1})
    visits.put({"id": 2})
    assert next(feed).key == 1
    feed.done()
    assert next(feed).key == 2
    del feed
    assert [c.key for c in visits.consume("worker", timeout=0)] == [2]
    assert visits.release("worker") and not visits.release("worker")


def test_a_feed_waits_for_the_next_change(visits: esker.Dataset) -> None:
    feed = visits.changes(timeout=60)
    writer = threading.Thread(target=visits.put, args=({"id": 1},))
    writer.start()
    assert next(feed).key == 1
    writer.join()
    assert feed.wait(0.01) is None


def test_changes_in_asyncio(visits: esker.Dataset) -> None:
    async def follow() -> list[int]:
        feed = visits.changes(timeout=60)
        seen: list[int] = []

        async def read() -> None:
            async for change in feed:
                seen.append(change.key)
                if len(seen) == 3:
                    return

        task = asyncio.ensure_future(read())
        for key in (1, 2, 3):
            await asyncio.sleep(0)
            visits.put({"id": key})
        await task
        return seen

    assert asyncio.run(follow()) == [1, 2, 3]


def test_a_cancelled_task_loses_no_change(visits: esker.Dataset) -> None:
    async def follow() -> list[int]:
        feed = visits.changes(timeout=60)
        seen: list[int] = []
        for key in range(20):
            task = asyncio.ensure_future(feed.__anext__())
            await asyncio.sleep(0)
            visits.put({"id": key})
            task.cancel()
            try:
                seen.append((await task).key)
            except asyncio.CancelledError:
                pass
        while len(seen) < 20:
            seen.append((await feed.__anext__()).key)
        return seen

    assert asyncio.run(follow()) == list(range(20))


def test_the_end_of_a_feed_in_asyncio(visits: esker.Dataset) -> None:
    async def follow() -> list[esker.Change]:
        return [change async for change in visits.changes(timeout=0)]

    assert asyncio.run(follow()) == []
