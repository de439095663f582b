"""A store that a server has: the same program as on a folder. `ESKER` names the command line's program."""

import os
import pathlib
import shutil
import subprocess
from typing import Iterator

import pytest

import esker

PROGRAM = os.environ.get("ESKER") or shutil.which("esker")

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="the program `esker` is not here: set ESKER to its path")


@pytest.fixture
def address(tmp_path: pathlib.Path) -> Iterator[str]:
    assert PROGRAM is not None
    arguments = [PROGRAM, "serve", str(tmp_path / "db"), "--listen", "127.0.0.1:0"]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as server:
        assert server.stdout is not None
        lines = []
        for line in server.stdout:
            lines.append(line)
            found = [word for word in line.replace(",", " ").split() if word.startswith("http://")]
            if found:
                yield found[0].rstrip("/")
                break
        else:
            raise AssertionError("".join(lines))
        server.terminate()


def test_a_served_store_is_as_a_folder(address: str, tmp_path: pathlib.Path) -> None:
    with esker.open(address) as db:
        visits = db.create("visits", key="id:int", indexes={"user": "recent:string"})
        with visits.batch() as batch:
            for n in range(100):
                batch.put({"id": n, "user": "ab"[n % 2]})
        visits.load({"id": n, "user": "c"} for n in range(100, 2500))
        assert db.datasets() == ["visits"]
        assert visits[7] == {"id": 7, "user": "b"} and visits.get(9999) is None
        assert [record["id"] for record in visits.find(user="a").limit(2)] == [98, 96]
        assert visits.find(user="c").count() == 2400 and sum(1 for _ in visits.find(user="c")) == 2400
        assert visits.aggregate("count", by="user", order_by="-count", limit=1) == [{"user": "c", "count": 2400}]
        feed = visits.changes(timeout=30)
        visits.update(7, lambda record: {**(record or {}), "n": 1})
        assert next(feed).record == {"id": 7, "user": "b", "n": 1}
        visits.delete(7)
        assert 7 not in visits
        with pytest.raises(esker.UnknownDatasetError, match="there is no dataset `visit`"):
            db["visit"]
        with pytest.raises(esker.UnsupportedError, match="a server makes backups in a folder of its own"):
            db.backup(tmp_path / "copy")
        db.keep_snapshot("monday")
        visits.put({"id": 3000})
        assert db.at("monday", "visits").count() == 2499
    with pytest.raises(esker.LockedError, match=f"it is served at {address}"):
        esker.open(tmp_path / "db")


def test_no_server(tmp_path: pathlib.Path) -> None:
    with pytest.raises(esker.UnavailableError):
        esker.open("http://127.0.0.1:1").datasets()
