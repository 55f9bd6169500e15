"""The options of a read, write or stream: names in any case, values checked, everything else refused or passed on.

The declaration of a field is the only place with an option's name, default and allowed values. Other ``hbase.*``,
``zookeeper.*`` and ``metaclient.*`` names are properties of the client. Options that Spark adds are ignored. Any other
name is refused, with the nearest known name. :mod:`spark_connector.settings.option_uses` has the options of each use.

>>> Options.parse({"URL": "fake:x", "hbase.table": "t", "HBASE.SPARK.QUERY.LIMIT": "5"}).limit
5
>>> Options.parse({"hbase.spark.query.limmit": "5"})
Traceback (most recent call last):
metaclient.errors.ConfigError: option hbase.spark.query.limmit: no such option; did you mean hbase.spark.query.limit?
"""

from __future__ import annotations

import dataclasses
import difflib
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from metaclient.columns.codecs import codec_named
from metaclient.columns.layouts import Layout
from metaclient.config import Config, property_names
from metaclient.config.cluster_url import url_of_properties
from metaclient.config.hbase_properties import hbase_names
from metaclient.config.url_secrets import MASK, is_secret_name, masked_url
from metaclient.errors import ConfigError
from metaclient.model import Durability, Scan
from spark_connector.schema.catalog import Catalog
from spark_connector.schema.ranges import EVERYTHING, KeyRange, intersection, union
from spark_connector.settings import option_values as kinds
from spark_connector.settings.option_values import Kind, WriteTimestamp
from spark_connector.settings.tokens import TokenParcel

__all__ = ["ClientKey", "Options", "field_named", "option_of"]

_log = logging.getLogger(__name__)

#: Reads with equal keys share one client of a worker.
ClientKey: TypeAlias = tuple[str, tuple[tuple[str, str], ...]]

_NAME = "name"
_KIND = "kind"
#: Options of Spark itself, which it passes to sources and sinks.
_SPARKS = frozenset({"path", "checkpointlocation", "queryname"})
_CLIENT_PREFIXES = ("hbase.", "zookeeper.", "metaclient.")
#: Options of hbase-connectors that are accepted and have no effect.
_WITHOUT_EFFECT = frozenset({"hbase.spark.use.hbasecontext"})
#: An option that was removed, and the only value of it that is still accepted: the old default.
_REMOVED = {"hbase.spark.pushdown.catalyst": "false"}
#: Why it was removed, and what to use instead.
_REMOVED_ADVICE = (
    "it was removed, because Spark applies the filter of the first query to later queries of the same DataFrame. "
    "Use spark_connector.table(where=...), or the option hbase.spark.query.where"
)
#: Above this similarity an unknown name counts as a misspelling. Measured with one- and two-letter errors in all names.
_LIKENESS = 0.85

_JOB = WriteTimestamp()


def _option(name: str, kind: Kind[Any], default: object = None) -> Any:
    return dataclasses.field(default=default, metadata={_NAME: name, _KIND: kind})


