"""What the function of `Dataset.update` returns in place of a record."""

from enum import Enum


class Word(Enum):
    """See `KEEP` and `DELETE`."""

    KEEP = "keep"
    DELETE = "delete"

    def __repr__(self) -> str:
        return f"esker.{self.name}"


KEEP = Word.KEEP
"""The record stays as it is."""

DELETE = Word.DELETE
"""The record is deleted."""
