"""VerifyReplication: compares two clusters, or a primary and its replica, row by row inside of the tasks.

A task scans its regions on one side and the same range on the other, and merges both by key: no shuffle, no join. It
returns to Spark the number of equal rows, one line per range, and the keys of the rows that differ.

Replication is asynchronous, so a row that differs may only be late. With ``recompare_s`` a task waits that long, reads
the differing rows again on both sides, and compares them once more (:mod:`metaclient.verification.recomparison`).

The driver reads the locations of the regions of both tables once, each at a meta replica of its cluster, and sends them
to the tasks.

With ``block_rows`` a task first computes digests of blocks of the source, and compares the peer with the digests. Rows
are compared only in blocks whose digests differ. ``hash_table`` computes the digests alone. Saved as a file, they can
be compared with a distant peer without reading the source again (HashTable and SyncTable).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, TypeAlias

from metaclient import keys
from metaclient.columns.layouts import Layout
from metaclient.errors import ConfigError
from metaclient.model import Consistency, Result
from metaclient.table import ALL_VERSIONS
from metaclient.verification.comparison import Block, Compared, RowVerdict, blocks, digest_of, merged
from metaclient.verification.recomparison import Recompare, Recomparison
from metaclient.verification.report import SAMPLES, VerificationReport
from metaclient.verification.selection import explain_key, select_families, url_of_peer
from metaclient.wording import counted
from spark_connector import clients, lookup_counts
from spark_connector.jobs.splits import Key, RowChoice, plan_splits, run_on_splits, scan_options, schema_from
from spark_connector.planning import splits as planning
from spark_connector.planning.location_map import Learner, LocationMap, ship_locations
from spark_connector.planning.query import Query
from spark_connector.reading import split_reader as reading
from spark_connector.reading.tasks import attempt_number, connected
from spark_connector.schema.ranges import KeyRange, bytes_of, text_of, union
from spark_connector.settings.option_uses import Use
from spark_connector.settings.progress import Progress, watch

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from metaclient import Connection
    from metaclient.model import TableDescriptor
    from metaclient.replication_peers import Peer
    from spark_connector.dataframe import SplitReader
    from spark_connector.settings.options import Options

__all__ = ["Verification", "hash_table", "verify_replication"]

SCHEMA = "verdict string, row binary, rows bigint, detail string"
BLOCK_SCHEMA = "start binary, stop binary, rows bigint, digest binary"
#: Names of the lines that count repeated comparisons, as HBase names its counters.
_RECOMPARES, _FAILED = "RECOMPARES", "FAILED_RECOMPARE"
#: A line of SCHEMA; the detail may be left out.
_Line: TypeAlias = "tuple[str, bytes | None, int] | tuple[str, bytes | None, int, str | None]"


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class Verification(VerificationReport):
    """The report of a comparison, and all rows that differ."""

    #: ``verdict``, ``row`` and ``detail`` of each row that differs; kept in Spark until :meth:`close`.
    differences: DataFrame
    _kept: DataFrame

    def close(self) -> None:
        """Free Spark's copy of the differences."""
        self._kept.unpersist()


@dataclass(frozen=True, slots=True)
class _Side:
    """One side of the comparison: its query, the replica to read, and the locations of its regions for the tasks."""

    query: Query
    replica_id: int | None = None
    locations: LocationMap | None = None

    def reader(self, connection: Connection) -> _SideReader:
        return _SideReader(self.query, connection, self.replica_id)