@dataclass(frozen=True, slots=True, repr=False)
class Options:
    """The options of one use, by field name; made by :meth:`parse`. Immutable, hashable, picklable."""

    # -- which table, where
    url: str | None = _option("url", kinds.text)
    catalog_text: str | None = _option("catalog", kinds.text)
    table: str | None = _option("hbase.table", kinds.text)
    columns_mapping: str | None = _option("hbase.columns.mapping", kinds.text)
    config_location: tuple[str, ...] = _option("hbase.spark.config.location", kinds.names, ())
    locations: str = _option("hbase.spark.locations", kinds.one_of("ship", "lookup"), "ship")

    lookups: str = _option("hbase.spark.lookups", kinds.one_of("on", "off"), "on")

    # -- what to read
    layout_name: str = _option("hbase.spark.query.layout", kinds.one_of(*(each.value for each in Layout)), "columns")
    encoder: str = _option("hbase.spark.query.encoder", kinds.text, "naive")
    columns: tuple[str, ...] = _option("hbase.spark.query.columns", kinds.names, ())  # (): all
    where: str | None = _option("hbase.spark.query.where", kinds.text)
    startrow: bytes = _option("hbase.spark.query.startrow", kinds.key, b"")
    stoprow: bytes = _option("hbase.spark.query.stoprow", kinds.key, b"")
    prefix: bytes = _option("hbase.spark.query.prefix", kinds.key, b"")
    ranges: tuple[KeyRange, ...] = _option("hbase.spark.query.ranges", kinds.key_ranges, ())
    limit: int | None = _option("hbase.spark.query.limit", kinds.whole(0))
    filter: str | None = _option("hbase.spark.query.filter", kinds.text)
    timestamp: int | None = _option("hbase.spark.query.timestamp", kinds.whole(0))
    timerange_start: int | None = _option("hbase.spark.query.timerange.start", kinds.whole(0))
    timerange_end: int | None = _option("hbase.spark.query.timerange.end", kinds.whole(1))
    max_versions: int = _option("hbase.spark.query.maxVersions", kinds.whole(1, 2**31 - 1), 1)
    bad_value: str = _option("hbase.spark.query.badvalue", kinds.one_of("error", "null"), "error")
    read_replica: bool = _option("hbase.spark.query.readreplica", kinds.flag, False)
    stale_column: str | None = _option("hbase.spark.query.stalecolumn", kinds.text)
    replica_column: str | None = _option("hbase.spark.query.replicacolumn", kinds.text)
    max_staleness_s: float | None = _option("hbase.spark.query.maxstaleness", kinds.decimal_number(0, off="off"))

    # -- how to read it
    cache_blocks: bool = _option("hbase.spark.query.cacheblocks", kinds.flag, False)
    cached_rows: int | None = _option("hbase.spark.query.cachedrows", kinds.whole(1, 2**31 - 1, off="-1"))
    batch_size: int | None = _option("hbase.spark.query.batchsize", kinds.whole(1, 2**31 - 1, off="-1"))
    bulkget_size: int = _option("hbase.spark.bulkget.size", kinds.whole(1, 100_000), 1000)
    pushdown_column_filter: bool = _option("hbase.spark.pushdown.columnfilter", kinds.flag, True)
    partition_split_mb: float | None = _option(
        "hbase.spark.partition.split.mb", kinds.decimal_number(0, off="off"), 512.0
    )
    partition_min_mb: float | None = _option("hbase.spark.partition.min.mb", kinds.decimal_number(0, off="off"), 64.0)
    partition_max: int = _option("hbase.spark.partition.max", kinds.whole(1, 1_000_000), 10_000)
    locality: str = _option("hbase.spark.locality", kinds.one_of("auto", "off"), "auto")
    gc_freeze: bool = _option("hbase.spark.worker.gcfreeze", kinds.flag, True)

    # -- writing
    new_table: int | None = _option("newtable", kinds.whole(1, 100_000, off="off"))  # regions of a table to be made
    region_start: bytes = _option("regionStart", kinds.key, b"aaaaaaa")
    region_end: bytes = _option("regionEnd", kinds.key, b"zzzzzzz")
    write_splits: tuple[bytes, ...] = _option("hbase.spark.write.splits", kinds.keys_list, ())
    write_batch_rows: int = _option("hbase.spark.write.batch.rows", kinds.whole(1, 1_000_000), 1000)
    write_batch_bytes: int = _option("hbase.spark.write.batch.bytes", kinds.whole(1, 2**30), 2 << 20)
    write_concurrency: int = _option("hbase.spark.write.concurrency", kinds.whole(1, 64), 2)
    write_rate_mb: float | None = _option("hbase.spark.write.rate.mb", kinds.decimal_number(0, off="off"))
    write_timestamp: WriteTimestamp = _option(  # noqa: RUF009  # it makes a field
        "hbase.spark.write.timestamp", kinds.write_timestamp, _JOB
    )
    write_ttl_ms: int | None = _option("hbase.spark.write.ttl", kinds.whole(1))
    write_durability: Durability = _option(  # noqa: RUF009  # it makes a field
        "hbase.spark.write.durability", kinds.durability, Durability.USE_DEFAULT
    )
    write_nulls: str = _option("hbase.spark.write.nulls", kinds.one_of("skip", "delete", "empty"), "skip")
    write_operation: str = _option("hbase.spark.write.operation", kinds.one_of("put", "delete", "increment"), "put")
    write_hidden: str = _option("hbase.spark.write.hidden", kinds.one_of("sample", "count", "off"), "sample")
    write_truncate: bool = _option("hbase.spark.write.truncate", kinds.flag, False)
    write_at_least_once: bool = _option("hbase.spark.write.atleastonce", kinds.flag, False)  # for increments

    # -- streaming
    max_rows_per_trigger: int | None = _option("maxRowsPerTrigger", kinds.whole(1, off="off"))
    starting_timestamp: int | None = _option("startingTimestamp", kinds.starting_timestamp)  # None: now
    stream_lag_ms: int = _option("hbase.spark.stream.lag.ms", kinds.whole(0), 10_000)
    stream_source: str = _option("hbase.spark.stream.source", kinds.one_of("timestamp", "wal"), "timestamp")

    # -- streaming from the log (wal)
    max_bytes_per_trigger: int | None = _option("maxBytesPerTrigger", kinds.whole(1, off="off"))
    stream_spool: str | None = _option("hbase.spark.stream.spool", kinds.text)  # None: the driver receives
    stream_receiver: str = _option("hbase.spark.stream.receiver", kinds.one_of("auto", "driver", "external"), "auto")
    stream_name: str | None = _option("hbase.spark.stream.name", kinds.text)  # of the subscription
    stream_host: str | None = _option("hbase.spark.stream.host", kinds.text)
    stream_port: int = _option("hbase.spark.stream.port", kinds.whole(0, 65_535), 0)
    stream_allow_insecure: bool = _option("hbase.spark.stream.allow.insecure", kinds.flag, False)
    stream_spool_mb: float = _option("hbase.spark.stream.spool.mb", kinds.decimal_number(0), 4096.0)

    #: Properties of the client, sorted by name.
    properties: tuple[tuple[str, str], ...] = ()

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Options:
        """Return the options of a mapping; raise ``ConfigError`` for a wrong name, value or combination."""
        values: dict[str, object] = {}
        properties: dict[str, str] = {}
        given = _lower_case(options)
        for name, value in given.items():
            field = _FIELDS.get(name)
            if field is not None:
                values[field.name] = field.metadata[_KIND].parse(field.metadata[_NAME], value)
            elif name in _WITHOUT_EFFECT:
                _log.warning("option %s has no effect here", name)
            elif name in _REMOVED:
                _refuse_if_removed(name, value)
            elif name not in _SPARKS:
                _refuse_if_ours(name)
                properties[_PROPERTY_CASE.get(name, name)] = value
        if "path" in given:  # load("ns:table")
            if "://" in given["path"]:
                raise ConfigError(f"the path names a table, got {masked_url(given['path'])!r}: write option url")
            if "table" in values or "catalog_text" in values:
                raise ConfigError(
                    f"the path {given['path']!r} names a table, and so does option "
                    f"{'hbase.table' if 'table' in values else 'catalog'}: give one"
                )
            values["table"] = given["path"].strip()
        Config.of(properties)  # raises on the driver for a property that is misspelt or has a wrong value
        made = cls(**values, properties=tuple(sorted(properties.items())))  # type: ignore[arg-type]  # read by kind
        made._check()
        return made

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the values, and with them the token that tasks need on a secure cluster."""
        return _unpickled, ([getattr(self, field.name) for field in dataclasses.fields(self)], TokenParcel(self))

    def __repr__(self) -> str:
        """The options that were set; without passwords, because plans, tasks and their errors are printed."""
        return f"Options({', '.join(self._shown())})"

    def _shown(self) -> Iterator[str]:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name == "properties":
                yield from (f"{name}={MASK if is_secret_name(name) else text!r}" for name, text in value)
            elif value != field.default:
                yield f"{field.name}={masked_url(value) if field.name == 'url' else value!r}"

    def _check(self) -> None:
        self._refuse_both("catalog_text", "table")
        self._refuse_both("prefix", "startrow")
        self._refuse_both("prefix", "stoprow")
        self._refuse_both("timestamp", "timerange_start")
        self._refuse_both("timestamp", "timerange_end")
        self._refuse_both("new_table", "write_splits")
        self._refuse_both("filter", "batch_size")  # HBase refuses filters of whole rows together with pieces of rows
        if self.startrow and self.stoprow and KeyRange(self.startrow, self.stoprow).is_empty:
            raise ConfigError("option hbase.spark.query.startrow must be before hbase.spark.query.stoprow (exclusive)")
        if self.timerange_end is not None and self.timerange_end <= (self.timerange_start or 0):
            raise ConfigError("option hbase.spark.query.timerange.end (exclusive) must be after timerange.start")
        if self.columns_mapping and not self.table:
            raise ConfigError("option hbase.columns.mapping needs hbase.table, which is missing")
        if not self.read_replica:
            for name in ("stale_column", "replica_column", "max_staleness_s"):
                if getattr(self, name) is not None:
                    raise ConfigError(f"option {option_of(name)} needs hbase.spark.query.readreplica=true")
        if self.stale_column is not None and self.stale_column == self.replica_column:
            raise ConfigError("options hbase.spark.query.stalecolumn and .replicacolumn must differ")
        codec_named(self.encoder)

    def _refuse_both(self, first: str, second: str) -> None:
        if getattr(self, first) and getattr(self, second):
            raise ConfigError(f"options {option_of(first)} and {option_of(second)} exclude each other: give one")

    # -- derived values

    @property
    def layout(self) -> Layout:
        return Layout(self.layout_name)

    @property
    def counts_lookups(self) -> bool:
        """True if tasks report their reads of hbase:meta to the driver."""
        return self.lookups == "on"

    @property
    def bad_values_are_null(self) -> bool:
        return self.bad_value == "null"

    def catalog(self) -> Catalog:
        """Return the catalog of the options; raise ConfigError if there is none."""
        if self.catalog_text is not None:
            return Catalog.parse(self.catalog_text, default_coder=self.encoder)
        if self.table is None:
            raise ConfigError("option catalog (JSON) is missing; or give hbase.table, with hbase.columns.mapping")
        if self.columns_mapping is not None:
            return Catalog.from_mapping(self.table, self.columns_mapping, default_coder=self.encoder)
        if self.layout is Layout.COLUMNS:
            raise ConfigError(
                "option hbase.columns.mapping (or a catalog) is missing: without it only the layouts map, cells and "
                "raw can be read (hbase.spark.query.layout); or give a schema: .schema('id string, `d:name` string')"
            )
        return Catalog.of_table(self.table)

    def key_ranges(self) -> tuple[KeyRange, ...]:
        """Return the ranges that startrow, stoprow, prefix and ranges allow."""
        found: tuple[KeyRange, ...] = EVERYTHING
        if self.startrow or self.stoprow:
            found = (KeyRange(self.startrow, self.stoprow),)
        if self.prefix:
            found = (KeyRange.of_prefix(self.prefix),)
        return intersection(found, union(self.ranges)) if self.ranges else found

    def time_range(self) -> tuple[int, int]:
        """Return the time range [from, to) of a Scan or Get, in milliseconds."""
        if self.timestamp is not None:
            return self.timestamp, self.timestamp + 1
        return self.timerange_start or 0, Scan().max_timestamp if self.timerange_end is None else self.timerange_end

    @property
    def connection_url(self) -> str:
        """``url``, or the url of the cluster that HBase's properties name."""
        found = self.url or url_of_properties(dict(self.properties))
        if found is None:
            raise ConfigError(
                "option url is missing: give one such as thrift2://gateway:9090 or hbase://zk1,zk2:2181, or "
                "hbase.zookeeper.quorum"
            )
        return found

    def client_key(self) -> ClientKey:
        """Return a key that is equal for options that one client can serve."""
        return self.connection_url, self.resolved().properties

    def resolved(self) -> Options:
        """Return the options with the properties of the site files; call it on the driver, which has the files."""
        if not self.config_location:
            return self
        properties: dict[str, str] = {}
        for location in self.config_location:
            properties.update(Config.of(location).properties)
        properties.update(self.properties)
        return dataclasses.replace(self, config_location=(), properties=tuple(sorted(properties.items())))


