"""Records by key: gets, puts, deletions, updates, batches."""

import pathlib
from typing import Any, Optional

import pytest

import esker


def test_a_record_is_a_dict(visits: esker.Dataset) -> None:
    assert visits[7] == {"id": 7, "user": {"name": "bob"}, "at": "2026-11-21T09:00:07Z", "n": 7}
    assert visits.get(7) == visits[7]
    assert visits.get(1000) is None
    assert visits.get(1000, "none") == "none"
    assert 7 in visits and 1000 not in visits
    with pytest.raises(KeyError) as missing:
        visits[1000]
    assert missing.value.args == (1000,)
    assert visits.get_bytes(7) == b'{"id":7,"user":{"name":"bob"},"at":"2026-11-21T09:00:07Z","n":7}'
    assert visits.get_many([3, 1000, 4]) == [visits[3], None, visits[4]]


def test_puts_take_dicts_and_json(visits: esker.Dataset) -> None:
    visits.put({"id": 200, "n": 1})
    visits.put(b'{"id": 201, "n": 2}')
    visits.put('{"id": 202, "n": 3}')
    assert [visits[key]["n"] for key in (200, 201, 202)] == [1, 2, 3]
    visits.put({"id": 200, "n": 9})
    assert visits[200] == {"id": 200, "n": 9}
    with pytest.raises(TypeError, match="a record is a dict, or JSON as bytes or str, not int"):
        visits.put(5)  # type: ignore[arg-type]
    with pytest.raises(esker.InputError, match="id"):
        visits.put({"n": 1})
    with pytest.raises(esker.ExistsError):
        visits.insert({"id": 200})
    visits.insert({"id": 203})
    assert 203 in visits


def test_deletions(visits: esker.Dataset) -> None:
    visits.delete(5)
    assert 5 not in visits
    visits.delete(5)
    del visits[6]
    assert 6 not in visits
    with pytest.raises(KeyError):
        del visits[6]


def test_keys_are_of_the_datasets_type(db: esker.Database, visits: esker.Dataset) -> None:
    with pytest.raises(esker.InputError, match="is beyond 64 bits"):
        visits.get(2**100)
    with pytest.raises(esker.InputError, match="a key of this dataset is an int of 64 bits"):
        visits.get(2**200)
    for wrong in ("7", 7.0, True, None, b"7"):
        with pytest.raises(esker.InputError, match="a key of this dataset is an int of 64 bits"):
            visits.get(wrong)
    names = db.create("names", key="name:string")
    names.put({"name": "ann"})
    assert names["ann"] == {"name": "ann"}
    with pytest.raises(esker.InputError, match="a key of this dataset is a str, not 5"):
        names.get(5)
    pairs = db.create("pairs", key="a,b")
    pairs.put({"a": 1, "b": "x"})
    assert pairs[(1, "x")] == {"a": 1, "b": "x"}
    assert list(pairs) == [(1, "x")]
    big = db.create("big", key="id:int")
    big.put({"id": 2**64 - 1})
    big.put({"id": -(2**63)})
    assert list(big) == [-(2**63), 2**64 - 1]