@dataclass(frozen=True, slots=True)
class _SideReader:
    """The :class:`~metaclient.verification.recomparison.RowReader` of a side, in a task."""

    query: Query
    connection: Connection
    replica_id: int | None

    @property
    def _level(self) -> Consistency:
        return Consistency.STRONG if self.replica_id is None else Consistency.TIMELINE

    def scan(self, start: bytes, stop: bytes) -> Generator[Result, None, None]:
        scan = self.query.scan(KeyRange(start, stop), self.query.options.cached_rows or reading.CACHING)
        scanner = self.connection.engine.scan_rows(self.query.table, scan, self._level, self.replica_id)
        with closing(iter(scanner)) as found:  # type: ignore[type-var]  # a generator
            for result, _ in found:
                kept = self._kept(result)
                if kept.cells:
                    yield kept

    def get(self, rows: Sequence[bytes]) -> list[Result]:
        if self.query.options.layout is Layout.RAW:  # a get of HBase cannot return delete markers
            return [self._scanned(row) for row in rows]
        gets = [self.query.get(row) for row in rows]
        found = self.connection.engine.get_many(self.query.table, gets, self._level, self.replica_id)
        return [self._kept(result) for result, _ in found]

    def _scanned(self, row: bytes) -> Result:
        return Result(row, [cell for piece in self.scan(row, keys.next_row(row)) for cell in piece.cells])

    def _kept(self, result: Result) -> Result:
        """Return the wanted cells of a row that passed the user's filter."""
        kept = result if self.query.kept is None else self.query.kept.of_result(result)
        return Result(result.row) if kept is None else kept


@dataclass(frozen=True, slots=True)
class _TableComparison:
    """Both sides, and how often differing rows are compared again; pickled with the function of a task."""

    source: _Side
    peer: _Side
    recompare: Recompare | None

    def lines(self, here: Connection, there: Connection, where: KeyRange) -> Iterator[pa.RecordBatch]:
        """Compare the rows of a range, and yield its lines."""
        ours, theirs = self.source.reader(here), self.peer.reader(there)
        recomparison = Recomparison(ours, theirs, self.recompare, here.engine.runtime.sleep)
        with closing(ours.scan(where.start, where.stop)) as one, closing(theirs.scan(where.start, where.stop)) as other:
            yield from _lines(recomparison.final(merged(one, other)))
        if self.recompare is not None:
            yield _batch([(_RECOMPARES, None, recomparison.recompares), (_FAILED, None, recomparison.failed)])


def verify_replication(
    spark: SparkSession,
    table: Key,
    *,
    url: str | None = None,
    peer_url: str | None = None,
    peer_id: str | None = None,
    peer_table: Key | None = None,
    replica_id: int | None = None,
    families: Sequence[str] = (),
    startrow: Key | None = None,
    stoprow: Key | None = None,
    prefix: Key | None = None,
    row_prefixes: Sequence[Key] = (),
    starttime: int | None = None,
    endtime: int | None = None,
    versions: int | None = None,
    raw: bool = False,
    recompare_s: float | None = None,
    recompare_tries: int = 1,
    recompare_backoff_exponent: int = 0,
    block_rows: int | None = None,
    hashes: DataFrame | None = None,
    samples: int = SAMPLES,
    progress: Progress | bool | None = None,
    **options: object,
) -> Verification:
    """Compare a table with its copy on another cluster (``peer_url``), under another name, or in its own replica.

    ``peer_id`` is a replication peer of the source: only the families that it gets are compared, and without
    ``peer_url`` the cluster of its cluster key is read. ``replica_id`` compares the primary with that replica of each
    region. ``raw`` compares delete markers and the cells that they hide, and all versions unless ``versions`` is given.
    ``recompare_s`` compares differing rows again after that many seconds, ``recompare_tries`` times; each pause is
    ``2 ** recompare_backoff_exponent`` times the pause before it. ``block_rows`` first compares digests of blocks of
    that many rows; ``hashes`` takes digests that :func:`hash_table` computed of this table before. The report
    shows the first ``samples`` rows that differ. Set ``endtime`` on a table that is being written to.

        report = hbase.verify_replication(spark, "users", url=here, peer_url=there, recompare_s=10)
        report.counters, report.differences.show()
    """
    source = scan_options(
        table,
        url,
        options,
        Use.VERIFY,
        layout=_layout(raw),
        rows=RowChoice(startrow, stoprow, prefix, row_prefixes),
        times=(starttime, endtime),
        versions=_versions(versions, raw),
        families=families,
    )
    recompare = Recompare.of(recompare_s, recompare_tries, recompare_backoff_exponent, rows_per_get=source.bulkget_size)
    _check_blocks(block_rows, hashes)
    comparison, notes = _planned(
        Query.of(source), recompare, peer_url, _peer_of(source, peer_id), peer_table, replica_id
    )
    lines, tasks = _compared(spark, comparison, block_rows, hashes)
    with watch(spark, f"verify_replication {source.table}", tasks, progress):
        return _verified(comparison, notes, lines, samples)


