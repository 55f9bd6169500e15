"""VerifyReplication: compares two clusters, or a primary and its replica, row by row inside of the tasks.

A task scans its regions on one side and the same range on the other, and merges both by key: no shuffle, no join. It
returns to Spark the number of equal rows, one line per range, and the keys of the rows that differ.

Replication is asynchronous, so a row that differs may only be late. With ``recompare_s`` a task waits that long, reads
the differing rows again on both sides, and compares them once more.

With ``block_rows`` a task first computes digests of blocks of the source, and compares the peer with the digests. Rows
are compared only in blocks whose digests differ. ``hash_table`` computes the digests alone. Saved as a file, they can
be compared with a distant peer without reading the source again (HashTable and SyncTable).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING

from metaclient import keys
from metaclient.errors import ConfigError
from metaclient.model import Consistency, Result
from metaclient.verification.comparison import Block, Compared, RowVerdict, blocks, digest_of, judged, merged
from metaclient.wording import counted
from spark_connector import clients, lookup_counts
from spark_connector.jobs.progress import Progress, watch
from spark_connector.jobs.splits import Key, plan_splits, run_on_splits, scan_options, schema_from
from spark_connector.planning import splits as planning
from spark_connector.planning.query import Query
from spark_connector.reading import split_reader as reading
from spark_connector.reading.tasks import attempt_number, connected
from spark_connector.schema.ranges import KeyRange, union
from spark_connector.settings.option_uses import Use

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from metaclient import Connection
    from spark_connector.settings.options import Options

__all__ = ["Verification", "hash_table", "verify_replication"]

SCHEMA = "verdict string, row binary, rows bigint"
BLOCK_SCHEMA = "start binary, stop binary, rows bigint, digest binary"
#: Differing rows that a task keeps in memory until it compares them again.
RECOMPARED_AT_ONCE = 10_000


@dataclass(frozen=True, slots=True)
class Verification:
    """The numbers of equal and differing rows, and the differing rows. ``counters`` has VerifyReplication's names."""

    good: int
    only_in_source: int
    only_in_peer: int
    content_different: int
    #: ``verdict`` and ``row`` of each row that differs; kept in Spark until :meth:`close`.
    differences: DataFrame
    _kept: DataFrame

    @property
    def bad(self) -> int:
        return self.only_in_source + self.only_in_peer + self.content_different

    @property
    def is_equal(self) -> bool:
        return not self.bad

    @property
    def counters(self) -> dict[str, int]:
        return {
            "GOODROWS": self.good,
            "BADROWS": self.bad,
            RowVerdict.ONLY_IN_SOURCE.value: self.only_in_source,
            RowVerdict.ONLY_IN_PEER.value: self.only_in_peer,
            RowVerdict.CONTENT_DIFFERENT.value: self.content_different,
        }

    def close(self) -> None:
        """Free Spark's copy of the differences."""
        self._kept.unpersist()


@dataclass(frozen=True, slots=True)
class _Side:
    """One side of the comparison: its query, and the replica to read."""

    query: Query
    replica_id: int | None = None

    def scanned(self, connection: Connection, where: KeyRange) -> Iterator[Result]:
        scan = self.query.scan(where, self.query.options.cached_rows or reading.CACHING)
        level = Consistency.STRONG if self.replica_id is None else Consistency.TIMELINE
        scanner = connection.engine.scan_rows(self.query.table, scan, level, self.replica_id)
        with closing(iter(scanner)) as found:  # type: ignore[type-var]  # a generator
            for result, _ in found:
                kept = self._kept(result)
                if kept.cells:
                    yield kept

    def got(self, connection: Connection, rows: Sequence[bytes]) -> list[Result]:
        level = Consistency.STRONG if self.replica_id is None else Consistency.TIMELINE
        gets = [self.query.get(row) for row in rows]
        found = connection.engine.get_many(self.query.table, gets, level, self.replica_id)
        return [self._kept(result) for result, _ in found]

    def _kept(self, result: Result) -> Result:
        """Return the wanted cells of a row that passed the user's filter."""
        kept = result if self.query.kept is None else self.query.kept.of_result(result)
        return Result(result.row) if kept is None else kept


