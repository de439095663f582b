"""Runs the files of statements that are marked for it in DuckDB, over the same records.

    PYTHON sql/tests/slt/beside.py            compares the answers in the files with DuckDB's
    PYTHON sql/tests/slt/beside.py --write    replaces them by DuckDB's

PYTHON is an interpreter that has the package `duckdb`. A file is marked by the line
`# The answers are DuckDB's.` Its statements mean the same in both; what differs in a type, or in
the text of a value, is in files without the mark, whose answers are our own.
"""

import difflib
import pathlib
import sys

import duckdb

MARK = "# The answers are DuckDB's."
HERE = pathlib.Path(__file__).parent


def connect():
    db = duckdb.connect()
    # Without guesses: text stays text, and numbers are what their text says.
    for file in sorted(HERE.glob("*.ndjson")):
        db.execute(
            f"create view {file.stem} as select * from read_json('{file}', "
            "format='newline_delimited', sample_size=-1, maximum_depth=-1, "
            "auto_detect=true, dateformat='none', timestampformat='none')"
        )
    return db


def shown(value):
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return "[" + ", ".join("" if v is None else shown(v) for v in value) + "]"
    return "(empty)" if value == "" else str(value)


def answered(db, block):
    """The block with DuckDB's answer."""
    lines = block.strip().split("\n")
    head = next((at for at, line in enumerate(lines) if line.startswith("query")), None)
    if head is None:
        return block.strip(), 0
    end = lines.index("----") if "----" in lines else len(lines)
    rows = db.execute("\n".join(lines[head + 1 : end])).fetchall()
    rows = [[shown(value) for value in row] for row in rows]
    if "rowsort" in lines[head]:
        rows.sort()
    answer = [" ".join(row) for row in rows]
    return "\n".join([*lines[:end], "----", *answer]), 1


def main():
    write = sys.argv[1:] == ["--write"]
    db = connect()
    total = failed = 0
    for script in sorted(HERE.glob("*.slt")):
        text = script.read_text()
        if MARK not in text:
            continue
        blocks = [answered(db, block) for block in text.strip().split("\n\n")]
        total += sum(statements for _, statements in blocks)
        made = "\n\n".join(block for block, _ in blocks) + "\n"
        if write:
            script.write_text(made)
        elif made != text:
            failed += 1
            sys.stdout.writelines(
                difflib.unified_diff(
                    text.splitlines(True), made.splitlines(True), script.name, "DuckDB"
                )
            )
    print(f"DuckDB {duckdb.__version__}: {total} statements, {failed} files with other answers")
    return 1 if failed or not total else 0


sys.exit(main())
