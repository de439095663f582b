"""A dataset beside a dict: whatever is done to both, every query answers as the dict does."""

import itertools
import pathlib
import tempfile
from typing import Any, Optional

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import esker

KINDS = ["none", "embedded", "fingerprint", "filter", "lazy", "recent", "composite", "eager"]

keys = st.integers(0, 20)
values = st.integers(-3, 3) | st.none()


class Model(RuleBasedStateMachine):
    kind: str

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.db: Optional[esker.Database] = None
        self.model: dict[int, dict[str, Any]] = {}
        self.numbers = itertools.count()

    @initialize()
    def create(self) -> None:
        self.path = pathlib.Path(self.folder.name) / "db"
        self.db = esker.open(self.path, durability="os")
        self.dataset = self.db.create("d", key="id:int", indexes={"v": f"{self.kind}:int"})

    def record(self, key: int, value: Optional[int]) -> dict[str, Any]:
        record: dict[str, Any] = {"id": key, "number": next(self.numbers)}
        if value is not None:
            record["v"] = value
        return record

    @rule(key=keys, value=values)
    def put(self, key: int, value: Optional[int]) -> None:
        self.model[key] = self.record(key, value)
        self.dataset.put(self.model[key])

    @rule(key=keys)
    def delete(self, key: int) -> None:
        self.model.pop(key, None)
        self.dataset.delete(key)

    @rule(key=keys, value=values)
    def update(self, key: int, value: Optional[int]) -> None:
        old = self.model.get(key)
        new = self.record(key, value)

        def change(record: Optional[dict[str, Any]]) -> Any:
            assert record == old
            return new if value != 0 else esker.DELETE

        self.dataset.update(key, change)
        if value != 0:
            self.model[key] = new
        else:
            self.model.pop(key, None)

    @rule(changes=st.lists(st.tuples(keys, values), max_size=10), commits=st.booleans())
    def batch(self, changes: list[tuple[int, Optional[int]]], commits: bool) -> None:
        batch = self.dataset.batch()
        for key, value in changes:
            record = self.record(key, value)
            batch.put(record)
            if commits:
                self.model[key] = record
        if commits:
            batch.commit()
        else:
            batch.discard()

    @rule(value=st.integers(-3, 3))
    def delete_where(self, value: int) -> None:
        gone = [key for key, record in self.model.items() if record.get("v") == value]
        assert self.dataset.find(v=value).delete() == len(gone)
        for key in gone:
            del self.model[key]

    @rule()
    def compact(self) -> None:
        assert self.db is not None
        self.db.compact()

    @rule()
    def reopen(self) -> None:
        assert self.db is not None
        self.db.close()
        self.db = esker.open(self.path, mode="write", durability="os")
        self.dataset = self.db["d"]

    @rule(low=st.integers(-3, 3), high=st.integers(-3, 3))
    def query(self, low: int, high: int) -> None:
        low, high = sorted((low, high))
        found = [r for r in self.model.values() if "v" in r and low <= r["v"] <= high]
        query = self.dataset.find(v__ge=low, v__le=high)
        newest = sorted(found, key=lambda r: -int(r["number"]))
        assert list(query) == newest
        assert list(query.limit(3)) == newest[:3]
        assert query.count() == len(found)
        by_value = sorted(found, key=lambda r: (r["v"], r["id"]))
        assert list(query.order_by("v", "id")) == by_value
        assert self.dataset.find(f"v = {low}").count() == sum(1 for r in self.model.values() if r.get("v") == low)

    @invariant()
    def has_the_same_records(self) -> None:
        if self.db is not None:
            assert list(self.dataset.scan()) == [self.model[key] for key in sorted(self.model)]

    def teardown(self) -> None:
        if self.db is not None:
            self.db.close()
        self.folder.cleanup()


@pytest.mark.parametrize("kind", KINDS)
def test_a_dataset_is_as_a_dict(kind: str) -> None:
    machine: Any = type("Machine", (Model,), {"kind": kind})
    case = machine.TestCase
    case.settings = settings(max_examples=8, stateful_step_count=25, deadline=None)
    case().runTest()
