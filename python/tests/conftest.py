"""What the tests share: a store in a folder of its own."""

from pathlib import Path
from typing import Iterator

import pytest

import esker


@pytest.fixture
def db(tmp_path: Path) -> Iterator[esker.Database]:
    with esker.open(tmp_path / "db") as store:
        yield store


@pytest.fixture
def visits(db: esker.Database) -> esker.Dataset:
    dataset = db.create("visits", key="id:int", indexes={"user.name": "recent:string", "at": "embedded:time"})
    with dataset.batch() as batch:
        for n in range(100):
            name = ["ann", "bob", "eve"][n % 3]
            batch.put({"id": n, "user": {"name": name}, "at": f"2026-11-21T09:{n // 60:02}:{n % 60:02}Z", "n": n % 10})
    return dataset