def test_an_update_is_one_step(visits: esker.Dataset) -> None:
    def more(record: Optional[dict[str, Any]]) -> dict[str, Any]:
        assert record is not None
        record["n"] += 1
        return record

    before = visits[7]
    assert visits.update(7, more) == before
    assert visits[7] == {**before, "n": 8}
    assert visits.update(7, lambda record: esker.DELETE) == {**before, "n": 8}
    assert 7 not in visits
    assert visits.update(7, lambda record: {"id": 7, "was": record}) is None
    assert visits[7] == {"id": 7, "was": None}
    visits.update(7, lambda record: esker.KEEP)
    assert visits[7] == {"id": 7, "was": None}
    with pytest.raises(TypeError, match="esker.KEEP or esker.DELETE"):
        visits.update(7, lambda record: None)  # type: ignore[arg-type, return-value]
    with pytest.raises(ZeroDivisionError):
        visits.update(7, lambda record: 1 // 0)  # type: ignore[arg-type, return-value]
    with pytest.raises(esker.InputError):
        visits.update(7, lambda record: {"id": 8})
    # The function may use the dataset.
    visits.update(7, lambda record: {"id": 7, "n": visits[8]["n"]})
    assert visits[7]["n"] == 8


def test_a_batch_is_applied_together(visits: esker.Dataset) -> None:
    with visits.batch() as batch:
        batch.put({"id": 300})
        batch.put(b'{"id": 301}')
        batch.delete(0)
        assert len(batch) == 3
        assert 300 not in visits
    assert 300 in visits and 301 in visits and 0 not in visits
    with pytest.raises(ZeroDivisionError):
        with visits.batch() as batch:
            batch.put({"id": 400})
            1 // 0
    assert 400 not in visits
    with pytest.raises(RuntimeError, match="the batch was committed or discarded"):
        batch.put({"id": 401})
    with visits.batch() as batch:
        batch.put({"id": 402})
        with pytest.raises(esker.InputError):
            batch.put({"n": 1})
    assert 402 in visits
    with pytest.raises(esker.ExistsError):
        with visits.batch() as batch:
            batch.put({"id": 403})
            batch.insert({"id": 402})
    assert 403 not in visits


def test_scans_and_keys_are_in_order(visits: esker.Dataset) -> None:
    assert list(visits) == list(range(100)) == list(visits.keys())
    assert [r["id"] for r in visits.scan(10, 13)] == [10, 11, 12, 13]
    assert [r["id"] for r in visits.scan(97)] == [97, 98, 99]
    assert [r["id"] for r in visits.scan(stop=2, reverse=True)] == [2, 1, 0]
    with pytest.raises(esker.InputError, match="start is larger than stop"):
        visits.scan(3, 2)


def test_stores_are_opened_and_closed(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "db"
    with pytest.raises(esker.NoStoreError, match="no store here; mode=\"create\" creates one"):
        esker.open(folder, mode="write")
    with pytest.raises(esker.InputError, match="mode `append`"):
        esker.open(folder, mode="append")
    db = esker.open(str(folder), durability="sync", memory=32 << 20)
    assert db.datasets() == []
    first = db.create("first", key="id:int")
    first.put({"id": 1})
    assert db.datasets() == ["first"] and "first" in db and "second" not in db
    with pytest.raises(esker.ExistsError, match="dataset `first` exists already"):
        db.create("first", key="id:int")
    with pytest.raises(esker.UnknownDatasetError, match="there is no dataset `frist`: did you mean `first`?"):
        db["frist"]
    with pytest.raises(LookupError):
        db["none"]
    with pytest.raises(esker.LockedError, match="the store is open for writing already"):
        esker.open(folder)
    with esker.open(folder, mode="read") as reader:
        assert reader["first"][1] == {"id": 1}
        with pytest.raises(esker.ReadOnlyError):
            reader["first"].put({"id": 2})
    rows = iter(first.find())
    db.close()
    db.close()
    for call in (lambda: first[1], lambda: first.put({"id": 2}), db.datasets, lambda: next(rows)):
        with pytest.raises(esker.ClosedError):
            call()
    with esker.open(folder, mode="write") as db:
        assert db["first"][1] == {"id": 1}
        db.rename("first", "second")
        assert db.datasets() == ["second"]
        db.drop("second")
        assert db.datasets() == []
    with pytest.raises(esker.InputError, match="is a file: a store is a folder"):
        (tmp_path / "file").write_text("x")
        esker.open(tmp_path / "file")


def test_definitions(db: esker.Database) -> None:
    made = db.create("d", key="id", indexes={"n": "composite", "at": "embedded:time"}, sample=[{"id": "x", "n": 1.5, "at": 5}], versions=3)
    assert made.definition["key"] == "id:string"
    assert made.definition["indexes"][0] == "n:composite:float"
    assert made.definition["versions"] == 3
    with pytest.raises(esker.InputError, match="give its type, as in id:int or id:string"):
        db.create("e", key="id")
    with pytest.raises(esker.InputError, match="index"):
        db.create("e", key="id:int", indexes={"n": "fast:int"})
    for n in range(5):
        made.put({"id": "a", "n": n})
    assert [version["n"] for version in made.versions("a")] == [4, 3, 2]
    assert [version["n"] for version in made.versions("a", 1)] == [4]
    assert repr(made) == "<esker.Dataset d, key id:string, indexes: " + ", ".join(made.definition["indexes"]) + ">"


def test_indexes_are_changed_while_the_dataset_is_in_use(visits: esker.Dataset) -> None:
    visits.add_index("n", "composite:int")
    assert visits.count(n=3) == 10
    assert "composite" in str(visits.find(n=3).explain())
    visits.rebuild_index("n")
    visits.drop_index("n")
    assert visits.count(n=3) == 10
    # The field stays declared.
    assert "n:none:int" in visits.definition["indexes"]
    with pytest.raises(esker.InputError, match="give its type, as in n:lazy:string"):
        visits.add_index("n", "lazy")


def test_unique_values(db: esker.Database) -> None:
    users = db.create("users", key="id:int", indexes={"mail": "lazy:string:unique"})
    users.put({"id": 1, "mail": "a@b"})
    with pytest.raises(esker.NotUniqueError) as refused:
        users.put({"id": 2, "mail": "a@b"})
    error = refused.value
    assert (error.path, error.value, error.key, error.holder) == ("mail", "a@b", 2, 1)


def test_snapshots_stay_as_they_were(db: esker.Database, visits: esker.Dataset) -> None:
    moment = visits.snapshot()
    assert db.keep_snapshot("monday") > 0
    visits.put({"id": 1000})
    visits.delete(1)
    assert moment.count() == 100 and 1 in moment and 1000 not in moment
    assert db.snapshots() == ["monday"]
    kept = db.at("monday", "visits")
    assert kept.count(user__name="ann") == 34 and kept.name == "visits"
    assert not hasattr(kept, "put")
    with pytest.raises(esker.ReadOnlyError):
        kept.find(n=1).delete()
    with pytest.raises(esker.UnknownSnapshotError):
        db.at("tuesday", "visits")
    db.drop_snapshot("monday")
    assert db.snapshots() == []


def test_the_store_as_a_whole(db: esker.Database, visits: esker.Dataset, tmp_path: pathlib.Path) -> None:
    db.compact()
    db.compact("visits")
    assert db.check()["errors"] == []
    db.backup(tmp_path / "copy")
    with esker.open(tmp_path / "copy", mode="write") as copy:
        assert copy["visits"].count() == 100
    assert isinstance(db.stat(), dict) and isinstance(visits.stat(), dict) and isinstance(visits.advise(), dict)
    visits.sync()


def test_records_expire(db: esker.Database) -> None:
    short = db.create("short", key="id:int", expires="until:time_s")
    short.put({"id": 1, "until": 1})
    short.put({"id": 2, "until": 4102444800})
    assert list(short) == [2]
    assert short.expire_now() in (0, 1)
