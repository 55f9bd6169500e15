"""Prepares the table of a write once, on the driver: creates it with splits, truncates it, or only checks it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from metaclient import keys
from metaclient.errors import ConfigError, NoSuchFamily, TableNotFound, Unsupported
from spark_connector.planning import table_facts
from spark_connector.planning.splits import split_keys
from spark_connector.reading.planned import missing_family
from spark_connector.schema.ranges import KeyRange

if TYPE_CHECKING:
    from collections.abc import Iterable

    from metaclient import Connection
    from metaclient.model import TableDescriptor
    from spark_connector.settings.options import Options

__all__ = ["check_families", "copy_of", "prepare", "region_splits", "truncate"]

_log = logging.getLogger(__name__)


def region_splits(options: Options, salt: int = 0) -> list[bytes]:
    """Return the split keys of a new table: ``hbase.spark.write.splits``, or ``newtable`` regions.

    As in hbase-connectors, the first of ``newtable`` regions ends at ``regionStart`` and the last begins at
    ``regionEnd``. Two regions are split in the middle between them.

    >>> from spark_connector.settings.options import Options
    >>> region_splits(Options.parse({"newtable": "6", "regionStart": "a", "regionEnd": "e"}))
    [b'a', b'b', b'c', b'd', b'e']

    A table with salted keys (``salt`` is the number of buckets) is split between buckets.

    >>> region_splits(Options.parse({"newtable": "4"}), salt=16)
    [b'\\x04', b'\\x08', b'\\x0c']
    """
    if options.write_splits:
        return list(options.write_splits)
    wanted = options.new_table or 1
    if salt:
        return _salt_splits(options, wanted, salt)
    where = KeyRange(options.region_start, options.region_end)
    if wanted == 1:
        return []
    if where.is_empty or not where.stop:
        raise ConfigError("option regionStart must be before regionEnd: a new table is split between them")
    if wanted == 2:
        return split_keys(where, 2)
    found = [where.start, *split_keys(where, wanted - 2), where.stop]
    if len(found) < wanted - 1:
        raise ConfigError(
            f"option newtable = {wanted}: there are only {len(found)} split keys between regionStart and "
            "regionEnd; make the range wider, or give hbase.spark.write.splits"
        )
    return found


def _salt_splits(options: Options, wanted: int, salt: int) -> list[bytes]:
    default = type(options)()
    if (options.region_start, options.region_end) != (default.region_start, default.region_end):
        raise ConfigError(
            "options regionStart and regionEnd are not for a catalog with salt: a new table is split between buckets"
        )
    if wanted > salt:
        raise ConfigError(
            f"option newtable = {wanted}: a new table is split between its {salt} salt buckets; give a number up to "
            f"{salt}, or hbase.spark.write.splits with keys that begin with a salt byte"
        )
    return [bytes((number * salt // wanted,)) for number in range(1, wanted)]


def prepare(
    connection: Connection,
    table: bytes,
    families: Iterable[bytes],
    options: Options,
    *,
    overwrite: bool = False,
    salt: int = 0,
    has_ttl: bool = False,
) -> None:
    """Create the table if it is missing and options ask for it; truncate it for ``overwrite``; check its families.

    ``salt`` is the catalog's number of buckets, ``has_ttl`` is True if a column of the catalog has a TTL.
    """
    families = sorted(set(families))
    if overwrite and not options.write_truncate:
        raise ConfigError(
            f"mode overwrite would delete every row of table '{keys.printable(table)}' first: allow that with "
            "hbase.spark.write.truncate=true, or use mode append, which replaces the cells that it writes"
        )
    if (has_ttl or options.write_ttl_ms is not None) and not connection.capabilities.cell_ttl:
        given = "hbase.spark.write.ttl" if options.write_ttl_ms is not None else "ttl in the catalog"
        raise Unsupported(
            f"the backend {connection.engine.backend.name!r} cannot set a TTL per cell ({given}): "
            "use thrift2:, or set one on the family"
        )
    descriptor = _described(connection, table)
    if descriptor is None:
        _make(connection, table, families, options, salt)
        return
    check_families(descriptor, families)
    if overwrite:
        truncate(connection, descriptor)


def _described(connection: Connection, table: bytes) -> TableDescriptor | None:
    try:
        return connection.engine.describe(table)
    except TableNotFound:
        return None


def _make(connection: Connection, table: bytes, families: list[bytes], options: Options, salt: int) -> None:
    if options.new_table is None and not options.write_splits:
        raise TableNotFound(
            f"table '{keys.printable(table)}' does not exist; to create it, give newtable (a number of regions) or "
            "hbase.spark.write.splits (row keys)"
        )
    splits = region_splits(options, salt)
    connection.create_table(table, {family: {} for family in families}, splits=splits)
    table_facts.forget(connection, table)
    _log.info("created table %s with %d regions", keys.printable(table), len(splits) + 1)


def check_families(descriptor: TableDescriptor, families: Iterable[bytes]) -> None:
    """Raise NoSuchFamily, with the existing families, if one of the families is missing."""
    missing = missing_family(descriptor, families)
    if missing is not None:
        raise NoSuchFamily(f"{missing}, which the catalog writes to")


def truncate(connection: Connection, descriptor: TableDescriptor) -> None:
    """Delete all rows of a table and keep its settings and regions (truncate_preserve).

    A backend without that call deletes the table and creates it again.
    """
    table, name = descriptor.name, keys.printable(descriptor.name)
    if connection.capabilities.schema:
        _log.warning("truncating table %s", name)
        connection.truncate_table(table)
    else:
        splits = _splits_of(connection, table)
        _log.warning("truncating table %s: it is deleted and created again with %d regions", name, len(splits) + 1)
        connection.delete_table(table, disable=True)
        _create(connection, descriptor, splits)
    table_facts.forget(connection, table)


def copy_of(source: Connection, table: bytes, target: Connection, name: bytes, renamed: dict[bytes, bytes]) -> None:
    """Create a table with the settings and regions of another one, on any cluster; families may be renamed."""
    from dataclasses import replace

    descriptor = source.engine.describe(table)
    kept = [family for family in descriptor.families if not renamed or family.name in renamed]
    families = tuple(replace(family, name=renamed.get(family.name, family.name)) for family in kept)
    made = replace(descriptor, name=name, families=families, attributes=())
    _create(target, made, _splits_of(source, table))


def _splits_of(connection: Connection, table: bytes) -> list[bytes]:
    """Return the split keys of a table, by the primary of hbase:meta: a table is created with them."""
    regions = connection.engine.regions(table, at_primary=True)
    splits = [entry.region.start_key for entry in regions if entry.region.start_key]
    if splits and not connection.capabilities.create_with_splits:
        raise Unsupported(
            f"table '{keys.printable(table)}' has {len(splits) + 1} regions, and the backend "
            f"{connection.engine.backend.name!r} cannot create a table with splits: use thrift2: or hbase:"
        )
    return splits


def _create(connection: Connection, descriptor: TableDescriptor, splits: list[bytes]) -> None:
    connection.engine.create_table(descriptor, splits)
