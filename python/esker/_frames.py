"""Records from tables of other libraries. None of them is imported before it is used."""

from typing import Any, Iterable, Iterator


def records_of(source: Any) -> Iterable[Any]:
    """What a load iterates over: the rows of a table as dicts, other things as they are."""
    library = type(source).__module__.partition(".")[0]
    name = type(source).__name__
    if library == "pandas" and name == "DataFrame":
        return _of_pandas(source)
    if library == "polars" and name in ("DataFrame", "LazyFrame"):
        frame = source.collect() if name == "LazyFrame" else source
        rows: Iterable[Any] = frame.iter_rows(named=True)
        return rows
    if library == "pyarrow" and name in ("Table", "RecordBatch", "RecordBatchReader"):
        batches = source.to_batches() if name == "Table" else [source] if name == "RecordBatch" else source
        return (row for batch in batches for row in batch.to_pylist())
    if isinstance(source, dict):
        raise TypeError("load takes many records: give a list, or use put for one")
    return source  # type: ignore[no-any-return]


def _of_pandas(frame: Any) -> Iterator[Any]:
    """The rows of a DataFrame, without the cells that have no value (NaN, NaT, None)."""
    names = [str(name) for name in frame.columns]
    columns = [frame[name] for name in frame.columns]
    present = [column.notna() for column in columns]
    for at in range(len(frame)):
        yield {name: column.iat[at] for name, column, is_there in zip(names, columns, present) if is_there.iat[at]}