def _planned(
    query: Query,
    recompare: Recompare | None,
    peer_url: str | None,
    known: Peer | None,
    peer_table: Key | None,
    replica_id: int | None,
) -> tuple[_TableComparison, tuple[str, ...]]:
    """Return the comparison of the arguments, and the notes of its report; ``known`` is the peer of ``peer_id``."""
    with explain_key(known if peer_url is None else None):
        url = url_of_peer(known) if known is not None and peer_url is None else peer_url
        source, peer, notes = _selected(_sides(query, url, peer_table, replica_id), known)
    return _TableComparison(source, peer, recompare), notes


def _compared(
    spark: SparkSession, comparison: _TableComparison, block_rows: int | None, hashes: DataFrame | None
) -> tuple[DataFrame, int]:
    """Return the lines of a comparison, which are computed later, and the number of tasks."""
    if hashes is not None:
        tasks = hashes.rdd.getNumPartitions() if hasattr(hashes, "rdd") else 1
        return _compare_with(hashes, comparison), tasks
    query = comparison.source.query
    splits = plan_splits(spark, query)
    if block_rows is not None:
        return _compare_with(_hashed(spark, query, splits, block_rows), comparison), len(splits)
    return run_on_splits(spark, SCHEMA, splits, _checker(comparison), query.options), len(splits)


def _layout(raw: bool) -> str:
    return "raw" if raw else "cells"


def _versions(versions: int | None, raw: bool) -> int:
    """Return the number of versions to compare. HBase's default is 1 for raw scans, too."""
    return versions if versions is not None else ALL_VERSIONS if raw else 1


def _peer_of(source: Options, peer_id: str | None) -> Peer | None:
    """Return a replication peer of the source's cluster."""
    if peer_id is None:
        return None
    with clients.lease(source) as connection:
        return connection.replication.get(peer_id)


def _check_blocks(block_rows: int | None, hashes: DataFrame | None) -> None:
    if block_rows is not None and block_rows < 1:
        raise ConfigError(f"block_rows must be 1 or more, got {block_rows!r}")
    if block_rows is not None and hashes is not None:
        raise ConfigError("give block_rows to compute digests now, or hashes that were computed before, not both")


def _compare_with(hashes: DataFrame, comparison: _TableComparison) -> DataFrame:
    """Return the lines of a comparison of the peer with digests of the source."""
    wanted = hashes.select("start", "stop", "rows", "digest")
    return wanted.mapInArrow(_block_checker(comparison), schema_from(SCHEMA))


def hash_table(
    spark: SparkSession,
    table: Key,
    *,
    url: str | None = None,
    block_rows: int = 1000,
    families: Sequence[str] = (),
    startrow: Key | None = None,
    stoprow: Key | None = None,
    prefix: Key | None = None,
    row_prefixes: Sequence[Key] = (),
    starttime: int | None = None,
    endtime: int | None = None,
    versions: int | None = None,
    raw: bool = False,
    **options: object,
) -> DataFrame:
    """Return digests of a table, one per ``block_rows`` rows: ``start``, ``stop``, ``rows``, ``digest``.

    They can be saved and compared later with a copy of the table, by ``verify_replication(hashes=...)`` with the same
    families, versions, times and ``raw``.
    """
    source = scan_options(
        table,
        url,
        options,
        Use.VERIFY,
        layout=_layout(raw),
        rows=RowChoice(startrow, stoprow, prefix, row_prefixes),
        times=(starttime, endtime),
        versions=_versions(versions, raw),
        families=families,
    )
    if block_rows < 1:
        raise ConfigError(f"block_rows must be 1 or more, got {block_rows!r}")
    query = Query.of(source)
    return _hashed(spark, query, plan_splits(spark, query), block_rows)


