"""Queries: conditions as texts and keywords, orders, projections, aggregates, plans."""

from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

import esker


def ids(query: esker.Query) -> list[int]:
    return [record["id"] for record in query]


def test_conditions_are_texts_or_keywords(visits: esker.Dataset) -> None:
    assert ids(visits.find("user.name = ann and n < 3").limit(3)) == [90, 81, 72]
    assert ids(visits.find("user.name = ann", "n < 3")) == ids(visits.find(user__name="ann", n__lt=3))
    at = datetime(2026, 11, 21, 9, 1, 30, tzinfo=timezone.utc)
    assert ids(visits.find(at__ge=at)) == list(range(99, 89, -1))
    east = at.astimezone(timezone(timedelta(hours=5, minutes=30)))
    assert visits.count(at__ge=east) == 10
    assert visits.count(at__lt=date(2026, 11, 22)) == 100
    with pytest.raises(esker.InputError, match="a datetime without a zone is no moment"):
        visits.find(at__ge=datetime(2026, 11, 21))
    assert visits.count(n__in=[1, 2]) == 20
    assert visits.count(n__in=[]) == 0
    assert visits.count(n__ne=1) == 90
    assert visits.count(user__name__prefix="b") == 33
    assert visits.count(user__name__exists=True) == 100
    assert visits.count(none__exists=False) == 100
    assert visits.count(n__ge=2, n__le=4) == 30
    assert visits.count(n=Decimal("3")) == visits.count(n=3) == visits.count(n=3.0) == 10
    visits.put({"id": 500, "n": None})
    assert ids(visits.find(n=None)) == [500]


def test_wrong_conditions_are_refused(visits: esker.Dataset) -> None:
    for call in (
        lambda: visits.find("n >"),
        lambda: visits.find(n__in="abc"),
        lambda: visits.find(n__ne=None),
        lambda: visits.find(n={"a": 1}),
        lambda: visits.find(n__exists=1),
        lambda: visits.find(n__prefix=1),
        lambda: visits.find(n=float("nan")).count(),
        lambda: visits.find(5),  # type: ignore[arg-type]
        lambda: visits.find(at__within=(1, 2)),
    ):
        with pytest.raises(esker.InputError):
            call()


def test_values_of_records_are_found_as_they_were_put(db: esker.Database) -> None:
    things = db.create("things", key="id:string")
    key = UUID("12345678-1234-5678-1234-567812345678")
    things.put({"id": key, "big": 10**30, "price": Decimal("1.10"), "yes": True})
    assert things[key] == things[str(key)] == {"id": str(key), "big": 10**30, "price": 1.1, "yes": True}
    assert things.count(big=10**30) == 1 and things.count(big__gt=10**30) == 0
    assert things.count(price=Decimal("1.1")) == 1 and things.count(yes=True) == 1 and things.count(yes=False) == 0
    assert things.count(id=key) == 1


def test_orders_limits_and_projections(visits: esker.Dataset) -> None:
    assert ids(visits.find(n=3).limit(2)) == [93, 83]
    assert ids(visits.find(n=3).order_by("oldest").limit(2)) == [3, 13]
    assert ids(visits.find().order_by("key").limit(3)) == [0, 1, 2]
    assert ids(visits.find().order_by("-n", "id").limit(2)) == [9, 19]
    assert ids(visits.find().order_by("n:desc").offset(1).limit(1)) == [19]
    assert sorted(ids(visits.find(n=3).order_by("any"))) == list(range(3, 100, 10))
    assert list(visits.find(id=7).select("user.name", "n")) == [{"user": {"name": "bob"}, "n": 7}]
    assert visits.find(n=3).first() == visits[93]
    assert visits.find(n=77).first() is None
    assert visits.find(n=3).limit(0).first() is None
    assert list(visits.find(n=3).keys()) == [93, 83, 73, 63, 53, 43, 33, 23, 13, 3]
    assert next(visits.find(id=1).raw()) == visits.get_bytes(1)
    assert visits.find(n=3).limit(4).count() == 4
    narrowed = visits.find(n=3)
    assert narrowed.where("user.name = ann").count() + narrowed.where("user.name != ann").count() == narrowed.count()