def verify_replication(
    spark: SparkSession,
    table: Key,
    *,
    url: str | None = None,
    peer_url: str | None = None,
    peer_table: Key | None = None,
    replica_id: int | None = None,
    families: Sequence[str] = (),
    startrow: Key | None = None,
    stoprow: Key | None = None,
    prefix: Key | None = None,
    starttime: int | None = None,
    endtime: int | None = None,
    versions: int = 1,
    recompare_s: float | None = None,
    block_rows: int | None = None,
    hashes: DataFrame | None = None,
    progress: Progress | bool | None = None,
    **options: object,
) -> Verification:
    """Compare a table with its copy on another cluster (``peer_url``), under another name, or in its own replica.

    ``replica_id`` compares the primary with that replica of each region. ``recompare_s`` compares differing rows again
    after that many seconds; ``block_rows`` first compares digests of blocks of that many rows; ``hashes`` takes digests
    that :func:`hash_table` computed of this table before. Set ``endtime`` on a table that is being written to.

        report = hbase.verify_replication(spark, "users", url=here, peer_url=there, recompare_s=10)
        report.counters, report.differences.show()
    """
    source = scan_options(
        table,
        url,
        options,
        Use.VERIFY,
        startrow=startrow,
        stoprow=stoprow,
        prefix=prefix,
        starttime=starttime,
        endtime=endtime,
        versions=versions,
        families=families,
    )
    query = Query.of(source)
    sides = _sides(query, peer_url, peer_table, replica_id)
    _check_amounts(recompare_s, block_rows, hashes)
    _check_peer(sides[1])
    if hashes is not None:
        tasks = hashes.rdd.getNumPartitions() if hasattr(hashes, "rdd") else 1
        lines = _compare_with(hashes, sides, recompare_s)
    else:
        splits = plan_splits(spark, query)
        tasks = len(splits)
        if block_rows is not None:
            lines = _compare_with(_hashed(spark, query, splits, block_rows), sides, recompare_s)
        else:
            lines = run_on_splits(spark, SCHEMA, splits, _checker(*sides, recompare_s), source)
    return _verified(spark, source, lines, tasks, progress)


def _check_amounts(recompare_s: float | None, block_rows: int | None, hashes: DataFrame | None) -> None:
    if recompare_s is not None and not recompare_s > 0:
        raise ConfigError(f"recompare_s must be more than 0 seconds, got {recompare_s!r}")
    if block_rows is not None and block_rows < 1:
        raise ConfigError(f"block_rows must be 1 or more, got {block_rows!r}")
    if block_rows is not None and hashes is not None:
        raise ConfigError("give block_rows to compute digests now, or hashes that were computed before, not both")


def _compare_with(hashes: DataFrame, sides: tuple[_Side, _Side], recompare_s: float | None) -> DataFrame:
    """Return the lines of a comparison of the peer with digests of the source."""
    wanted = hashes.select("start", "stop", "rows", "digest")
    return wanted.mapInArrow(_block_checker(*sides, recompare_s), schema_from(SCHEMA))


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
    starttime: int | None = None,
    endtime: int | None = None,
    versions: int = 1,
    **options: object,
) -> DataFrame:
    """Return digests of a table, one per ``block_rows`` rows: ``start``, ``stop``, ``rows``, ``digest``.

    They can be saved and compared later with a copy of the table, by ``verify_replication(hashes=...)`` with the same
    families, versions and times.
    """
    source = scan_options(
        table,
        url,
        options,
        Use.VERIFY,
        startrow=startrow,
        stoprow=stoprow,
        prefix=prefix,
        starttime=starttime,
        endtime=endtime,
        versions=versions,
        families=families,
    )
    if block_rows < 1:
        raise ConfigError(f"block_rows must be 1 or more, got {block_rows!r}")
    query = Query.of(source)
    return _hashed(spark, query, plan_splits(spark, query), block_rows)


def _sides(query: Query, peer_url: str | None, peer_table: Key | None, replica_id: int | None) -> tuple[_Side, _Side]:
    if replica_id is not None and (peer_url is not None or peer_table is not None):
        raise ConfigError("compare with a peer (peer_url, peer_table) or with a replica (replica_id), not both")
    if replica_id is not None and replica_id < 1:
        raise ConfigError(f"replica_id must be 1 or more: 0 is the primary, got {replica_id!r}")
    if replica_id is None and peer_url is None and peer_table is None:
        raise ConfigError("there is nothing to compare with: give peer_url, peer_table or replica_id")
    if replica_id is not None:
        return _Side(query), _Side(query, replica_id)
    name = keys.table_name(peer_table if peer_table is not None else query.table)
    options = replace(query.options, url=peer_url or query.options.url, table=name.decode())
    clients.check_reachable(options.connection_url)
    if name == query.table and options.client_key() == query.options.client_key():
        raise ConfigError("source and peer are the same table of the same cluster: every row would be equal")
    return _Side(query), _Side(Query.of(options))


def _check_peer(peer: _Side) -> None:
    """Raise now, on the driver, if the peer's table or the replica does not exist; otherwise every task would fail."""
    with clients.lease(peer.query.options) as connection:
        descriptor = connection.engine.describe(peer.query.table)
    if peer.replica_id is not None and peer.replica_id >= descriptor.region_replication:
        raise ConfigError(
            f"table '{keys.printable(descriptor.name)}' has {counted(descriptor.region_replication, 'copy', 'copies')} "
            f"of each region, so there is no replica {peer.replica_id}"
        )


