"""The tasks of ``verify_replication``, run without Spark between two clusters over HBase's RPC."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs the extra 'spark'")

from metaclient import Connection
from metaclient.errors import ConfigError
from metaclient.verification.recomparison import Recompare
from metaclient_fake import FakeCluster
from spark_connector import clients
from spark_connector.jobs import replication_check as job
from spark_connector.jobs.splits import RowChoice, scan_options
from spark_connector.planning import splits as planning
from spark_connector.planning.query import Query
from spark_connector.settings.option_uses import Use

FAMILIES: dict[str, dict[str, Any]] = {"cf": {"replication_scope": 1, "max_versions": 5}, "local": {}}


@dataclass
class Pair:
    """Two clusters with equal rows in ``cf``; in the source alone, each row has a cell in ``local``."""

    east: FakeCluster
    here: Connection
    there: Connection
    urls: tuple[str, str]

    def planned(
        self, peer_id: str | None = "1", recompare: Recompare | None = None, *, raw: bool = False, **given: Any
    ) -> tuple[job._TableComparison, tuple[str, ...]]:
        options = scan_options(
            "t",
            self.urls[0],
            given.pop("options", {}),
            Use.VERIFY,
            layout=job._layout(raw),
            versions=job._versions(None, raw),
            **given,
        )
        known = job._peer_of(options, peer_id)
        return job._planned(Query.of(options), recompare, self.urls[1], known, None, None)

    def lines(self, *arguments: Any, **given: Any) -> tuple[Counter[str], set[tuple[str, bytes]]]:
        """Run all tasks; return the sums of the lines, and the rows that differ."""
        comparison, _ = self.planned(*arguments, **given)
        sums: Counter[str] = Counter()
        differing: set[tuple[str, bytes]] = set()
        for split in planning.plan(self.here, comparison.source.query):
            for batch in job._checker(comparison)(split, None):
                for line in batch.to_pylist():
                    sums[line["verdict"]] += line["rows"]
                    if line["row"] is not None:
                        differing.add((line["verdict"], line["row"]))
        return sums, differing


@pytest.fixture
def pair() -> Iterator[Pair]:
    with (
        FakeCluster(servers=2, meta_replicas=1, name="east") as east,
        FakeCluster(servers=1, meta_replicas=1, name="west") as west,
        east.connect() as here,
        west.connect() as there,
    ):
        fronts = [each.serve(thrift1_port=None, thrift2_port=None, rpc_port=0) for each in (east, west)]
        here.create_table("t", FAMILIES, splits=[b"r3", b"r6"])
        there.create_table("t", FAMILIES, splits=[b"r45"])
        for number in range(10):
            for connection in (here, there):
                connection.table("t").put(b"r%d" % number, {b"cf:a": b"1"}, timestamp=5)
            here.table("t").put(b"r%d" % number, {b"local:a": b"1"}, timestamp=5)
        east.replication.add("1", west.cluster_key, enabled=False)
        first, second = (f"hbase+rpc://127.0.0.1:{front.rpc_port}" for front in fronts)
        yield Pair(east, here, there, (first, second))
        clients.close_all()


def test_each_row_is_compared_once_though_regions_end_elsewhere(pair: Pair) -> None:
    assert pair.lines() == (Counter(GOODROWS=10), set())
    for row in (b"a", b"r3", b"r30", b"r45", b"r6", b"z"):
        pair.there.table("t").put(row, {b"cf:b": b"planted"})
    sums, differing = pair.lines()
    assert differing == {
        *(("ONLY_IN_PEER", row) for row in (b"a", b"r30", b"r45", b"z")),
        *(("CONTENT_DIFFERENT", row) for row in (b"r3", b"r6")),
    }
    assert sums["GOODROWS"] == 8


def test_without_the_peer_id_the_family_of_scope_0_is_compared(pair: Pair) -> None:
    assert pair.lines(None)[0]["CONTENT_DIFFERENT"] == 10
    assert "replication does not ship family local" in pair.planned(None)[1][0]


def test_families_that_the_user_gives_beside_a_filter_are_kept(pair: Pair) -> None:
    """A filter of values reads all columns, so that the query itself names none."""
    pair.there.table("t").put(b"r1", {b"local:a": b"1"}, timestamp=5)
    options = {"hbase.spark.query.filter": "ValueFilter(=,'binary:1')"}
    sums, _ = pair.lines(families=["local"], options=options)
    assert (sums["GOODROWS"], sums["ONLY_IN_SOURCE"]) == (1, 9)


def test_the_locations_of_the_peer_are_read_by_the_driver(pair: Pair) -> None:
    comparison, _ = pair.planned()
    assert comparison.peer.locations
    assert not pair.planned(options={"hbase.spark.locations": "lookup"})[0].peer.locations


def test_deletes_are_read_again_by_scans(pair: Pair) -> None:
    pair.here.table("t").delete(b"r1", [b"cf:a"], timestamp=3)
    assert pair.lines()[1] == set()
    sums, differing = pair.lines("1", Recompare(0.001, tries=2), raw=True)
    assert differing == {("CONTENT_DIFFERENT", b"r1")}
    assert (sums["GOODROWS"], sums["RECOMPARES"], sums["FAILED_RECOMPARE"]) == (9, 2, 2)


def test_rows_of_several_prefixes_are_compared_also_with_a_comma_in_one(pair: Pair) -> None:
    for connection in (pair.here, pair.there):
        connection.table("t").put(b"a,b;c 1", {b"cf:a": b"1"}, timestamp=5)
    sums, _ = pair.lines(rows=RowChoice(row_prefixes=[b"a,b;c ", "r2", "r7"]))
    assert sums["GOODROWS"] == 3


def test_a_peer_that_gets_nothing_of_the_table_is_refused(pair: Pair) -> None:
    pair.east.replication.update("1", exclude_tables=["t"])
    with pytest.raises(ConfigError, match="peer '1' gets nothing of table 't'"):
        pair.planned()
