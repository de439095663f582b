"""The exceptions. All are subclasses of `Error`; their texts are those of the command line."""

from typing import Any, Optional


class Error(Exception):
    """Any error of a store."""

    __module__ = "esker"


class InputError(Error, ValueError):
    """A record, a condition, a name or an option does not fit."""

    __module__ = "esker"


class NumberError(Error, ArithmeticError):
    """A sum exceeds 128 bits."""

    __module__ = "esker"


class NoStoreError(Error):
    """The folder has no store."""

    __module__ = "esker"


class UnknownDatasetError(Error, LookupError):
    """The store has no dataset of this name."""

    __module__ = "esker"


class UnknownSnapshotError(Error, LookupError):
    """The store has no snapshot of this name."""

    __module__ = "esker"


class ExistsError(Error):
    """A dataset, a snapshot or a record exists already."""

    __module__ = "esker"


class ConflictError(Error):
    """A record is not as the write expects it. `key` is its key, if it is about one record."""

    __module__ = "esker"
    key: Optional[Any] = None


class NotUniqueError(Error):
    """Two records would have the same value in an index with unique values.

    `path` is that of the index, `key` the key of the refused record, and `holder` that of the record which has the
    value.
    """

    __module__ = "esker"
    path: Optional[str] = None
    value: Optional[str] = None
    key: Optional[Any] = None
    holder: Optional[Any] = None


class UnsupportedError(Error):
    """The store does not have this operation."""

    __module__ = "esker"


class LockedError(Error):
    """Another process, or another object of this one, writes to the store."""

    __module__ = "esker"


class ClosedError(Error):
    """The store was closed."""

    __module__ = "esker"


class ForkedError(Error):
    """The store was opened by the process from which this one was forked."""

    __module__ = "esker"


class ReadOnlyError(Error):
    """The store was opened for reading."""

    __module__ = "esker"


class BusyError(Error):
    """An index of the dataset is being changed, or a consumer is in use."""

    __module__ = "esker"


class CancelledError(Error):
    """The call was stopped."""

    __module__ = "esker"


class NoOldRecordsError(Error):
    """The dataset does not keep the records that changes replace."""

    __module__ = "esker"


class PositionExpiredError(Error):
    """The log no longer reaches back to the position. `oldest` is the oldest one."""

    __module__ = "esker"
    oldest: Optional[str] = None


class OtherHistoryError(Error):
    """The position is of another store, or of writes that this one has lost."""

    __module__ = "esker"


class UnavailableError(Error):
    """A server or a cluster does not answer. A write may still take effect."""

    __module__ = "esker"


class DiskFullError(Error):
    """There is no room on the disk."""

    __module__ = "esker"


class DamagedError(Error):
    """The store is damaged."""

    __module__ = "esker"


class PoisonedError(Error):
    """A write failed in a way that the store refuses writes until it is opened again."""

    __module__ = "esker"


class IoError(Error, OSError):
    """A call of the operating system failed."""

    __module__ = "esker"


class InternalError(Error):
    """A defect of Esker."""

    __module__ = "esker"
