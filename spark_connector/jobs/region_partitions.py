"""Repartitions a DataFrame by the regions of an HBase table: each partition has the rows of one region server.

``repartitionByRange`` samples the DataFrame and cuts it into ranges that do not follow regions: a task writes to
several servers, in small batches. Here the driver reads the regions once, and gives each server some partitions with a
part of its regions each. A task computes the row key of each row, its region and the number of its partition, and
Spark shuffles by that number.

Spark sends a row to the partition ``pmod(murmur3(column), n)``. So that this is the number that was computed, the
column does not have the number, but an integer whose hash leads there (:func:`codes_of`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from metaclient.errors import ConfigError
from metaclient.model import RegionLocations
from metaclient.wording import counted
from spark_connector import clients, lookup_counts
from spark_connector.dataframe import given_options
from spark_connector.planning.table_facts import regions_of
from spark_connector.reading.batch_shape import arrow_schema
from spark_connector.schema.catalog import Catalog, KeyPart
from spark_connector.schema.types import to_spark
from spark_connector.settings.option_uses import Use, check_use
from spark_connector.settings.options import Options
from spark_connector.writing.mutations import row_keys_of

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

__all__ = ["by_regions", "codes_of", "key_columns", "numbers_of", "repartition"]

#: The column of the shuffle.
CODE = "__hbase_partition"
#: The most partitions; as many as splits of a read.
PARTITIONS_MAX = 10_000
#: The seed of Spark's hash partitioning.
_SEED = 42


@dataclass(frozen=True, slots=True)
class _Repartition:
    """The arguments of a task, pickled with its function."""

    catalog: Catalog
    names: tuple[str, ...]  # columns of the DataFrame, one for each part of the row key
    starts: tuple[bytes, ...]  # the start keys of all regions
    codes: tuple[int, ...]  # of the partition of each region
    schema: StructType  # with CODE


def repartition(
    df: DataFrame,
    catalog: str | Mapping[str, object],
    *,
    url: str | None = None,
    on: str | Sequence[str] | Mapping[str, str] | None = None,
    partitions: int | None = None,
    **options: object,
) -> DataFrame:
    """Return the rows of ``df`` in partitions that follow the regions of an HBase table, for a write or a join.

    All rows of a partition are in regions of one server, as far as regions do not move. ``on`` names the columns of
    ``df`` that form the row key, as for :func:`spark_connector.join`; by default the catalog's names. ``partitions``
    is about their number: each server gets at least one, by default ``spark.sql.shuffle.partitions`` in sum, and not
    more than it has regions.

        hbase.write(hbase.repartition(df, catalog, url=url), catalog, url=url)
    """
    given = given_options(catalog, url, options)
    parsed = Options.parse(given).resolved()
    check_use(given, Use.REPARTITION)
    clients.check_reachable(parsed.connection_url)
    known = parsed.catalog()
    names = key_columns(df.schema, known, [part.name for part in known.key] if on is None else on)
    return by_regions(df, parsed, names, partitions)


def by_regions(df: DataFrame, options: Options, names: tuple[str, ...], partitions: int | None = None) -> DataFrame:
    """Return the DataFrame of :func:`repartition`; ``names`` are the columns that form the row key."""
    if CODE in df.columns:
        raise ConfigError(f"the DataFrame has a column {CODE!r}, which repartition adds: rename it")
    spark, known = df.sparkSession, options.catalog()
    wanted = int(str(spark.conf.get("spark.sql.shuffle.partitions"))) if partitions is None else partitions
    if not 1 <= wanted <= PARTITIONS_MAX:
        raise ConfigError(f"partitions must be 1 to {PARTITIONS_MAX}, got {wanted}")
    lookup_counts.collect(spark, options.counts_lookups)
    with clients.lease(options) as connection:
        regions = regions_of(connection, known.table)
    numbers = numbers_of(regions, wanted)
    codes = codes_of(max(numbers) + 1)
    task = _Repartition(
        known,
        names,
        tuple(entry.region.start_key for entry in regions),
        tuple(codes[number] for number in numbers),
        _with_code(df.schema),
    )
    coded = df.mapInArrow(lambda batches: _coded(task, batches), task.schema)
    return coded.repartition(len(codes), CODE).drop(CODE)


def key_columns(schema: StructType, catalog: Catalog, on: str | Sequence[str] | Mapping[str, str]) -> tuple[str, ...]:
    """Return the columns of the DataFrame that form the row key, in the key's order."""
    parts = catalog.key
    if isinstance(on, Mapping):
        by_part = {part: column for column, part in on.items()}
        missing = [part.name for part in parts if part.name not in by_part]
        if missing or len(by_part) != len(parts):
            raise ConfigError(f"on must name each part of the row key once: {', '.join(part.name for part in parts)}")
        names = [by_part[part.name] for part in parts]
    else:
        names = [on] if isinstance(on, str) else list(on)
        if len(names) != len(parts):
            key = f"{counted(len(parts), 'part')} ({', '.join(part.name for part in parts)})"
            raise ConfigError(
                f"the row key has {key} and 'on' names {counted(len(names), 'column')}: name a column for each part"
            )
    for name, part in zip(names, parts, strict=True):
        _check_key(schema, name, part)
    return tuple(names)