def _verified(
    spark: SparkSession, source: Options, lines: DataFrame, tasks: int, progress: Progress | bool | None
) -> Verification:
    """Run the comparison once, and return its sums and its differing rows from the same persisted lines."""
    from pyspark import StorageLevel

    kept = lines.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        with watch(spark, f"verify_replication {source.table}", tasks, progress):
            sums = {line[0]: line[1] for line in kept.groupBy("verdict").sum("rows").collect()}
    except BaseException:
        kept.unpersist()
        raise
    good, *bad = (int(sums.get(verdict.name) or 0) for verdict in RowVerdict)
    differences = kept.where("row IS NOT NULL").select("verdict", "row")
    return Verification(good, bad[0], bad[1], bad[2], differences, kept)


# -- in a task -------------------------------------------------------------------------------------------------------


def _checker(source: _Side, peer: _Side, recompare_s: float | None) -> Callable[..., Iterator[pa.RecordBatch]]:
    def check(split: planning.TableSplit, planned: lookup_counts.Report | None) -> Iterator[pa.RecordBatch]:
        with connected(source.query.options, planned) as here, clients.lease(peer.query.options) as there:
            reading.learn_locations(here, source.query, split, attempt=attempt_number())
            for where in split.ranges:
                found = merged(source.scanned(here, where), peer.scanned(there, where))
                yield from _lines(_again(found, source, peer, here, there, recompare_s))

    return check


def _block_checker(source: _Side, peer: _Side, recompare_s: float | None) -> Callable[..., Iterator[pa.RecordBatch]]:
    """Return a function that compares the peer with digests, and reads both sides only where a digest differs."""

    def check(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with connected(source.query.options) as here, clients.lease(peer.query.options) as there:
            for batch in batches:
                for row in batch.to_pylist():
                    block = Block(row["start"], row["stop"], row["rows"], row["digest"])
                    where = KeyRange(block.start, block.stop)
                    if digest_of(peer.scanned(there, where)) == (block.rows, block.digest):
                        yield _batch([(RowVerdict.GOODROWS.name, None, block.rows)])
                        continue
                    found = merged(source.scanned(here, where), peer.scanned(there, where))
                    yield from _lines(_again(found, source, peer, here, there, recompare_s))

    return check


def _hashed(spark: SparkSession, query: Query, splits: list[planning.TableSplit], block_rows: int) -> DataFrame:
    side = _Side(query)

    def hash_(split: planning.TableSplit, planned: lookup_counts.Report | None) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        with connected(query.options, planned) as connection:
            reading.learn_locations(connection, query, split, attempt=attempt_number())
            for where in union(split.ranges):
                found = blocks(side.scanned(connection, where), where.start, where.stop, block_rows)
                while some := list(islice(found, 1000)):
                    columns = [pa.array(list(column)) for column in zip(*some, strict=True)]
                    yield pa.record_batch(columns, names=["start", "stop", "rows", "digest"])

    return run_on_splits(spark, BLOCK_SCHEMA, splits, hash_, query.options)


def _again(
    found: Iterable[Compared],
    source: _Side,
    peer: _Side,
    here: Connection,
    there: Connection,
    recompare_s: float | None,
) -> Iterator[Compared]:
    """Yield the verdicts, after comparing differing rows again; at most :data:`RECOMPARED_AT_ONCE` rows per pause."""
    if recompare_s is None:
        yield from found
        return
    late: list[bytes] = []
    for compared in found:
        if compared.verdict is RowVerdict.GOODROWS:
            yield compared
            continue
        late.append(compared.row)
        if len(late) == RECOMPARED_AT_ONCE:
            yield from _recompared(late, source, peer, here, there, recompare_s)
            late = []
    yield from _recompared(late, source, peer, here, there, recompare_s)


def _recompared(
    rows: list[bytes], source: _Side, peer: _Side, here: Connection, there: Connection, pause_s: float
) -> Iterator[Compared]:
    if not rows:
        return
    here.engine.runtime.sleep(pause_s)
    size = source.query.options.bulkget_size
    for first in range(0, len(rows), size):
        some = rows[first : first + size]
        for row, one, other in zip(some, source.got(here, some), peer.got(there, some), strict=True):
            # A row that has been deleted on both sides by now counts as equal.
            is_gone = not one.cells and not other.cells
            yield Compared(RowVerdict.GOODROWS if is_gone else judged(one, other), row)


def _lines(found: Iterable[Compared]) -> Iterator[pa.RecordBatch]:
    """Yield one line per differing row, and one line with the number of equal rows."""
    good: Counter[str] = Counter()
    lines: list[tuple[str, bytes | None, int]] = []
    for compared in found:
        if compared.verdict is RowVerdict.GOODROWS:
            good[compared.verdict.name] += 1
            continue
        lines.append((compared.verdict.name, compared.row, 1))
        if len(lines) == 10_000:
            yield _batch(lines)
            lines = []
    yield _batch([*lines, *((name, None, count) for name, count in good.items())])


def _batch(lines: Sequence[tuple[str, bytes | None, int]]) -> pa.RecordBatch:
    import pyarrow as pa

    return pa.record_batch(
        [
            pa.array([line[0] for line in lines], pa.string()),
            pa.array([line[1] for line in lines], pa.binary()),
            pa.array([line[2] for line in lines], pa.int64()),
        ],
        names=["verdict", "row", "rows"],
    )
