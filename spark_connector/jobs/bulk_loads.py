"""Bulk load: the rows of a DataFrame become store files, one region per task, which the region servers take over.

The job has two stages. The first turns batches into sorted shares of regions, the second writes the files of each
region (:mod:`spark_connector.writing.store_files`). Then the driver hands all files over, by HBase's own RPC
(:mod:`metaclient.calls.bulk_load`): until then the table is unchanged, and a failed job leaves only files in the
staging folder, which are deleted. Files of a task that ran twice have different names; only those that Spark has
committed are handed over.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from metaclient import keys
from metaclient.calls.bulk_load import StoreFileToLoad
from metaclient.errors import ConfigError, MetaClientError, Unsupported
from metaclient.hfile import FileSettings, StoragePath
from metaclient.runtime import ThreadRuntime
from metaclient.wording import text_table
from spark_connector import clients, lookup_counts
from spark_connector.dataframe import given_options
from spark_connector.jobs.splits import schema_from
from spark_connector.settings.option_uses import Use, check_written
from spark_connector.settings.options import Options
from spark_connector.settings.progress import Progress, watch
from spark_connector.writing import destination
from spark_connector.writing.store_files import RegionFiles, ShareEncoder, WrittenFile

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from metaclient import Connection
    from spark_connector.schema.catalog import Catalog

__all__ = ["BulkLoadReport", "bulk_load", "partition_keys"]

_log = logging.getLogger(__name__)
#: Clock and random numbers only; it starts no thread.
_runtime = ThreadRuntime(name="spark-bulk-load")
#: Tasks of the second stage; with more regions a task writes several of them, one after the other.
TASKS_MAX = 2000
_SHARES = "partition int, region int, rows bigint, share binary"
_FILES = "family binary, path string, first_row binary, last_row binary, rows bigint, cells bigint, bytes bigint"
#: Spark's seed of hash partitions.
_HASH_SEED = 42


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class BulkLoadReport:
    """The numbers of rows, cells and bytes that were loaded, of files and regions; ``repr`` is a table.

    >>> numbers = {"rows": 4, "cells": 7, "bytes": 5230, "files": 2, "regions": 2, "split_files": 0, "retries": 0}
    >>> BulkLoadReport(table="t", timestamp=9, **numbers)
    table t, bulk load with timestamp 9
    rows  cells  bytes  files  regions  split_files  retries
       4      7   5230      2        2            0        0
    """

    table: str
    rows: int  # of the DataFrame; of cells in the layouts cells and raw
    cells: int
    bytes: int  # of the files
    files: int
    regions: int
    split_files: int  # files whose region had split since they were written
    retries: int
    timestamp: int

    def as_dict(self) -> dict[str, Any]:
        """Return everything as values that JSON can hold."""
        return asdict(self)

    def __repr__(self) -> str:
        names = ("rows", "cells", "bytes", "files", "regions", "split_files", "retries")
        head = f"table {self.table}, bulk load with timestamp {self.timestamp}"
        return "\n".join([head, *text_table(list(names), [[getattr(self, name) for name in names]])])


@dataclass(frozen=True, slots=True)
class _Job:
    """What the tasks need, pickled with their functions."""

    catalog: Catalog
    options: Options
    timestamp: int
    families: tuple[bytes, ...]
    starts: tuple[bytes, ...]
    settings: tuple[FileSettings, ...]
    folder: StoragePath


def bulk_load(
    df: DataFrame,
    catalog: str | Mapping[str, object] | None,
    *,
    url: str | None = None,
    staging: str,
    progress: Progress | bool | None = None,
    **options: object,
) -> BulkLoadReport:
    """Write a DataFrame to an HBase table as store files, past the memstores and logs of the region servers.

    ``catalog`` and most options are those of :func:`spark_connector.write`. ``url`` is of HBase's own RPC
    (``hbase://``). ``staging`` is a folder that Spark's executors write to and that region servers can read and write,
    such as ``hdfs://namenode:8020/tmp/staging``, on HBase's own file system if possible: files are then moved,
    otherwise copied. All cells have one timestamp, so that a repeated load writes the same cells again. Rows become
    visible per region, all families of it at once. Loaded cells are in no log: replication and change feeds do not see
    them.

        hbase.bulk_load(df, catalog, url="hbase://zk1:2181", staging="hdfs://namenode:8020/tmp/staging")
    """
    from spark_connector.writing.writer import check_write  # needs pyspark's data sources

    given = given_options(catalog, url, options)
    parsed = Options.parse(given).resolved()
    check_written(given, Use.BULK_LOAD)
    _check_settings(parsed)
    root = StoragePath.of(staging)
    clients.check_reachable(parsed.connection_url)
    found = parsed.catalog()
    check_write(df.schema, found, parsed)
    lookup_counts.collect(df.sparkSession)
    with clients.lease(parsed) as connection:
        _check_backend(connection)
        destination.prepare(connection, found.table, found.families(), parsed)
        job = _job_of(connection, found, parsed, root)
        with _staged(job.folder):
            return _loaded(connection, df, job, progress)


def _loaded(connection: Connection, df: DataFrame, job: _Job, progress: Progress | bool | None) -> BulkLoadReport:
    """Write the files, hand them over, and return the numbers of both."""
    table = job.catalog.table
    tasks = max(min(len(job.starts), TASKS_MAX), 1)
    with watch(df.sparkSession, f"bulk_load {keys.printable(table)}", tasks, progress):
        lines = _written(df, job, tasks).collect()
    files = [
        StoreFileToLoad(bytes(line.family), StoragePath.of(line.path), bytes(line.first_row), bytes(line.last_row))
        for line in lines
        if line.path
    ]
    loaded = connection.engine.bulk_load(table, files, {one.family: one for one in job.settings})
    return BulkLoadReport(
        table=keys.printable(table),
        rows=sum(line.rows for line in lines),
        cells=sum(line.cells for line in lines),
        bytes=sum(line.bytes for line in lines),
        files=loaded.files,
        regions=len(loaded.regions),
        split_files=loaded.split_files,
        retries=loaded.retries,
        timestamp=job.timestamp,
    )


def _check_backend(connection: Connection) -> None:
    if not connection.capabilities.bulk_load:
        raise Unsupported(
            "bulk_load needs HBase's own RPC: give an url such as hbase://zk1:2181, not one of the backend "
            f"{connection.engine.backend.name!r}"
        )


def _check_settings(options: Options) -> None:
    if options.write_operation == "increment":
        raise ConfigError("a bulk load cannot increment: files hold cells, not operations; use spark_connector.write")
    if options.write_timestamp.is_servers:
        raise ConfigError(
            "hbase.spark.write.timestamp=server is not for bulk_load: no server writes these cells; leave it out for "
            "the time of the job, or name a column"
        )
    own = [
        name for name in options.catalog().names if getattr(options.catalog().field(name), "ttl_ms", None) is not None
    ]
    if own:
        raise ConfigError(
            f"column {own[0]} has a ttl of its own, and a bulk load has one for all cells of a file: use "
            "hbase.spark.write.ttl, or spark_connector.write"
        )


def _job_of(connection: Connection, catalog: Catalog, options: Options, root: StoragePath) -> _Job:
    """Return the job: the regions as they are now, and the settings of the families."""
    now_ms = _runtime.time_ms()
    given = options.write_timestamp.ms
    name = f"metaclient-{keys.printable(catalog.table).replace(':', '_')}-{_runtime.rng.getrandbits(64):016x}"
    descriptor = connection.engine.describe(catalog.table)
    written = set(catalog.families()) or {family.name for family in descriptor.families}
    settings = [
        FileSettings.of_family(family, created_ms=now_ms, source=name, ttl_ms=options.write_ttl_ms)
        for family in descriptor.families
        if family.name in written or options.write_operation == "delete"
    ]
    regions = connection.engine.regions(catalog.table, complete=True)
    return _Job(
        catalog,
        options,
        now_ms if given is None else given,
        tuple(family.name for family in descriptor.families),
        tuple(sorted(one.region.start_key for one in regions)),
        tuple(settings),
        root.child(name),
    )


@contextmanager
def _staged(folder: StoragePath) -> Iterator[None]:
    """Delete the job's folder in the end; a failure to do so is logged."""
    try:
        yield
    finally:
        try:
            folder.delete()
        except (MetaClientError, OSError) as error:
            _log.warning("the staging folder %s was not deleted: %s", folder, error)


def _written(df: DataFrame, job: _Job, tasks: int) -> DataFrame:
    """Return a DataFrame with a line per file. Its tasks write the files."""
    shares = df.mapInArrow(_encoder(job, partition_keys(tasks)), schema_from(_SHARES))
    return shares.repartition(tasks, "partition").mapInArrow(_file_writer(job), schema_from(_FILES))


def _encoder(job: _Job, partitions: Sequence[int]) -> Any:
    def encode(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        encoder = ShareEncoder(job.catalog, job.options, job.timestamp, job.families, job.starts)
        tasks, regions = len(partitions), len(job.starts)
        for batch in batches:
            for region, rows, share in encoder.shares(batch):
                key = partitions[region * tasks // regions]
                yield pa.record_batch(
                    [
                        pa.array([key], pa.int32()),
                        pa.array([region], pa.int32()),
                        pa.array([rows], pa.int64()),
                        pa.array([share], pa.binary()),
                    ],
                    names=["partition", "region", "rows", "share"],
                )

    return encode


def _file_writer(job: _Job) -> Any:
    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        attempt = context.taskAttemptId() if context is not None else 0
        rows = 0
        with RegionFiles(job.settings, job.folder, str(attempt)) as regions:
            for batch in batches:
                rows += sum(batch.column(2).to_pylist())
                for region, share in zip(batch.column(1).to_pylist(), batch.column(3), strict=True):
                    regions.add(region, share.as_buffer())
            for files in regions.write():
                yield _lines(files, rows)
                rows = 0

    return write


def _lines(files: Sequence[WrittenFile], rows: int) -> pa.RecordBatch:
    """Return a line per file; the first one has the rows of the task."""
    import pyarrow as pa

    lines = [(one.family, str(one.path), one.first_row, one.last_row, one.cells, one.bytes) for one in files]
    lines = lines or [(b"", "", b"", b"", 0, 0)]
    family, path, first, last, cells, size = zip(*lines, strict=True)
    return pa.record_batch(
        [
            pa.array(family, pa.binary()),
            pa.array(path, pa.string()),
            pa.array(first, pa.binary()),
            pa.array(last, pa.binary()),
            pa.array([rows] + [0] * (len(lines) - 1), pa.int64()),
            pa.array(cells, pa.int64()),
            pa.array(size, pa.int64()),
        ],
        names=["family", "path", "first_row", "last_row", "rows", "cells", "bytes"],
    )


def partition_keys(count: int) -> list[int]:
    """Return one number per partition that Spark's hash partitioning puts there, so that each region has its own task.

    Spark sends an int to partition ``murmur3(int, 42) mod count``. Were that to change, a task would get several
    regions, or none, and write the same files.

    >>> partition_keys(3)
    [0, 1, 11]
    """
    found: dict[int, int] = {}
    number = 0
    while len(found) < count:
        found.setdefault(_spark_hash(number) % count, number)
        number += 1
    return [found[partition] for partition in range(count)]


def _spark_hash(number: int) -> int:
    """Return Spark's hash of an int (Murmur3_x86_32.hashInt), as a signed number.

    >>> _spark_hash(0), _spark_hash(1)  # SELECT hash(0), hash(1)
    (933211791, -559580957)
    """
    mask = 0xFFFFFFFF
    mixed = number * 0xCC9E2D51 & mask
    mixed = (mixed << 15 | mixed >> 17) & mask
    mixed = mixed * 0x1B873593 & mask
    made = _HASH_SEED ^ mixed
    made = (made << 13 | made >> 19) & mask
    made = (made * 5 + 0xE6546B64) & mask
    made ^= 4
    made ^= made >> 16
    made = made * 0x85EBCA6B & mask
    made ^= made >> 13
    made = made * 0xC2B2AE35 & mask
    made ^= made >> 16
    return made - (1 << 32) if made >> 31 else made