def _check_key(schema: StructType, name: str, part: KeyPart) -> None:
    if name not in schema.fieldNames():
        raise ConfigError(f"the DataFrame has no column {name!r}; it has {', '.join(schema.fieldNames())}")
    has, needs = schema[name].dataType, to_spark(part.type)
    if has != needs:
        raise ConfigError(
            f"column {name!r} is {has.simpleString()} and part {part.name!r} of the row key is {needs.simpleString()}: "
            "cast it first"
        )


def _with_code(schema: StructType) -> StructType:
    from pyspark.sql.types import IntegerType, StructField

    return type(schema)([*schema.fields, StructField(CODE, IntegerType(), False)])


def numbers_of(regions: Sequence[RegionLocations], wanted: int) -> list[int]:
    """Return the number of the partition of each region: neighbours of one server share a partition.

    There are about ``wanted`` partitions: each server gets a share by its number of regions, and at least one.
    """
    by_server: dict[object, list[int]] = {}
    for index, entry in enumerate(regions):
        primary = entry.primary
        by_server.setdefault(None if primary is None else primary.server, []).append(index)
    numbers = [0] * len(regions)
    first = 0
    for indexes in by_server.values():
        share = min(len(indexes), max(1, round(wanted * len(indexes) / len(regions))))
        for at, index in enumerate(indexes):
            numbers[index] = first + at * share // len(indexes)
        first += share
    return numbers


def codes_of(count: int) -> list[int]:
    """Return an integer for each of ``count`` partitions that Spark's hash partitioning sends to that partition."""
    import numpy as np

    found: list[int | None] = [None] * count
    begin, left = 0, count
    while left:
        tried = np.arange(begin, begin + 4 * count, dtype=np.int32)
        targets = _murmur3(tried).astype(np.int64) % count  # Python's sign of the remainder, as pmod
        partitions, firsts = np.unique(targets, return_index=True)
        for partition, at in zip(partitions.tolist(), firsts.tolist(), strict=True):
            if found[partition] is None:
                found[partition] = int(tried[at])
                left -= 1
        begin += 4 * count
    return [code for code in found if code is not None]


def _murmur3(values: np.ndarray) -> np.ndarray:
    """Return Spark's hash of integers: MurmurHash3 x86 32 of four bytes."""
    import numpy as np

    def rotated(x: np.ndarray, bits: int) -> np.ndarray:
        return (x << np.uint32(bits)) | (x >> np.uint32(32 - bits))

    k = rotated(values.view(np.uint32) * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)
    h = rotated(np.uint32(_SEED) ^ k, 13) * np.uint32(5) + np.uint32(0xE6546B64)
    h ^= np.uint32(4)  # the number of bytes
    h = (h ^ (h >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    h = (h ^ (h >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return (h ^ (h >> np.uint32(16))).view(np.int32)


def _coded(task: _Repartition, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the batches with the code of each row's partition; a row without a valid key has that of the first."""
    import pyarrow as pa

    for batch in batches:
        columns = [batch.column(batch.schema.get_field_index(name)) for name in task.names]
        codes = [
            task.codes[0 if row is None else bisect_right(task.starts, row) - 1]
            for row in row_keys_of(columns, task.catalog)
        ]
        yield pa.RecordBatch.from_arrays(
            [*batch.columns, pa.array(codes, pa.int32())], schema=arrow_schema(task.schema)
        )
