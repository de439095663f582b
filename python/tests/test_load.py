"""Loads of iterables and files."""

import gzip
import json
import pathlib
from typing import Any, Iterator

import pytest

import esker


@pytest.fixture
def rows(db: esker.Database) -> esker.Dataset:
    return db.create("rows", key="id:int")


def test_iterables(rows: esker.Dataset) -> None:
    seen: list[int] = []
    assert rows.load(({"id": n} for n in range(2500)), progress=seen.append) == {"records": 2500}
    assert rows.count() == 2500 and seen[-1] == 2500 and seen == sorted(seen) and len(seen) >= 3
    assert rows.load([b'{"id": 1, "n": 1}', '{"id": 2}']) == {"records": 2}
    assert rows[1] == {"id": 1, "n": 1}
    assert rows.load([]) == {"records": 0}
    with pytest.raises(TypeError, match="load takes many records"):
        rows.load({"id": 1})
    with pytest.raises(TypeError):
        rows.load(5)


def test_what_comes_before_a_mistake_is_loaded(rows: esker.Dataset) -> None:
    def failing() -> Iterator[dict[str, int]]:
        for n in range(1500):
            yield {"id": n}
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        rows.load(failing())
    assert rows.count() == 1500
    with pytest.raises(esker.InputError):
        rows.load([{"id": 2000}, {"n": 1}, {"id": 2001}])
    assert 2000 in rows and 2001 not in rows
    with pytest.raises(esker.InputError, match="NaN"):
        rows.load([{"id": 3000}, {"id": 3001, "f": float("nan")}])
    assert 3000 in rows
    with pytest.raises(ZeroDivisionError):
        rows.load(({"id": n} for n in range(5000, 8000)), progress=lambda count: 1 // 0)
    # What the writer had been given is written when the exception arrives.
    assert rows.count(id__ge=5000) == 1000


def test_a_load_may_use_the_dataset_it_loads_into(rows: esker.Dataset) -> None:
    def counting() -> Iterator[dict[str, int]]:
        for n in range(3000):
            if n % 1000 == 0:
                rows.count()
                rows.put({"id": 100_000 + n})
            yield {"id": n}

    rows.load(counting())
    assert rows.count() == 3003


def test_files(rows: esker.Dataset, tmp_path: pathlib.Path) -> None:
    lines = [json.dumps({"id": n}) for n in range(1000)] + ["bad", '{"n": 1}']
    plain = tmp_path / "rows.ndjson"
    plain.write_text("\n".join(lines))
    counts: list[int] = []
    report = rows.load(plain, progress=counts.append)
    assert report["records"] == 1000 and report["rejected"] == 2 and counts[-1] == 1000
    assert report["rejects"] == [str(plain) + ".rejected"]
    with gzip.open(tmp_path / "more.csv.gz", "wt") as packed:
        packed.write("id,name\n5000,ann\n5001,bob\n")
    assert rows.load(str(tmp_path / "more.csv.gz"))["records"] == 2
    assert rows[5001]["name"] == "bob"
    with pytest.raises(esker.InputError, match="cannot read"):
        rows.load(tmp_path / "none.ndjson")
    (tmp_path / "strict.ndjson").write_text('{"id": 7000}\nbad\n')
    with pytest.raises(esker.InputError):
        rows.load(tmp_path / "strict.ndjson", strict=True)
    with pytest.raises(ZeroDivisionError):
        rows.load(plain, progress=lambda count: 1 // 0)


def test_tables(db: esker.Database, rows: esker.Dataset) -> None:
    pandas = pytest.importorskip("pandas")
    polars = pytest.importorskip("polars")
    pyarrow = pytest.importorskip("pyarrow")
    columns: dict[str, Any] = {"id": [1, 2, 3], "name": ["ann", None, "eve"], "f": [0.5, None, 2.0]}
    expected: list[dict[str, Any]] = [{"id": 1, "name": "ann", "f": 0.5}, {"id": 2}, {"id": 3, "name": "eve", "f": 2.0}]
    rows.load(pandas.DataFrame(columns))
    assert list(rows.scan()) == expected
    nulls = [{**record, "name": record.get("name"), "f": record.get("f")} for record in expected]
    for table in (polars.DataFrame(columns), polars.DataFrame(columns).lazy(), pyarrow.table(columns)):
        rows.load(table)
        assert list(rows.scan()) == nulls
    frame = pandas.DataFrame({"id": [9], "at": [pandas.Timestamp("2026-11-21T09:00:00", tz="Europe/Paris")]})
    rows.load(frame)
    assert rows[9] == {"id": 9, "at": "2026-11-21T08:00:00Z"}
