"""Shows the whole ``cluster.status()`` as tables: the page ``/status``, beside the live view of the cluster."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from html import escape

__all__ = ["STYLE", "status_page"]

#: The page ``/status.css``: the policy of the server allows no style inside of a page.
STYLE = (
    "body{font:14px/1.5 system-ui,sans-serif;margin:2rem;color:#222}"
    "table{border-collapse:collapse;margin:.5rem 0 1.5rem}"
    "th,td{border:1px solid #ccc;padding:.2rem .6rem;text-align:left;vertical-align:top}"
    "th{background:#f3f3f3;font-weight:600}h2{margin-bottom:.3rem}"
)


def status_page(status: Mapping[str, object], addresses: Mapping[str, str]) -> str:
    """Return the whole status as tables, with the addresses of the fronts at the top."""
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Fake HBase</title>',
        '<link rel="stylesheet" href="/status.css"></head><body><h1>Fake HBase</h1>',
        _shown(dict(addresses)),
    ]
    for name, value in status.items():
        parts.append(f"<h2>{escape(name)}</h2>{_shown(value)}")
    parts.append('<p><a href="/">live view</a> <a href="/status.json">status.json</a></p></body></html>\n')
    return "".join(parts)


def _shown(value: object) -> str:
    """Return a value as HTML: mappings and lists as tables, other values as text.

    Things of one kind (servers, regions, sources) are the rows of one table, with their names in its first column.
    """
    if isinstance(value, Mapping):
        if value and all(isinstance(one, Mapping) and one for one in value.values()) and _is_uniform(value.values()):
            return _grid(list(value.values()), list(value))
        rows = "".join(f"<tr><th>{escape(str(key))}</th><td>{_shown(one)}</td></tr>" for key, one in value.items())
        return f"<table>{rows}</table>" if rows else "none"
    if isinstance(value, list | tuple):
        if value and all(isinstance(one, Mapping) for one in value):
            return _grid(value)
        return escape(", ".join(map(str, value))) or "none"
    return escape(str(value))


def _is_uniform(rows: Collection[Mapping[object, object]]) -> bool:
    """Return True if all rows have the same names, more than one."""
    names = [list(row) for row in rows]
    return len(names[0]) > 1 and all(one == names[0] for one in names)


def _grid(rows: Sequence[Mapping[object, object]], titles: Sequence[object] = ()) -> str:
    """Return a table with a row per mapping; ``titles`` stand before the rows."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    head = "".join(f"<th>{escape(str(name))}</th>" for name in (["", *names] if titles else names))
    body = []
    for number, row in enumerate(rows):
        title = f"<th>{escape(str(titles[number]))}</th>" if titles else ""
        cells = "".join(f"<td>{_shown(row.get(name, ''))}</td>" for name in names)
        body.append(f"<tr>{title}{cells}</tr>")
    return f"<table><tr>{head}</tr>{''.join(body)}</table>"