def _unpickled(values: list[Any], parcel: None) -> Options:
    return Options(*values)


_FIELDS = {field.metadata[_NAME].lower(): field for field in dataclasses.fields(Options) if _NAME in field.metadata}
_PROPERTY_CASE = {name.lower(): name for name in (*property_names(), *hbase_names())}
_NAMES = tuple(field.metadata[_NAME] for field in _FIELDS.values())


def option_of(field: str) -> str:
    """Return the name of the option that a field of :class:`Options` holds."""
    return next(str(each.metadata[_NAME]) for each in _FIELDS.values() if each.name == field)


def field_named(option: str) -> str | None:
    """Return the field of an option, whose name may be in any case; None for other names."""
    found = _FIELDS.get(option.lower())
    return None if found is None else found.name


def _lower_case(options: Mapping[str, str]) -> dict[str, str]:
    given: dict[str, str] = {}
    for name, value in options.items():
        if value is not None:
            if str(name).lower() in given:
                raise ConfigError(f"option {name} is given twice: option names ignore case")
            given[str(name).lower()] = str(value)
    return given


def _refuse_if_removed(name: str, value: str) -> None:
    if value.strip().lower() != _REMOVED[name]:
        raise ConfigError(f"option {name} = {value}: {_REMOVED_ADVICE}")


def _refuse_if_ours(name: str) -> None:
    """Raise ConfigError for a misspelt option; return for a name that may be a property of the client."""
    if name in _PROPERTY_CASE:
        return
    by_lower = {known.lower(): known for known in _NAMES}
    is_clients = name.startswith(_CLIENT_PREFIXES) and not name.startswith("hbase.spark.")
    near = [known for known in by_lower if known.endswith(f".{name}")]
    near += difflib.get_close_matches(name, by_lower, 1, _LIKENESS if is_clients else 0.6)
    if near or not is_clients:
        advice = f"did you mean {by_lower[near[0]]}?" if near else "see the table of options in docs/spark.md"
        raise ConfigError(f"option {name}: no such option; {advice}")