def _sides(query: Query, peer_url: str | None, peer_table: Key | None, replica_id: int | None) -> tuple[_Side, _Side]:
    if replica_id is not None and (peer_url is not None or peer_table is not None):
        raise ConfigError(
            "compare with a peer (peer_url, peer_id, peer_table) or with a replica (replica_id), not both"
        )
    if replica_id is not None and replica_id < 1:
        raise ConfigError(f"replica_id must be 1 or more: 0 is the primary, got {replica_id!r}")
    if replica_id is None and peer_url is None and peer_table is None:
        raise ConfigError("there is nothing to compare with: give peer_url, peer_id, peer_table or replica_id")
    if replica_id is not None:
        return _Side(query), _Side(query, replica_id)
    name = keys.table_name(peer_table if peer_table is not None else query.table)
    options = replace(query.options, url=peer_url or query.options.url, table=name.decode())
    clients.check_reachable(options.connection_url)
    if name == query.table and options.client_key() == query.options.client_key():
        raise ConfigError("source and peer are the same table of the same cluster: every row would be equal")
    return _Side(query), _Side(Query.of(options))


def _selected(sides: tuple[_Side, _Side], known: Peer | None) -> tuple[_Side, _Side, tuple[str, ...]]:
    """Return both sides with the families to compare and the peer's locations, and the notes of the report.

    Raises now, on the driver, if the peer's table, a family or the replica does not exist: otherwise every task would
    fail.
    """
    source, peer = sides
    with clients.lease(source.query.options) as here, clients.lease(peer.query.options) as there:
        described = here.engine.describe(source.query.table)
        if peer.replica_id is not None:
            _check_replica(described, peer.replica_id)
            return source, peer, ()
        theirs = there.engine.describe(peer.query.table)
        columns = source.query.options.columns  # the query has none of them if a filter must see other columns, too
        given = tuple(dict.fromkeys(bytes_of(column).partition(b":")[0] for column in columns))
        selected = select_families(
            described,
            theirs,
            given,
            peer=known,
            is_other_cluster=source.query.options.client_key() != peer.query.options.client_key(),
        )
        locations = ship_locations(there, peer.query.table, peer.query.options)
    if not columns and selected.families:
        names = tuple(map(text_of, selected.families))
        source, peer = (replace(side, query=_of_families(side.query, names)) for side in sides)
    return source, replace(peer, locations=locations), selected.notes


def _of_families(query: Query, families: tuple[str, ...]) -> Query:
    return Query.of(replace(query.options, columns=families))


def _check_replica(descriptor: TableDescriptor, replica_id: int) -> None:
    if replica_id >= descriptor.region_replication:
        raise ConfigError(
            f"table '{keys.printable(descriptor.name)}' has {counted(descriptor.region_replication, 'copy', 'copies')} "
            f"of each region, so there is no replica {replica_id}"
        )


def _verified(comparison: _TableComparison, notes: tuple[str, ...], lines: DataFrame, samples: int) -> Verification:
    """Run the comparison once, and return its sums and its differing rows from the same persisted lines."""
    from pyspark import StorageLevel

    source, peer = comparison.source.query, comparison.peer.query
    kept = lines.persist(StorageLevel.MEMORY_AND_DISK)
    differences = kept.where("row IS NOT NULL").select("verdict", "row", "detail")
    try:
        sums = Counter({line[0]: int(line[1]) for line in kept.groupBy("verdict").sum("rows").collect()})
        is_bad = any(sums[verdict.name] for verdict in RowVerdict if verdict is not RowVerdict.GOODROWS)
        found = differences.orderBy("row").limit(samples).collect() if is_bad else []
    except BaseException:
        kept.unpersist()
        raise
    is_again = comparison.recompare is not None
    return Verification(
        table=keys.printable(source.table),
        peer_table=keys.printable(peer.table),
        good=sums[RowVerdict.GOODROWS.name],
        only_in_source=sums[RowVerdict.ONLY_IN_SOURCE.name],
        only_in_peer=sums[RowVerdict.ONLY_IN_PEER.name],
        content_different=sums[RowVerdict.CONTENT_DIFFERENT.name],
        recompares=sums[_RECOMPARES] if is_again else None,
        failed_recompares=sums[_FAILED] if is_again else None,
        families=source.options.columns,
        samples=tuple(Compared(RowVerdict[line.verdict], bytes(line.row), line.detail) for line in found),
        notes=notes,
        differences=differences,
        _kept=kept,
    )


