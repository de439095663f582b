"""Values: what Python writes is what it reads again, and what other programs read."""

import enum
import json
import math
from collections import OrderedDict
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import esker

# Half of a surrogate pair is no character; the empty name is no field that Esker refuses.
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
numbers = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=20,
)


@pytest.fixture
def any_values(db: esker.Database) -> esker.Dataset:
    return db.create("values", key="id:int")


def same(a: Any, b: Any) -> bool:
    """Equal, and of the same types: 1, 1.0 and True are equal in Python."""
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[name], b[name]) for name in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, float):
        return a == b and math.copysign(1, a) == math.copysign(1, b)
    return bool(a == b)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(value=values)
def test_values_are_read_as_they_were_written(any_values: esker.Dataset, value: Any) -> None:
    any_values.put({"id": 1, "value": value})
    assert same(any_values[1]["value"], value)
    raw = any_values.get_bytes(1)
    assert raw is not None and same(json.loads(raw)["value"], value)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(value=values, ascii_only=st.booleans(), indent=st.none() | st.integers(0, 2))
def test_json_of_others_is_read(any_values: esker.Dataset, value: Any, ascii_only: bool, indent: Any) -> None:
    any_values.put(json.dumps({"id": 1, "value": value}, ensure_ascii=ascii_only, indent=indent))
    assert same(any_values[1]["value"], value)


def test_types_beyond_json(any_values: esker.Dataset) -> None:
    class Colour(str, enum.Enum):
        RED = "red"

    class Level(enum.IntEnum):
        HIGH = 3

    utc = datetime(2026, 11, 21, 9, 0, 0, 500000, tzinfo=timezone.utc)
    any_values.put(
        {
            "id": 1,
            "utc": utc,
            "east": datetime(2026, 11, 21, 9, tzinfo=timezone(timedelta(hours=2))),
            "day": date(2026, 11, 21),
            "exact": Decimal("12345678901234567890.12"),
            "whole": Decimal("1E+3"),
            "key": UUID(int=5),
            "colour": Colour.RED,
            "level": Level.HIGH,
            "tuple": (1, [2, (3,)]),
            "ordered": OrderedDict(b=1, a=2),
        }
    )
    raw = any_values.get_bytes(1)
    assert raw is not None and b'"exact":12345678901234567890.12,"whole":1E+3' in raw
    assert any_values[1] == {
        "id": 1,
        "utc": "2026-11-21T09:00:00.500000Z",
        "east": "2026-11-21T07:00:00Z",
        "day": "2026-11-21",
        "exact": 12345678901234567890.12,
        "whole": 1000.0,
        "key": "00000000-0000-0000-0000-000000000005",
        "colour": "red",
        "level": 3,
        "tuple": [1, [2, [3]]],
        "ordered": {"b": 1, "a": 2},
    }
    assert datetime.fromisoformat(any_values[1]["utc"].replace("Z", "+00:00")) == utc


def test_what_has_no_json_is_refused(any_values: esker.Dataset) -> None:
    deep: Any = 1
    for _ in range(200):
        deep = [deep]
    loop: list[Any] = []
    loop.append(loop)
    for value, text in [
        (float("nan"), "NaN"),
        (float("-inf"), "an infinity"),
        (Decimal("NaN"), "Decimal that is not finite"),
        (datetime(2026, 11, 21), "without a zone"),
        (time(9), "a value of type time has no JSON"),
        (b"x", "a value of type bytes has no JSON: decode it"),
        ({1}, "a value of type set has no JSON: make it a list"),
        (object(), "a value of type object has no JSON"),
        ({1: 2}, "the names of a record's fields are str, not int"),
        ("\ud800", "half of a surrogate pair"),
        (deep, "nested more than 128 levels deep"),
        (loop, "nested more than 128 levels deep"),
    ]:
        with pytest.raises(esker.InputError, match=text):
            any_values.put({"id": 1, "value": value})
        assert 1 not in any_values


def test_a_dict_that_changes_while_it_is_written(any_values: esker.Dataset) -> None:
    record: dict[str, Any] = {"id": 1}


    class Zone(__import__("datetime").tzinfo):  # type: ignore[misc]
        def utcoffset(self, at: Any) -> timedelta:
            record[f"more{len(record)}"] = 1
            return timedelta(0)

        def dst(self, at: Any) -> timedelta:
            return timedelta(0)

    record["at"] = datetime(2026, 11, 21, tzinfo=Zone())
    record["n"] = 1
    any_values.put(record)
    assert any_values[1] == {"id": 1, "at": "2026-11-21T00:00:00Z", "n": 1}


def test_numpy(any_values: esker.Dataset) -> None:
    numpy = pytest.importorskip("numpy")
    any_values.put(
        {"id": numpy.int64(1), "f": numpy.float32(0.5), "d": numpy.float64(0.25), "b": numpy.bool_(True), "a": numpy.arange(3)}
    )
    assert any_values[1] == {"id": 1, "f": 0.5, "d": 0.25, "b": True, "a": [0, 1, 2]}
    with pytest.raises(esker.InputError, match="NaN"):
        any_values.put({"id": 1, "f": numpy.float64("nan")})
    with pytest.raises(esker.InputError, match="make it a datetime with a zone"):
        any_values.put({"id": 1, "at": numpy.datetime64("2026-11-21T09:00:00", "ns")})
    with pytest.raises(esker.InputError, match="ndarray has no JSON"):
        any_values.put({"id": 1, "at": numpy.array(["2026-11-21"], dtype="datetime64[ns]")})
