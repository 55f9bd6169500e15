"""Plans a read for a session: checks the table's families, divides the read into splits, and logs the plan."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from metaclient import keys
from metaclient.errors import MetaClientError, NoSuchFamily, TableNotFound
from spark_connector.planning import splits as planning
from spark_connector.reading.plan_text import log_plan

if TYPE_CHECKING:
    from collections.abc import Iterable

    from metaclient import Connection
    from metaclient.model import TableDescriptor
    from spark_connector.planning.query import Query

__all__ = ["check_read_families", "missing_family", "planned_read"]

_log = logging.getLogger(__name__)


def planned_read(connection: Connection, query: Query, *, whole: bool = False) -> list[planning.TableSplit]:
    """Return the splits of a read (see ``splits.plan``); raise NoSuchFamily if the table lacks one of its families."""
    check_read_families(connection, query)
    splits = planning.plan(connection, query, whole=whole)
    log_plan(query, splits)
    return splits


def check_read_families(connection: Connection, query: Query) -> None:
    """Raise TableNotFound or NoSuchFamily, with the existing families, before a task fails for it."""
    families = {column.partition(b":")[0] for column in query.columns}
    if not families:
        return
    try:
        descriptor = connection.engine.describe(query.table)
    except TableNotFound as error:  # a gateway's own text is only the name
        raise TableNotFound(f"table '{keys.printable(query.table)}' does not exist") from error
    except MetaClientError as error:  # a backend or a user without the right to describe; a task would name the family
        _log.debug("the families of %s are not checked: %s", keys.printable(query.table), error)
        return
    missing = missing_family(descriptor, families)
    if missing is not None:
        raise NoSuchFamily(f"{missing}, which the catalog or hbase.spark.query.columns reads")


def missing_family(descriptor: TableDescriptor, families: Iterable[bytes]) -> str | None:
    """Return a clause that names the first missing family and the existing ones; None if none is missing."""
    there = {family.name for family in descriptor.families}
    missing = sorted(name for name in families if name not in there)
    if not missing:
        return None
    has = ", ".join(sorted(keys.printable(name) for name in there))
    return f"table '{keys.printable(descriptor.name)}' has no family '{keys.printable(missing[0])}' (it has {has})"