# -- in a task -------------------------------------------------------------------------------------------------------


def _checker(comparison: _TableComparison) -> SplitReader:
    source, peer = comparison.source, comparison.peer

    def check(split: planning.TableSplit, planned: lookup_counts.Report | None) -> Iterator[pa.RecordBatch]:
        with connected(source.query.options, planned) as here, clients.lease(peer.query.options) as there:
            reading.learn_locations(here, source.query, split, attempt=attempt_number())
            learner = _learner(there, peer)
            if learner is not None:
                learner.learn_ranges(split.ranges)
            for where in split.ranges:
                yield from comparison.lines(here, there, where)

    return check


def _block_checker(comparison: _TableComparison) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a function that compares the peer with digests, and reads both sides only where a digest differs."""
    source, peer = comparison.source, comparison.peer

    def check(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with connected(source.query.options) as here, clients.lease(peer.query.options) as there:
            learner = _learner(there, peer)
            theirs = peer.reader(there)
            for batch in batches:
                for row in batch.to_pylist():
                    block = Block(row["start"], row["stop"], row["rows"], row["digest"])
                    if learner is not None:
                        learner.learn_ranges([KeyRange(block.start, block.stop)])
                    if digest_of(theirs.scan(block.start, block.stop)) == (block.rows, block.digest):
                        yield _batch([(RowVerdict.GOODROWS.name, None, block.rows)])
                    else:
                        yield from comparison.lines(here, there, KeyRange(block.start, block.stop))

    return check


def _learner(there: Connection, peer: _Side) -> Learner | None:
    """Return what imports the locations of the peer's regions, which the driver has read once; None if it has not."""
    return Learner(there, peer.locations, attempt=attempt_number()) if peer.locations else None


def _hashed(spark: SparkSession, query: Query, splits: list[planning.TableSplit], block_rows: int) -> DataFrame:
    side = _Side(query)

    def hash_(split: planning.TableSplit, planned: lookup_counts.Report | None) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        with connected(query.options, planned) as connection:
            reading.learn_locations(connection, query, split, attempt=attempt_number())
            for where in union(split.ranges):
                rows = side.reader(connection).scan(where.start, where.stop)
                found = blocks(rows, where.start, where.stop, block_rows)
                while some := list(islice(found, 1000)):
                    columns = [pa.array(list(column)) for column in zip(*some, strict=True)]
                    yield pa.record_batch(columns, names=["start", "stop", "rows", "digest"])

    return run_on_splits(spark, BLOCK_SCHEMA, splits, hash_, query.options)


def _lines(found: Iterable[Compared]) -> Iterator[pa.RecordBatch]:
    """Yield one line per differing row, and one line with the number of equal rows."""
    good = 0
    lines: list[_Line] = []
    for compared in found:
        if compared.verdict is RowVerdict.GOODROWS:
            good += 1
            continue
        lines.append((compared.verdict.name, compared.row, 1, compared.detail))
        if len(lines) == 10_000:
            yield _batch(lines)
            lines = []
    yield _batch([*lines, (RowVerdict.GOODROWS.name, None, good)])


def _batch(lines: Sequence[_Line]) -> pa.RecordBatch:
    import pyarrow as pa

    kinds = {"verdict": pa.string(), "row": pa.binary(), "rows": pa.int64(), "detail": pa.string()}
    padded = [(*line, None) if len(line) == 3 else line for line in lines]
    columns = zip(*padded, strict=True)
    return pa.record_batch(
        [pa.array(list(column), kind) for column, kind in zip(columns, kinds.values(), strict=True)], names=list(kinds)
    )
