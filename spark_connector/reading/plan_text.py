"""Texts about a planned read, for ``explain()``, Spark's web page and the log: table, rows, filter, servers."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from metaclient import keys
from metaclient.wording import counted
from spark_connector.schema.ranges import KeyRange

if TYPE_CHECKING:
    from spark_connector.planning.query import Query
    from spark_connector.planning.splits import TableSplit

__all__ = ["log_plan", "plan_text"]

_log = logging.getLogger(__name__)
#: More ranges, rows and servers than this are counted and not listed.
_LISTED = 3
#: A longer filter is cut: Spark repeats the text on each page and in each event.
_FILTER_MAX = 200


def plan_text(query: Query, splits: Sequence[TableSplit] | None) -> str:
    """Return one line about a read; without splits, the line has no regions and servers."""
    parts = [f"HBase {keys.printable(query.table)}", f"columns {_columns(query)}", f"rows {_rows(query)}"]
    if query.filter is not None:
        parts.append(f"servers' filter {_cut(query.filter)}")
    if query.limit is not None:
        parts.append(f"limit {query.limit} per task")
    if splits is not None:
        parts.append(_served(splits))
    return ", ".join(parts)


def log_plan(query: Query, splits: Sequence[TableSplit]) -> None:
    """Log the plan of a read, once per planning. Row keys and values are left out at INFO."""
    _log.info("read of %s: columns %s, %s", keys.printable(query.table), _columns(query), _served(splits))
    _log.debug("%s", plan_text(query, splits))


def _columns(query: Query) -> str:
    return f"[{', '.join(query.schema.fieldNames())}]"


def _rows(query: Query) -> str:
    ranges = [_range(each) for each in query.pushed.ranges[:_LISTED]]
    points = [f"'{keys.printable(row)}'" for row in query.pushed.points[:_LISTED]]
    more = len(query.pushed.ranges) + len(query.pushed.points) - len(ranges) - len(points)
    listed = [*ranges, *points, *([f"{more} more"] if more else [])]
    return " + ".join(listed) or "none"


def _range(each: KeyRange) -> str:
    if not each.start and not each.stop:
        return "all"
    start, stop = (f"'{keys.printable(key)}'" if key else "-" for key in (each.start, each.stop))
    return f"[{start}, {stop})"


def _cut(filter: bytes) -> str:
    text = filter.decode("ascii", "backslashreplace")
    return text if len(text) <= _FILTER_MAX else f"{text[:_FILTER_MAX]}... ({len(text)} characters)"


def _served(splits: Sequence[TableSplit]) -> str:
    hosts: Counter[str] = Counter()
    for split in splits:
        if split.host is not None:
            hosts[split.host] += split.regions
    listed = ", ".join(f"{host} ({count})" for host, count in hosts.most_common(_LISTED))
    more = f", {counted(len(hosts) - _LISTED, 'more server')}" if len(hosts) > _LISTED else ""
    regions, tasks = sum(split.regions for split in splits), len(splits)
    served = f" of {listed}{more}" if listed else ""
    return f"{counted(regions, 'region')}{served} in {counted(tasks, 'task')}"
