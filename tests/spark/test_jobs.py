"""HBase's tools as Spark jobs, on Spark's standalone cluster, against a fake HBase over TCP."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import pytest

import spark_connector as hbase_spark
from metaclient import ConfigError, Connection, NoSuchFamily, TableNotFound
from metaclient.errors import MetaClientError
from metaclient_fake import FakeCluster
from spark_connector.jobs import UnexpectedCount, hash_table
from spark_connector.jobs.row_counter import counts
from spark_connector.jobs.splits import plan_splits, scan_options
from spark_connector.planning.query import Query
from spark_connector.settings.option_uses import Use

SPLITS = [b"r2", b"r4", b"r6", b"r8"]


def filled(
    connection: Connection,
    table: str = "t",
    rows: Iterable[int] = range(1000),
    families: Mapping[str, Mapping[str, Any]] | None = None,
    **kind: Any,
) -> None:
    connection.create_table(table, families or {"cf": {"max_versions": 5}}, splits=SPLITS, **kind)
    column = next(iter(families or {"cf": None}))
    with connection.table(table).batch(batch_size=500) as batch:
        for number in rows:
            batch.put(b"r%03d" % number, {f"{column}:v": b"%d" % number, f"{column}:w": b"w"})


def content(connection: Connection, table: str) -> list[tuple[bytes, Any]]:
    return [(key, dict(row)) for key, row in connection.table(table).scan(include_timestamp=True)]


class TestRowCount:
    def test_counts_rows_and_shows_progress(self, spark: Any, hbase: Any) -> None:
        with hbase.connect() as connection:
            filled(connection)
        seen: list[tuple[int, int]] = []
        rows = hbase_spark.row_count(spark, "t", url=hbase.url, progress=lambda done, total: seen.append((done, total)))
        assert rows == 1000
        assert seen[-1] == (5, 5)
        assert [done for done, _ in seen] == sorted({done for done, _ in seen})

    def test_one_row_a_region_crosses_to_spark(self, spark: Any, hbase: Any) -> None:
        with hbase.connect() as connection:
            filled(connection)
        query = Query.of(scan_options("t", hbase.url, {}, Use.ROW_COUNT))
        found = counts(spark, query, plan_splits(spark, query)).collect()
        assert sorted((bytes(line.start), bytes(line.stop), line.rows) for line in found) == [
            (b"", b"r2", 200),
            (b"r2", b"r4", 200),
            (b"r4", b"r6", 200),
            (b"r6", b"r8", 200),
            (b"r8", b"", 200),
        ]

    def test_ranges_times_and_columns(self, spark: Any, hbase: Any) -> None:
        with hbase.connect() as connection:
            filled(connection, rows=range(100))
            connection.table("t").put(b"r900", {b"cf:only": b"1"}, timestamp=50)
            connection.table("t").put(b"r901", {b"cf:only": b"1"}, timestamp=60)
        count = partial(hbase_spark.row_count, spark, "t", url=hbase.url)
        assert count(startrow="r010", stoprow=b"r020") == 10
        assert count(prefix="r90") == 2
        assert count(starttime=50, endtime=60) == 1
        assert count(hbase_spark_query_columns="cf:only") == 2
        assert count(startrow="x") == 0

    def test_another_number_than_expected_is_an_error(self, spark: Any, hbase: Any) -> None:
        with hbase.connect() as connection:
            filled(connection, rows=range(10))
        assert hbase_spark.row_count(spark, "t", url=hbase.url, expected=10) == 10
        with pytest.raises(UnexpectedCount, match="has 10 rows, not the expected 11") as raised:
            hbase_spark.row_count(spark, "t", url=hbase.url, expected=11)
        assert raised.value.rows == 10

    def test_a_missing_table(self, spark: Any, hbase: Any) -> None:
        with pytest.raises(TableNotFound, match="nosuch"):
            hbase_spark.row_count(spark, "nosuch", url=hbase.url)

    def test_a_wrong_option_names_the_nearest(self, spark: Any, hbase: Any) -> None:
        with pytest.raises(ConfigError, match=r"did you mean hbase\.spark\.query\.prefix"):
            hbase_spark.row_count(spark, "t", url=hbase.url, **{"hbase.spark.query.prefux": "x"})

    def test_a_cluster_of_this_process_is_refused(self, spark: Any) -> None:
        with pytest.raises(ConfigError, match="serve it over TCP"):
            hbase_spark.row_count(spark, "t", url="fake:x")

    def test_regions_that_moved_since_the_planning_are_found(self, spark: Any, hbase: Any) -> None:
        with hbase.connect() as connection:
            filled(connection)
            query = Query.of(scan_options("t", hbase.url, {}, Use.ROW_COUNT))
            splits = plan_splits(spark, query)
            planned = counts(spark, query, splits)
            for entry in connection.regions("t"):
                here = entry.primary.server.host
                hbase.cluster.move(entry.region.encoded_name, next(s for s in hbase.cluster.servers() if s != here))
            hbase.cluster.split(connection.regions("t")[0].region.encoded_name, b"r1")
        assert sum(line.rows for line in planned.collect()) == 1000


class TestCopyTable:
    def test_cells_keep_their_timestamps(self, spark: Any, hbase: Any) -> None:
        with hbase.connect() as connection:
            filled(connection)
            connection.create_table("u", {"cf": {"max_versions": 5}})
            done = hbase_spark.copy_table(spark, "t", url=hbase.url, to_table="u")
            assert (done.rows, done.cells, done.tasks) == (1000, 2000, 5)
            assert content(connection, "u") == content(connection, "t")

    def test_a_missing_target_is_refused_before_any_task_runs(self, spark: Any, serve: Callable[..., Any]) -> None:
        here, there = serve(), serve(servers=1, meta_replicas=1)
        with here.connect() as one, there.connect() as other:
            filled(one, rows=range(3))
            seen: list[tuple[int, int]] = []
            copy = partial(
                hbase_spark.copy_table,
                spark,
                "t",
                url=here.url,
                to_url=there.url,
                progress=lambda done, total: seen.append((done, total)),
            )
            with pytest.raises(TableNotFound, match="give create=True"):
                copy()
            assert (seen, other.tables()) == ([], [])
            done = copy(create=True)
            assert (done.is_created, done.as_dict()["rows"], len(other.regions("t"))) == (True, 3, 5)
            assert "copied to t, which was created" in repr(done)
            assert not copy(create=True).is_created

    def test_to_another_cluster_with_renamed_families(self, spark: Any, serve: Callable[..., Any]) -> None:
        here, there = serve(), serve(servers=2)
        with here.connect() as one, there.connect() as other:
            filled(one, families={"a": {"max_versions": 3}, "x": {}})
            hbase_spark.copy_table(spark, "t", url=here.url, to_url=there.url, families="a:b", create=True)
            assert list(other.table("t").families()) == [b"b"]
            assert other.table("t").families()[b"b"]["max_versions"] == 3
            assert len(other.regions("t")) == 5
            assert [(key, row) for key, row in content(other, "t")] == [
                (key, {column.replace(b"a:", b"b:"): cell for column, cell in row.items()})
                for key, row in content(one, "t")
            ]

    def test_all_cells_has_versions_and_delete_markers(self, spark: Any, hbase: Any) -> None:
        with hbase.connect() as connection:
            connection.create_table("t", {"cf": {"max_versions": 5}})
            table = connection.table("t")
            for stamp in (10, 20, 30):
                table.put(b"r", {b"cf:a": b"%d" % stamp, b"cf:b": b"b"}, timestamp=stamp)
            table.delete(b"r", [b"cf:a"], timestamp=20)
            table.delete(b"s", [b"cf"], timestamp=5)
            connection.create_table("u", {"cf": {"max_versions": 5}})
            connection.create_table("newest", {"cf": {"max_versions": 5}})
            hbase_spark.copy_table(spark, "t", url=hbase.url, to_table="u", all_cells=True)
            hbase_spark.copy_table(spark, "t", url=hbase.url, to_table="newest")
            raw = partial(raw_cells, connection)
            assert sum(len(cells) for _, cells in raw("t")) >= 7
            assert raw("u") == raw("t")
            assert connection.table("newest").cells(b"r", b"cf:a", include_timestamp=True) == [(b"30", 30)]
            # What was deleted stays deleted: an older version that comes later is hidden in the copy, too.
            connection.table("u").put(b"r", {b"cf:a": b"late"}, timestamp=15)
            assert b"late" not in connection.table("u").cells(b"r", b"cf:a")

    def test_times_and_ranges(self, spark: Any, hbase: Any) -> None:
        with hbase.connect() as connection:
            connection.create_table("t", {"cf": {"max_versions": 5}}, splits=SPLITS)
            for number in range(10):
                connection.table("t").put(b"r%d" % number, {b"cf:a": b"1"}, timestamp=100 + number)
            connection.create_table("u", {"cf": {}})
            hbase_spark.copy_table(spark, "t", url=hbase.url, to_table="u", starttime=103, endtime=107, startrow=b"r4")
            assert [key for key, _ in connection.table("u").scan()] == [b"r4", b"r5", b"r6"]

    def test_run_twice_is_run_once(self, spark: Any, hbase: Any) -> None:
        with hbase.connect() as connection:
            filled(connection, rows=range(50))
            connection.create_table("u", {"cf": {"max_versions": 5}})
            for _ in range(2):
                hbase_spark.copy_table(spark, "t", url=hbase.url, to_table="u")
            assert raw_cells(connection, "u") == raw_cells(connection, "t")

    def test_what_would_do_harm_or_cannot_work_is_refused(self, spark: Any, hbase: Any) -> None:
        with hbase.connect() as connection:
            filled(connection, rows=range(3))
            connection.create_table("other", {"x": {}})
        copy = partial(hbase_spark.copy_table, spark, "t", url=hbase.url)
        with pytest.raises(ConfigError, match="onto itself"):
            copy()
        with pytest.raises(ConfigError, match="has no family 'y'; it has cf"):
            copy(to_table="other", families="y:x")
        with pytest.raises(NoSuchFamily, match=r"no family 'cf'.*it has x"):
            copy(to_table="other")
        with pytest.raises(TableNotFound, match="nosuch"):
            copy(to_table="nosuch")
        with pytest.raises(ConfigError, match="two of them have the same new name"):
            copy(to_table="other", families="a:x,b:x")


def raw_cells(connection: Connection, table: str) -> list[tuple[bytes, Any]]:
    from metaclient.model import Consistency, Scan
    from metaclient.scanner import TableScanner

    scan = Scan(max_versions=2**31 - 1, is_raw=True)
    found = TableScanner(connection.engine.operations, table.encode(), scan, Consistency.STRONG, None)
    return [(result.row, tuple(result.cells)) for result, _ in found if result.cells]


class TestVerifyReplication:
    @pytest.fixture
    def copies(self, spark: Any, hbase: Any) -> Any:
        """Table t, and u that lacks r100, has r999x too, and another value in r500."""
        with hbase.connect() as connection:
            filled(connection)
            connection.create_table("u", {"cf": {"max_versions": 5}}, splits=[b"r5"])
            hbase_spark.copy_table(spark, "t", url=hbase.url, to_table="u")
            connection.table("u").delete(b"r100")
            connection.table("u").put(b"r500", {b"cf:v": b"other"})
            connection.table("u").put(b"r999x", {b"cf:v": b"more"})
            yield connection

    WRONG = frozenset({("ONLY_IN_SOURCE", b"r100"), ("CONTENT_DIFFERENT", b"r500"), ("ONLY_IN_PEER", b"r999x")})

    @pytest.mark.parametrize("blocks", [None, 7, 100_000], ids=["rows", "small blocks", "large blocks"])
    def test_counts_and_differing_rows(self, spark: Any, hbase: Any, copies: Any, blocks: int | None) -> None:
        report = hbase_spark.verify_replication(spark, "t", url=hbase.url, peer_table="u", block_rows=blocks)
        assert report.counters == {
            "GOODROWS": 998,
            "BADROWS": 3,
            "ONLY_IN_SOURCE_TABLE_ROWS": 1,
            "ONLY_IN_PEER_TABLE_ROWS": 1,
            "CONTENT_DIFFERENT_ROWS": 1,
        }
        assert not report.is_equal
        assert {(line.verdict, bytes(line.row)) for line in report.differences.collect()} == self.WRONG
        report.close()

    def test_digests_made_before_are_compared_with_a_peer(self, spark: Any, hbase: Any, copies: Any) -> None:
        kept = hash_table(spark, "t", url=hbase.url, block_rows=50).persist()
        assert sum(line.rows for line in kept.collect()) == 1000
        report = hbase_spark.verify_replication(
            spark, "t", url=hbase.url, peer_table="u", hashes=kept, recompare_s=0.01
        )
        assert {(line.verdict, bytes(line.row)) for line in report.differences.collect()} == self.WRONG
        assert report.good == 998
        kept.unpersist()
        report.close()

    def test_between_two_clusters(self, spark: Any, serve: Callable[..., Any]) -> None:
        here, there = serve(), serve()
        with here.connect() as one, there.connect() as other:
            filled(one, rows=range(100))
            hbase_spark.copy_table(spark, "t", url=here.url, to_url=there.url, create=True)
            assert hbase_spark.verify_replication(spark, "t", url=here.url, peer_url=there.url).is_equal
            other.table("t").delete(b"r050")
            report = hbase_spark.verify_replication(spark, "t", url=here.url, peer_url=there.url)
            assert (report.good, report.only_in_source, report.bad) == (99, 1, 1)

    @pytest.mark.essential
    def test_a_peer_that_replicates_is_equal_and_a_planted_difference_is_found(self, spark: Any) -> None:
        """Two clusters on one network, over HBase's RPC, with regions at different keys; a family is not replicated."""
        families = {"cf": {"replication_scope": 1}, "local": {}}
        with (
            FakeCluster(servers=2, meta_replicas=3, name="east") as east,
            FakeCluster(servers=2, meta_replicas=3, network=east.network, name="west") as west,
            east.connect() as one,
            west.connect() as other,
        ):
            urls = [f"hbase+rpc://127.0.0.1:{each.serve(rpc_port=0).rpc_port}" for each in (east, west)]
            one.create_table("t", families, splits=SPLITS)
            other.create_table("t", families, splits=[b"r1", b"r55"])
            east.replication.add("1", west.cluster_key)
            with one.table("t").batch() as batch:
                for number in range(300):
                    batch.put(b"r%03d" % number, {b"cf:v": b"%d" % number, b"local:v": b"x"})
            verify = partial(hbase_spark.verify_replication, spark, "t", url=urls[0], peer_url=urls[1], peer_id="1")
            report = verify(recompare_s=1.0, recompare_tries=60)
            assert report.counters["BADROWS"] == 0, report
            assert (report.good, report.families) == (300, ("cf",))
            assert report.notes == ("not compared: family local has replication scope 0",)
            other.table("t").delete(b"r123", [b"cf:v"])
            other.table("t").put(b"zzz", {b"cf:v": b"more"})
            other.table("t").put(b"r007", {b"cf:v": b"other"})
            wrong = verify(recompare_s=0.01)
            assert wrong.counters == {
                "GOODROWS": 298,
                "BADROWS": 3,
                "ONLY_IN_SOURCE_TABLE_ROWS": 1,
                "ONLY_IN_PEER_TABLE_ROWS": 1,
                "CONTENT_DIFFERENT_ROWS": 1,
                "RECOMPARES": 3,
                "FAILED_RECOMPARE": 3,
            }
            assert [(line["row"], line["verdict"]) for line in wrong.as_dict()["differences"]] == [
                ("r007", "CONTENT_DIFFERENT"),
                ("r123", "ONLY_IN_SOURCE"),
                ("zzz", "ONLY_IN_PEER"),
            ]
            assert "is only in the peer" in repr(wrong)

    def test_deletes_are_compared_by_raw_and_rows_are_chosen_by_prefixes(self, spark: Any, hbase: Any) -> None:
        with hbase.connect() as connection:
            for name in ("t", "u"):
                connection.create_table(name, {"cf": {"max_versions": 5}}, splits=SPLITS)
                for row in (b"r1", b"r3", b"r,5"):
                    connection.table(name).put(row, {b"cf:a": b"1"}, timestamp=5)
            connection.table("t").delete(b"r1", [b"cf:a"], timestamp=3)
            check = partial(hbase_spark.verify_replication, spark, "t", url=hbase.url, peer_table="u")
            assert check().good == 3
            raw = check(raw=True, recompare_s=0.01)
            assert (raw.good, raw.content_different) == (2, 1)
            assert raw.samples[0].detail == "cf:a at 3 (DELETE_COLUMN) is only in the source"
            assert check(raw=True, row_prefixes=[b"r,", "r3"]).good == 2

    def test_a_primary_and_its_replica(self, spark: Any, hbase: Any) -> None:
        with hbase.connect() as connection:
            filled(connection, region_replication=2)
            hbase.cluster.wait_until_replicated(60)
            report = hbase_spark.verify_replication(spark, "t", url=hbase.url, replica_id=1)
            assert report.counters["GOODROWS"] == 1000
            assert report.is_equal

    def test_a_replica_that_lags_is_seen_and_one_that_catches_up_is_forgiven(self, spark: Any, hbase: Any) -> None:
        """The replica's server stands still: what was written since differs; when it goes on, a second look agrees."""
        with hbase.connect() as connection:
            connection.create_table("t", {"cf": {}}, region_replication=2)
            connection.table("t").put(b"r1", {b"cf:a": b"1"})
            hbase.cluster.wait_until_replicated(60)
            region = connection.regions("t")[0]
            primary, replica = region.at(0).server.host, region.at(1).server.host
            hbase.cluster.partition(primary, replica)
            connection.table("t").put(b"r2", {b"cf:a": b"2"})
            seen = hbase_spark.verify_replication(spark, "t", url=hbase.url, replica_id=1)
            assert (seen.good, seen.only_in_source) == (1, 1)
            hbase.cluster.heal()
            hbase.cluster.flush("t")
            hbase.cluster.wait_until_replicated(60)
            later = hbase_spark.verify_replication(spark, "t", url=hbase.url, replica_id=1, recompare_s=0.1)
            assert later.is_equal

    def test_families_versions_and_times(self, spark: Any, hbase: Any) -> None:
        with hbase.connect() as connection:
            for name in ("t", "u"):
                connection.create_table(name, {"a": {"max_versions": 3}, "b": {}})
                connection.table(name).put(b"r", {b"a:x": b"new", b"b:x": name.encode()}, timestamp=20)
            connection.table("t").put(b"r", {b"a:x": b"old"}, timestamp=10)
            check = partial(hbase_spark.verify_replication, spark, "t", url=hbase.url, peer_table="u")
            assert not check().is_equal
            assert check(families=["a"]).is_equal
            assert not check(families=["a"], versions=3).is_equal
            assert check(families=["a"], versions=3, starttime=15).is_equal

    def test_nothing_to_compare_with_is_refused(self, spark: Any, hbase: Any) -> None:
        with hbase.connect() as connection:
            filled(connection, rows=range(3))
        check = partial(hbase_spark.verify_replication, spark, "t", url=hbase.url)
        for given, message in (
            ({}, "nothing to compare with"),
            ({"peer_table": "t"}, "the same table of the same cluster"),
            ({"peer_table": "u", "replica_id": 1}, "not both"),
            ({"replica_id": 0}, "0 is the primary"),
            ({"replica_id": 2}, "there is no replica 2"),
            ({"peer_table": "u", "recompare_s": 0}, "recompare_s"),
            ({"peer_table": "u", "recompare_tries": 3}, "need recompare_s"),
            ({"peer_table": "u", "row_prefixes": "r"}, "a list of prefixes"),
            ({"peer_table": "u", "block_rows": 0}, "block_rows"),
        ):
            with pytest.raises(ConfigError, match=message):
                check(**given)
        with pytest.raises(TableNotFound, match="nosuch"):
            check(peer_table="nosuch")


