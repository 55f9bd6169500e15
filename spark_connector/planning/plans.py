"""Remembers which filters a ``load()`` was planned with, and understands Spark's filters.

Spark plans each use of a DataFrame in a process of its own and keeps only the last plan, for all uses. So that a second
use with other filters is an error and not a wrong answer, what the first one was planned with is written to a file on
the driver's machine, where all those processes run.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from metaclient.errors import ConfigError
from spark_connector.conditions.expressions import And, Comparison, Expression, In, IsNull, Like, Not, bind, to_sql
from spark_connector.schema.catalog import Catalog

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

__all__ = ["condition_of", "only_one"]

#: Files of plans that are kept; each is a few bytes. The oldest go first.
PLANS_MAX = 1000
_NOTHING = "(no filter)"


def only_one(load_id: str, condition: Expression | None) -> None:
    """Note what this ``load()`` is planned with; ConfigError when it was planned with something else before."""
    text = to_sql(condition) if condition is not None else _NOTHING
    folder = Path(tempfile.gettempdir(), f"hbase-spark-plans-{os.getuid()}")
    folder.mkdir(mode=0o700, exist_ok=True)
    note = folder / load_id
    made = folder / f".{load_id}-{os.getpid()}"
    made.write_text(text, encoding="utf-8")
    try:
        os.link(made, note)  # fails if it is there: of two planners at once one is the first
    except FileExistsError:
        before = note.read_text(encoding="utf-8")
        if before != text:
            raise ConfigError(
                f"this DataFrame was planned with the filter {before} and is now used with {text}: Spark would answer "
                "both with the rows of the last one. Call load() again for each filter, or use "
                "spark_connector.table(where=...), or leave hbase.spark.pushdown.catalyst off"
            ) from None
    finally:
        made.unlink()
    _sweep(folder)


def _sweep(folder: Path) -> None:
    notes = [note for note in folder.iterdir() if not note.name.startswith(".")]
    for note in sorted(notes, key=lambda note: note.stat().st_mtime)[:-PLANS_MAX]:
        note.unlink(missing_ok=True)


def condition_of(filters: Iterable[Filter], catalog: Catalog) -> Expression | None:
    """Spark's filters (all of them must hold) as one condition of ours; what we have no word for is left to Spark."""
    known = [part for each in filters if (part := _translated(each)) is not None and _is_known(part, catalog)]
    parts = sorted(known, key=to_sql)  # Spark may give the same ones in another order the next time
    return None if not parts else parts[0] if len(parts) == 1 else And(tuple(parts))


def _is_known(part: Expression, catalog: Catalog) -> bool:
    """False for a condition on what is no column of the catalog, or on a value that the column cannot have."""
    try:
        bind(part, catalog)
    except ConfigError:
        return False
    return True


def _translated(each: Filter) -> Expression | None:
    from pyspark.sql import datasource as spark

    if isinstance(each, spark.Not):
        inner = _translated(each.child)
        return Not(inner) if inner is not None else None
    path: tuple[str, ...] = getattr(each, "attribute", ())
    if len(path) != 1:
        return None  # a field inside of a struct
    name = path[0]
    match each:
        case spark.EqualTo(value=value):
            return Comparison(name, "=", value)
        case spark.EqualNullSafe(value=value):
            return Comparison(name, "<=>", value)
        case spark.GreaterThan(value=value):
            return Comparison(name, ">", value)
        case spark.GreaterThanOrEqual(value=value):
            return Comparison(name, ">=", value)
        case spark.LessThan(value=value):
            return Comparison(name, "<", value)
        case spark.LessThanOrEqual(value=value):
            return Comparison(name, "<=", value)
        case spark.In(value=values):
            return In(name, tuple(sorted(values, key=repr)))
        case spark.IsNull():
            return IsNull(name)
        case spark.IsNotNull():
            return Not(IsNull(name))
        case spark.StringStartsWith(value=value):
            return Like(name, _literal(value) + "%")
        case spark.StringEndsWith(value=value):
            return Like(name, "%" + _literal(value))
        case spark.StringContains(value=value):
            return Like(name, "%" + _literal(value) + "%")
    return None


def _literal(text: str) -> str:
    """Text as itself in a pattern of LIKE.

    >>> _literal("50%_")
    '50\\\\%\\\\_'
    """
    for special in ("\\", "%", "_"):
        text = text.replace(special, "\\" + special)
    return text
