"""Esker: an embedded record store that finds records by any field.

>>> import esker, tempfile
>>> folder = tempfile.TemporaryDirectory()
>>> db = esker.open(folder.name + "/db")
>>> visits = db.create("visits", key="id:int", indexes={"user.name": "recent:string"})
>>> visits.put({"id": 1, "user": {"name": "ann"}, "at": "2026-11-21T09:00:00Z"})
>>> visits.put({"id": 2, "user": {"name": "bob"}, "at": "2026-11-21T09:00:30Z"})
>>> visits[1]["user"]
{'name': 'ann'}
>>> [visit["id"] for visit in visits.find(user__name="bob")]
[2]
>>> visits.find("at < 2026-11-21T09:00:15Z").count()
1
>>> db.close()
>>> folder.cleanup()

The guide is docs/python.md.
"""

from ._errors import (
    BusyError,
    CancelledError,
    ClosedError,
    ConflictError,
    DamagedError,
    DiskFullError,
    Error,
    ExistsError,
    ForkedError,
    InputError,
    InternalError,
    IoError,
    LockedError,
    NoOldRecordsError,
    NoStoreError,
    NotUniqueError,
    NumberError,
    OtherHistoryError,
    PoisonedError,
    PositionExpiredError,
    ReadOnlyError,
    UnavailableError,
    UnknownDatasetError,
    UnknownSnapshotError,
    UnsupportedError,
)
from ._esker import (
    Batch,
    Change,
    Changes,
    Database,
    Dataset,
    Explain,
    Keys,
    Query,
    Records,
    Rows,
    __version__,
    open,
)
from ._words import DELETE, KEEP

__all__ = [
    "DELETE",
    "KEEP",
    "Batch",
    "BusyError",
    "CancelledError",
    "Change",
    "Changes",
    "ClosedError",
    "ConflictError",
    "DamagedError",
    "Database",
    "Dataset",
    "DiskFullError",
    "Error",
    "ExistsError",
    "Explain",
    "ForkedError",
    "InputError",
    "InternalError",
    "IoError",
    "Keys",
    "LockedError",
    "NoOldRecordsError",
    "NoStoreError",
    "NotUniqueError",
    "NumberError",
    "OtherHistoryError",
    "PoisonedError",
    "PositionExpiredError",
    "Query",
    "ReadOnlyError",
    "Records",
    "Rows",
    "UnavailableError",
    "UnknownDatasetError",
    "UnknownSnapshotError",
    "UnsupportedError",
    "__version__",
    "open",
]