class TestJoin:
    CATALOG = json.dumps(
        {
            "table": {"namespace": "default", "name": "users"},
            "rowkey": "key",
            "columns": {
                "id": {"cf": "rowkey", "col": "key", "type": "string"},
                "age": {"cf": "d", "col": "age", "type": "int"},
                "name": {"cf": "d", "col": "name", "type": "string"},
            },
        }
    )

    @pytest.fixture
    def users(self, hbase: Any) -> Any:
        with hbase.connect() as connection:
            connection.create_table("users", {"d": {}}, splits=[b"u2", b"u5"])
            for number in range(9):
                data = {b"d:age": (20 + number).to_bytes(4, "big")}
                if number % 2:
                    data[b"d:name"] = b"name%d" % number
                connection.table("users").put(b"u%d" % number, data)
        return hbase

    def test_inner_and_left(self, spark: Any, users: Any) -> None:
        orders = spark.createDataFrame(
            [(1, "u1"), (2, "u3"), (3, "nobody"), (4, None), (5, "u1"), (6, "u2"), (7, "")], "number int, user string"
        ).repartition(3)
        inner = hbase_spark.join(orders, self.CATALOG, on="user", url=users.url)
        assert inner.columns == ["number", "user", "age", "name"]
        found = [(1, "u1", 21, "name1"), (2, "u3", 23, "name3"), (5, "u1", 21, "name1"), (6, "u2", 22, None)]
        assert sorted(map(tuple, inner.collect())) == found
        left = hbase_spark.join(orders, self.CATALOG, on="user", url=users.url, how="left", columns=["name"])
        assert sorted(map(tuple, left.collect()), key=lambda row: row[0]) == [
            (1, "u1", "name1"),
            (2, "u3", "name3"),
            (3, "nobody", None),
            (4, None, None),
            (5, "u1", "name1"),
            (6, "u2", None),
            (7, "", None),
        ]

    def test_many_keys_in_small_bulks_equal_sparks_own_join(self, spark: Any, users: Any) -> None:
        from pyspark.sql import functions as f

        orders = spark.range(0, 3000, 1, 4).select(
            f.col("id").alias("n"), f.concat(f.lit("u"), (f.col("id") % 12).cast("string")).alias("user")
        )
        own = hbase_spark.join(orders, self.CATALOG, on="user", url=users.url, hbase_spark_bulkget_size=4)
        table = hbase_spark.table(spark, self.CATALOG, url=users.url)
        sparks = orders.join(table, orders.user == table.id).select("n", "user", "age", "name")
        assert sorted(map(tuple, own.collect())) == sorted(map(tuple, sparks.collect()))

    def test_keys_of_several_parts(self, spark: Any, hbase: Any) -> None:
        catalog = json.dumps(
            {
                "table": {"namespace": "default", "name": "c"},
                "rowkey": "k1:k2",
                "columns": {
                    "place": {"cf": "rowkey", "col": "k1", "type": "string", "length": "3"},
                    "year": {"cf": "rowkey", "col": "k2", "type": "int"},
                    "v": {"cf": "cf", "col": "v", "type": "string"},
                },
            }
        )
        with hbase.connect() as connection:
            connection.create_table("c", {"cf": {}})
            connection.table("c").put(b"abc" + (7).to_bytes(4, "big"), {b"cf:v": b"found"})
        df = spark.createDataFrame([("abc", 7), ("abc", 8), ("xyz", 7)], "p string, y int")
        rows = hbase_spark.join(df, catalog, on=["p", "y"], url=hbase.url).collect()
        assert [tuple(row) for row in rows] == [("abc", 7, "found")]
        by_name = hbase_spark.join(df, catalog, on={"y": "year", "p": "place"}, url=hbase.url, how="left")
        assert sorted(row.v or "" for row in by_name.collect()) == ["", "", "found"]
        with pytest.raises(ConfigError, match="2 parts"):
            hbase_spark.join(df, catalog, on="p", url=hbase.url)

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ({"on": "nosuch"}, "no column 'nosuch'"),
            ({"on": "number"}, "is int and part 'id' of the row key is string"),
            ({"on": "user", "how": "outer"}, "inner or left"),
            ({"on": "user", "columns": ["nme"]}, "name"),
            ({"on": "user", "columns": []}, "no column to add"),
        ],
    )
    def test_wrong_arguments(self, spark: Any, users: Any, given: dict[str, Any], message: str) -> None:
        df = spark.createDataFrame([(1, "u1")], "number int, user string")
        with pytest.raises(MetaClientError, match=message):
            hbase_spark.join(df, self.CATALOG, url=users.url, **given)

    def test_a_column_on_both_sides_is_refused(self, spark: Any, users: Any) -> None:
        df = spark.createDataFrame([("u1", "x")], "user string, name string")
        with pytest.raises(ConfigError, match="both sides have a column 'name'"):
            hbase_spark.join(df, self.CATALOG, on="user", url=users.url)
