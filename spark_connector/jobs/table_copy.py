"""CopyTable: each task reads its regions and writes the cells to another table, with their timestamps.

Source and target may be on two clusters. Cells never become rows of Spark: a task has a client for each side. A task
that runs again writes the same cells again, because it keeps their timestamps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from metaclient import keys
from metaclient.errors import ConfigError, TableNotFound
from metaclient.model import Cell, CellType, Delete, Durability, Put, Result
from metaclient.table import ALL_VERSIONS
from metaclient.wording import text_table
from spark_connector import clients, lookup_counts
from spark_connector.jobs.splits import Key, RowChoice, plan_splits, run_on_splits, scan_options
from spark_connector.planning import splits as planning
from spark_connector.planning.location_map import LocationMap, ship_locations
from spark_connector.planning.query import Query
from spark_connector.reading import split_reader as reading
from spark_connector.reading.tasks import attempt_number, connected
from spark_connector.settings.option_uses import Use
from spark_connector.settings.progress import Progress, watch
from spark_connector.writing import destination
from spark_connector.writing.writer import sender_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from spark_connector.dataframe import SplitReader
    from spark_connector.settings.options import Options

__all__ = ["CopyReport", "copy_table", "families_of", "mutations_of"]

SCHEMA = "rows bigint, cells bigint, bytes bigint, retries bigint"


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class CopyReport:
    """The numbers of rows, cells and bytes that were copied, of retries, and of tasks; ``repr`` is a table.

    >>> CopyReport(table="t", to_table="u", rows=4, cells=7, bytes=230, retries=0, tasks=2, is_created=True)
    table t, copied to u, which was created
    rows  cells  bytes  retries  tasks
       4      7    230        0      2
    """

    table: str
    to_table: str
    rows: int
    cells: int
    bytes: int
    retries: int
    tasks: int
    is_created: bool = False  # the target was missing, and was created

    def as_dict(self) -> dict[str, Any]:
        """Return everything as values that JSON can hold."""
        return asdict(self)

    def __repr__(self) -> str:
        numbers = {name: getattr(self, name) for name in ("rows", "cells", "bytes", "retries", "tasks")}
        created = ", which was created" if self.is_created else ""
        head = f"table {self.table}, copied to {self.to_table}{created}"
        return "\n".join([head, *text_table(list(numbers), [list(numbers.values())])])


@dataclass(frozen=True, slots=True)
class _Copy:
    """The arguments of a task, pickled with its function."""

    query: Query
    target: Options
    name: bytes  # of the target table
    renamed: Mapping[bytes, bytes]  # source family -> target family; empty: all families keep their names
    locations: LocationMap  # of the target table's regions


def copy_table(
    spark: SparkSession,
    table: Key,
    *,
    url: str | None = None,
    to_table: Key | None = None,
    to_url: str | None = None,
    families: str | Sequence[str] | Mapping[str, str] | None = None,
    startrow: Key | None = None,
    stoprow: Key | None = None,
    prefix: Key | None = None,
    row_prefixes: Sequence[Key] = (),
    starttime: int | None = None,
    endtime: int | None = None,
    versions: int = 1,
    all_cells: bool = False,
    create: bool = False,
    progress: Progress | bool | None = None,
    **options: object,
) -> CopyReport:
    """Copy a table, or a part of it, to another table, here or on another cluster (``to_url``).

    ``families`` are those to copy; ``"a:b"`` (or a mapping) writes family a to family b. ``versions`` is the number of
    versions per cell to copy; ``all_cells`` copies all versions, delete markers and the cells that they hide.
    Cells keep their timestamps, so that a second copy changes nothing. ``create`` creates the target with the source's
    settings and regions if it is missing; without it, a missing target is an error before any task runs. The options
    ``hbase.spark.write.*`` apply to the target.

        hbase.copy_table(spark, "users", url=here, to_url=there, families="d:data", create=True)
    """
    renamed = families_of(families)
    source = scan_options(
        table,
        url,
        options,
        Use.COPY_TABLE,
        layout="raw" if all_cells else "cells",
        rows=RowChoice(startrow, stoprow, prefix, row_prefixes),
        times=(starttime, endtime),
        versions=ALL_VERSIONS if all_cells else versions,
        families=sorted(renamed),
    )
    target = replace(source, url=to_url) if to_url is not None else source
    return _copied(spark, Query.of(source), target, to_table, renamed, create=create, progress=progress)


def _copied(
    spark: SparkSession,
    query: Query,
    target: Options,
    to_table: Key | None,
    renamed: dict[str, str],
    *,
    create: bool,
    progress: Progress | bool | None,
) -> CopyReport:
    """Check the target, copy the rows of the query to it, and return the sums over all tasks."""
    name = keys.table_name(to_table if to_table is not None else query.table)
    clients.check_reachable(target.connection_url)
    if name == query.table and target.client_key() == query.options.client_key():
        raise ConfigError(f"table '{keys.printable(name)}' would be copied onto itself: give to_table, to_url or both")
    to_bytes = {old.encode(): new.encode() for old, new in renamed.items()}
    is_created = _prepare(query, target, name, to_bytes, create=create)
    with clients.lease(target) as connection:
        locations = ship_locations(connection, name, target)
    splits = plan_splits(spark, query)
    copy = _Copy(query, target, name, to_bytes, locations)
    with watch(spark, f"copy_table {query.options.table}", len(splits), progress):
        lines = run_on_splits(spark, SCHEMA, splits, _copier(copy), target).collect()
    sums = [sum(line[at] for line in lines) for at in range(4)]
    return CopyReport(
        table=keys.printable(query.table),
        to_table=keys.printable(name),
        rows=sums[0],
        cells=sums[1],
        bytes=sums[2],
        retries=sums[3],
        tasks=len(splits),
        is_created=is_created,
    )


def families_of(families: str | Sequence[str] | Mapping[str, str] | None) -> dict[str, str]:
    """Return source family -> target family; empty if all families keep their names.

    >>> families_of("a:b,c")
    {'a': 'b', 'c': 'c'}
    """
    if families is None:
        return {}
    if isinstance(families, Mapping):
        pairs = [(old, new) for old, new in families.items()]
    else:
        texts = families.split(",") if isinstance(families, str) else families
        pairs = [(old, new if colon else old) for old, colon, new in (text.strip().partition(":") for text in texts)]
    found = dict(pairs)
    if not found or not all(old and new and ":" not in new for old, new in pairs) or len(found) < len(pairs):
        raise ConfigError(f"families {families!r}: write FAMILY or FAMILY:NEWNAME, separated by commas, each once")
    if len(set(found.values())) < len(found):
        raise ConfigError(
            f"families {families!r}: two of them have the same new name, so that their cells would hide each other"
        )
    return found


def _prepare(query: Query, target: Options, name: bytes, renamed: dict[bytes, bytes], *, create: bool) -> bool:
    """Create the target if asked for and missing, and return True then.

    Raises if the target is missing and must not be created, or if a family is missing in the source or in the target.
    """
    with clients.lease(query.options) as here, clients.lease(target) as there:
        wanted = [family.name for family in here.engine.describe(query.table).families]
        missing = [family for family in renamed if family not in wanted]
        if missing:
            raise ConfigError(
                f"table '{keys.printable(query.table)}' has no family '{keys.printable(missing[0])}'; it has "
                + ", ".join(keys.printable(family) for family in wanted)
            )
        try:
            described = there.engine.describe(name)
        except TableNotFound as error:
            if not create:
                raise TableNotFound(
                    f"the target '{keys.printable(name)}' does not exist: create it, or give create=True (--create) to "
                    "create it with the families and regions of the source"
                ) from error
            destination.copy_of(here, query.table, there, name, renamed)
            return True
        written = [renamed.get(family, family) for family in wanted if not renamed or family in renamed]
        destination.check_families(described, written)
        return False


def _copier(task: _Copy) -> SplitReader:
    query, target = task.query, task.target
    durability = target.write_durability

    def copy(split: planning.TableSplit, planned: lookup_counts.Report | None) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        rows, last = 0, None
        with (
            connected(query.options, planned) as here,
            clients.lease(target) as there,
            sender_of(there, task.locations, target) as sender,
            closing(reading.results_of(here, query, split, attempt=attempt_number())) as results,
        ):
            for result, _ in results:
                rows += result.row != last
                last = result.row
                sender.extend(mutations_of(result, task.renamed, durability))
        sent = sender.sent
        yield pa.record_batch(
            [pa.array([value], pa.int64()) for value in (rows, sent.cells, sent.bytes, sent.retries)],
            names=["rows", "cells", "bytes", "retries"],
        )

    return copy


def mutations_of(
    result: Result, renamed: Mapping[bytes, bytes], durability: Durability = Durability.USE_DEFAULT
) -> Iterator[Put | Delete]:
    """Yield the mutations that write the cells of a row: a put, and a delete for the delete markers of a raw scan."""
    cells = [_renamed(cell, renamed) for cell in result.cells] if renamed else result.cells
    puts = tuple(cell for cell in cells if cell.type is CellType.PUT)
    markers = tuple(cell for cell in cells if cell.type is not CellType.PUT)
    if puts:
        yield Put(result.row, puts, durability)
    if markers:
        yield Delete(result.row, markers, durability=durability)


def _renamed(cell: Cell, renamed: Mapping[bytes, bytes]) -> Cell:
    family, colon, qualifier = cell.column.partition(b":")
    return cell._replace(column=renamed.get(family, family) + colon + qualifier)