def test_a_query_is_read_as_far_as_it_is_wanted(db: esker.Database) -> None:
    many = db.create("many", key="id:int")
    many.load({"id": n} for n in range(5000))
    rows = iter(many.find().order_by("key"))
    assert [next(rows)["id"] for _ in range(3)] == [0, 1, 2]
    # Later writes do not show: an answer is of one moment.
    many.delete(4)
    assert next(rows)["id"] == 3 and next(rows)["id"] == 4
    assert sum(1 for _ in rows) == 4995
    assert list(rows) == []
    assert [r["id"] for r in many.scan()] == [n for n in range(5000) if n != 4]


def test_an_answer_that_failed_stays_failed(db: esker.Database) -> None:
    many = db.create("many", key="id:int")
    wrong = iter(many.find(id=float("nan")))
    with pytest.raises(esker.InputError):
        next(wrong)
    with pytest.raises(esker.CancelledError):
        next(wrong)


def test_aggregates(visits: esker.Dataset) -> None:
    assert visits.aggregate("count,sum(n)") == [{"count": 100, "sum(n)": 450}]
    groups = visits.find(n__lt=5).aggregate("count,avg(n)", by="user.name", order_by="-count", limit=2)
    assert len(groups) == 2 and groups[0]["count"] >= groups[1]["count"] and groups[0].keys() == {"user.name", "count", "avg(n)"}
    with pytest.raises(esker.InputError, match="`aggregate` does not use the setting `limit`"):
        visits.find().limit(3).aggregate("count")
    with pytest.raises(esker.InputError):
        visits.aggregate("median(n)")


def test_plans(visits: esker.Dataset) -> None:
    plan = visits.find(user__name="ann").explain()
    assert "recent index of user.name" in str(plan) and repr(plan) == str(plan)
    assert plan.to_dict()["plan"]["kind"] == "recent"


def test_deletions_by_condition(visits: esker.Dataset) -> None:
    assert visits.find(n=3).delete() == 10
    assert visits.count() == 90
    with pytest.raises(esker.InputError, match="delete needs a condition"):
        visits.find().delete()
    with pytest.raises(esker.InputError, match="`delete` does not use the setting `limit`"):
        visits.find(n=1).limit(1).delete()


def test_space(db: esker.Database) -> None:
    places = db.create("places", key="id:int", indexes={"at": "spatial"})
    places.load({"id": n, "at": [n / 10, 50.0]} for n in range(20))
    assert ids(places.find(at__within=(-0.05, 49, 0.25, 51)).order_by("key")) == [0, 1, 2]
    assert ids(places.find(at__within=(0.0, 50.0, 8000.0)).order_by("key")) == [0, 1]
    square = {"type": "Polygon", "coordinates": [[[0.35, 49], [0.65, 49], [0.65, 51], [0.35, 51], [0.35, 49]]]}
    assert ids(places.find(at__within=square).order_by("key")) == [4, 5, 6]
    near = places.find().near("at", 1.0, 50.0, 3)
    assert [record["id"] for record, _ in near][0] == 10 and near[0][1] == 0.0
    assert 7000 < near[1][1] < 7300


def test_tables_at_a_prompt(visits: esker.Dataset) -> None:
    text = repr(visits.find(n=3).select("id", "n"))
    assert text.splitlines()[0].split() == ["id", "n"] and text.splitlines()[1].split() == ["93", "3"]
    assert repr(visits.find()).endswith("…")
    assert repr(visits.find(n=77)) == "no records"
    visits.put({"id": 600, "user": {"name": "<b>"}})
    assert "&lt;b&gt;" in visits.find(id=600)._repr_html_()


@pytest.mark.parametrize("kind", ["embedded", "fingerprint", "filter", "lazy", "recent", "composite", "eager"])
def test_every_kind_answers_the_same(db: esker.Database, kind: str) -> None:
    records: list[dict[str, Any]] = [{"id": n, "v": n % 7} for n in range(300)]
    dataset = db.create("d", key="id:int", indexes={"v": f"{kind}:int"})
    dataset.load(records)
    for n in range(0, 300, 5):
        dataset.put({"id": n, "v": 100})
    assert dataset.count(v=100) == 60
    assert sorted(ids(dataset.find(v=3))) == [n for n in range(300) if n % 7 == 3 and n % 5]
