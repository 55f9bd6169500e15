"""Options: names in any case, values checked, slips refused with the nearest name, the rest given to the client."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import pytest

from metaclient.columns.layouts import Layout
from metaclient.errors import ConfigError
from metaclient.model import LATEST_TIMESTAMP, Durability
from spark_connector.schema.ranges import EVERYTHING, KeyRange, bytes_of, intersection, text_of, union
from spark_connector.settings.option_values import WriteTimestamp
from spark_connector.settings.options import _FIELDS, Options


def test_names_are_taken_in_any_case() -> None:
    given = {"URL": "fake:x", "HBase.Table": "ns:t", "hbase.spark.query.MAXVERSIONS": "3", "Newtable": "5"}
    options = Options.parse(given)
    assert (options.url, options.table, options.max_versions, options.new_table) == ("fake:x", "ns:t", 3, 5)


def test_defaults_are_those_of_the_table_of_options() -> None:
    options = Options.parse({})
    assert (options.bulkget_size, options.cache_blocks, options.pushdown_column_filter) == (1000, False, True)
    assert (options.locations, options.layout) == ("ship", Layout.COLUMNS)
    assert (options.partition_split_mb, options.partition_min_mb, options.partition_max) == (512, 64, 10_000)
    assert (options.write_batch_rows, options.write_batch_bytes, options.write_concurrency) == (1000, 2 << 20, 2)
    assert (options.write_rate_mb, options.write_nulls, options.write_operation) == (None, "skip", "put")
    assert options.write_timestamp.is_job
    assert (options.stream_lag_ms, options.starting_timestamp, options.gc_freeze) == (10_000, None, True)
    assert (options.region_start, options.region_end) == (b"aaaaaaa", b"zzzzzzz")


@pytest.mark.parametrize("name", sorted(_FIELDS))
def test_every_option_misspelt_by_one_letter_is_refused_with_its_name(name: str) -> None:
    known = str(_FIELDS[name].metadata["name"])
    slip = name[:-2] + name[-1] if len(name) > 4 else name + name[-1]
    with pytest.raises(ConfigError, match=rf"no such option; did you mean {re.escape(known)}\?"):
        Options.parse({slip: "1"})


def test_an_option_that_gave_wrong_rows_is_refused_with_what_to_use_instead() -> None:
    """Spark keeps the reader of the first query for all queries of a DataFrame: ``hbase.spark.pushdown.catalyst``."""
    with pytest.raises(ConfigError, match=r"pushdown\.catalyst = true: it was removed.*table\(where=\.\.\.\)"):
        Options.parse({"hbase.spark.pushdown.Catalyst": "true"})
    assert Options.parse({"hbase.spark.pushdown.catalyst": "false"}) == Options.parse({})  # what was the default


@pytest.mark.parametrize("name", ["hbase.spark.nonsense.at.all", "hbase.spark.x"])
def test_an_unknown_name_of_ours_is_refused_without_a_near_one_too(name: str) -> None:
    with pytest.raises(ConfigError, match="no such option"):
        Options.parse({name: "1"})


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("prefix", r"did you mean hbase\.spark\.query\.prefix\?"),
        ("limit", r"did you mean hbase\.spark\.query\.limit\?"),
        ("nonsense", r"docs/spark\.md"),
    ],
)
def test_a_name_that_nobody_reads_is_not_accepted_in_silence(name: str, advice: str) -> None:
    """``hbase.join(..., prefix="u")`` read the whole table."""
    with pytest.raises(ConfigError, match=f"option {name}: no such option; .*{advice}"):
        Options.parse({name: "u"})


def test_an_option_of_hbase_connectors_without_effect_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    Options.parse({"hbase.spark.use.hbasecontext": "false"})
    assert "hbase.spark.use.hbasecontext has no effect" in caplog.text


def test_other_names_of_hbase_go_to_the_client_with_their_capitals() -> None:
    given = {
        "hbase.zookeeper.property.clientport": "2182",
        "hbase.client.primarycalltimeout.get": "10000",
        "hbase.locator.meta.replicas.mode": "LoadBalance",
        "zookeeper.znode.parent": "/x",
        "checkpointlocation": "/tmp/c",
        "hbase.spark.use.hbasecontext": "true",
    }
    assert dict(Options.parse(given).properties) == {
        "hbase.zookeeper.property.clientPort": "2182",
        "hbase.client.primaryCallTimeout.get": "10000",
        "hbase.locator.meta.replicas.mode": "LoadBalance",
        "zookeeper.znode.parent": "/x",
    }


@pytest.mark.parametrize(
    ("given", "field", "expected"),
    [
        ({"hbase.spark.query.startrow": "a\\x00\\xff"}, "startrow", b"a\x00\xff"),
        ({"hbase.spark.query.ranges": "a,b; c,"}, "ranges", (KeyRange(b"a", b"b"), KeyRange(b"c", b""))),
        ({"hbase.spark.query.cachedrows": "-1"}, "cached_rows", None),
        ({"hbase.spark.query.columns": "a, b"}, "columns", ("a", "b")),
        ({"hbase.spark.write.timestamp": "JOB"}, "write_timestamp", WriteTimestamp()),
        ({"hbase.spark.write.timestamp": "17"}, "write_timestamp", WriteTimestamp(ms=17)),
        ({"hbase.spark.write.timestamp": "column:ts"}, "write_timestamp", WriteTimestamp(column="ts")),
        ({"hbase.spark.write.timestamp": "Server"}, "write_timestamp", WriteTimestamp(is_servers=True)),
        ({"hbase.spark.write.durability": "skip_wal"}, "write_durability", Durability.SKIP_WAL),
        ({"hbase.spark.write.splits": "b,a"}, "write_splits", (b"a", b"b")),
        ({"hbase.spark.write.rate.mb": "1.5"}, "write_rate_mb", 1.5),
        ({"startingTimestamp": "now"}, "starting_timestamp", None),
        ({"startingTimestamp": "5"}, "starting_timestamp", 5),
        ({"path": "ns:t"}, "table", "ns:t"),
    ],
)
def test_values_are_read(given: dict[str, str], field: str, expected: object) -> None:
    assert getattr(Options.parse(given), field) == expected


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"hbase.spark.query.limit": "-1"}, "limit = '-1': allowed is a whole number, 0 or more"),
        ({"hbase.spark.query.limit": "ten"}, "whole number"),
        ({"hbase.spark.query.cacheblocks": "yes"}, "true or false"),
        ({"hbase.spark.query.layout": "rows"}, "one of columns, map, cells, raw"),
        ({"hbase.spark.locations": "sent"}, "one of ship, lookup"),
        ({"hbase.spark.query.badvalue": "skip"}, "one of error, null"),
        ({"hbase.spark.query.encoder": "naiv"}, "did you mean naive?"),
        ({"hbase.spark.query.ranges": "a"}, "not START,STOP"),
        ({"hbase.spark.query.ranges": "b,a"}, "is empty"),
        ({"hbase.spark.query.startrow": "a\\q"}, "a backslash must begin \\xNN"),
        ({"hbase.spark.query.startrow": "b", "hbase.spark.query.stoprow": "a"}, "must be before"),
        ({"hbase.spark.query.prefix": "b", "hbase.spark.query.stoprow": "c"}, "exclude each other"),
        ({"hbase.spark.query.timerange.start": "5", "hbase.spark.query.timerange.end": "5"}, "must be after"),
        ({"hbase.spark.query.timestamp": "5", "hbase.spark.query.timerange.end": "6"}, "exclude each other"),
        ({"hbase.columns.mapping": "a INT :a"}, "needs hbase.table"),
        ({"catalog": "{}", "hbase.table": "t"}, "exclude each other"),
        ({"path": "t", "hbase.table": "u"}, "the path 't' names a table, and so does option hbase.table"),
        ({"hbase.spark.query.filter": "KeyOnlyFilter()", "hbase.spark.query.batchsize": "5"}, "exclude each other"),
        ({"url": "a:", "URL": "b:"}, "given twice"),
        ({"hbase.spark.query.stalecolumn": "s"}, "needs hbase.spark.query.readreplica=true"),
        ({"hbase.spark.query.maxstaleness": "5"}, "needs hbase.spark.query.readreplica=true"),
        ({"hbase.spark.write.timestamp": "yesterday"}, "job, server, milliseconds since 1970, or column:NAME"),
        ({"hbase.spark.write.durability": "DISK"}, "one of USE_DEFAULT"),
        ({"hbase.spark.write.nulls": "drop"}, "one of skip, delete, empty"),
        ({"hbase.spark.write.rate.mb": "0"}, "greater than 0"),
        ({"hbase.spark.partition.split.mb": "nan"}, "greater than 0"),
    ],
)
def test_wrong_values_say_what_is_allowed(given: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Options.parse(given)
    assert words in str(caught.value)


def test_a_read_that_names_no_table_says_how_to() -> None:
    with pytest.raises(ConfigError, match="option catalog"):
        Options.parse({"url": "fake:"}).catalog()
    with pytest.raises(ConfigError, match=r"only the layouts map, cells and raw"):
        Options.parse({"hbase.table": "t"}).catalog()
    assert Options.parse({"hbase.table": "t", "hbase.spark.query.layout": "cells"}).catalog().table == b"t"


def test_url_follows_from_zookeeper() -> None:
    given = {"hbase.zookeeper.quorum": "zk1,zk2:2190", "hbase.zookeeper.property.clientport": "2182"}
    assert Options.parse(given).connection_url == "hbase://zk1:2182,zk2:2190/hbase"
    with pytest.raises(ConfigError, match="option url is missing"):
        _ = Options.parse({}).connection_url


def test_key_ranges_and_time_range() -> None:
    assert Options.parse({}).key_ranges() == EVERYTHING
    both = {"hbase.spark.query.startrow": "b", "hbase.spark.query.ranges": "a,c;x,y"}
    assert Options.parse(both).key_ranges() == (KeyRange(b"b", b"c"), KeyRange(b"x", b"y"))
    assert Options.parse({"hbase.spark.query.prefix": "ab"}).key_ranges() == (KeyRange(b"ab", b"ac"),)
    assert Options.parse({}).time_range() == (0, LATEST_TIMESTAMP)
    assert Options.parse({"hbase.spark.query.timestamp": "7"}).time_range() == (7, 8)
    assert Options.parse({"hbase.spark.query.timerange.end": "9"}).time_range() == (0, 9)


def test_options_survive_a_pickle_and_key_their_client(tmp_path: Path) -> None:
    site = tmp_path / "hbase-site.xml"
    site.write_text(
        "<configuration><property><name>hbase.rpc.timeout</name><value>5000</value></property></configuration>"
    )
    base = {"url": "fake:x", "hbase.spark.config.location": str(site)}
    options = Options.parse(base)
    assert pickle.loads(pickle.dumps(options)) == options
    shipped = options.resolved()
    assert shipped.properties == (("hbase.rpc.timeout", "5000"),)
    assert shipped.config_location == ()
    assert options.client_key() == shipped.client_key()
    assert Options.parse({**base, "hbase.spark.query.limit": "5"}).client_key() == options.client_key()
    assert Options.parse({**base, "hbase.rpc.timeout": "6000"}).client_key() != options.client_key()


def test_keys_as_text_go_both_ways() -> None:
    for key in (b"", b"plain", b"a\\b", b"\xff\x00", "é".encode(), b"\xc3", b"a,b;c\n"):
        assert bytes_of(text_of(key)) == key


def test_ranges_unite_and_intersect() -> None:
    a, b = (
        [KeyRange(b"a", b"c"), KeyRange(b"e", b"")],
        [KeyRange(b"", b"b"), KeyRange(b"d", b"f"), KeyRange(b"g", b"h")],
    )
    assert intersection(a, b) == (KeyRange(b"a", b"b"), KeyRange(b"e", b"f"), KeyRange(b"g", b"h"))
    assert union([*a, *b]) == (KeyRange(b"", b"c"), KeyRange(b"d", b""))
    assert union([KeyRange(b"b", b"a")]) == ()


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("hbase.spark.query.limmit", "hbase.spark.query.limit"),
        ("hbase.spark.frobnicate", "no such option"),
        ("hbase.rpc.timeot", "hbase.rpc.timeout"),
        ("hbase.zookeeper.quorom", "hbase.zookeeper.quorum"),
        ("metaclient.rpc_timeout", "metaclient.rpc_timeout_s"),
    ],
)
def test_misspelt_property_is_refused_on_the_driver(name: str, nearest: str) -> None:
    with pytest.raises(ConfigError, match=nearest):
        Options.parse({"url": "thrift2://gateway", name: "1"})


@pytest.mark.filterwarnings("error")
def test_property_with_capitals_survives_sparks_lower_case() -> None:
    names = (
        "hbase.zookeeper.property.clientPort",
        "hbase.zookeeper.property.maxClientCnxns",
        "hbase.zookeeper.useMulti",
    )
    assert [name for name, _ in Options.parse({name.lower(): "7" for name in names}).properties] == sorted(names)
