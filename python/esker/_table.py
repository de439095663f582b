"""How queries and datasets look at a prompt and in notebooks: a small table."""

import html as _html
import json
from typing import TYPE_CHECKING, Any, Dict, List, Tuple

if TYPE_CHECKING:
    from ._esker import Query, Records

_ROWS = 10
_COLUMNS = 8
_WIDTH = 24


def _cell(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = "".join(c if c.isprintable() else " " for c in text)
    return text if len(text) <= _WIDTH else text[: _WIDTH - 1] + "…"


def _first(query: "Query") -> Tuple[List[str], List[List[str]], bool]:
    """The names of columns, the first rows, and whether there are more."""
    rows: List[Dict[str, Any]] = []
    has_more = False
    for row in query:
        if len(rows) == _ROWS:
            has_more = True
            break
        rows.append(row)
    names: List[str] = []
    for row in rows:
        names.extend(name for name in row if name not in names)
    shown = names[:_COLUMNS]
    cells = [[_cell(row[name]) if name in row else "" for name in shown] for row in rows]
    if len(names) > _COLUMNS:
        shown = shown + ["…"]
        cells = [row + ["…"] for row in cells]
    return shown, cells, has_more


def text(query: "Query") -> str:
    """A query as a table of its first records."""
    names, rows, has_more = _first(query)
    if not rows:
        return "no records"
    widths = [max(len(row[at]) for row in [names, *rows]) for at in range(len(names))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in [names, *rows]]
    if has_more:
        lines.append("…")
    return "\n".join(lines)


def html(query: "Query") -> str:
    """A query as a table of HTML."""
    names, rows, has_more = _first(query)
    head = "".join(f"<th>{_html.escape(name)}</th>" for name in names)
    body = "".join("<tr>" + "".join(f"<td>{_html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    more = f'<tr><td colspan="{max(1, len(names))}">…</td></tr>' if has_more else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}{more}</tbody></table>"


def dataset_text(records: "Records") -> str:
    """A dataset by its name and definition, without reading records."""
    definition = records.definition
    indexes = ", ".join(definition.get("indexes", [])) or "none"
    return f"<esker.{type(records).__name__} {records.name}, key {definition['key']}, indexes: {indexes}>"
