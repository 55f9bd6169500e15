"""The history of figures: rates, charts, events; and the view that is made of it. All of it is pure."""

import json
from dataclasses import replace

import pytest

from metaclient.watch.figures import (
    ClientFigures,
    ClusterFigures,
    Liveness,
    MetaReplicaFigures,
    PeerFigures,
    RegionFigures,
    ServerFigures,
)
from metaclient.watch.history import CHART_S, EVENTS_MAX, POINTS_MAX, RECENT_MAX, History, advance, meta_reads, rates
from metaclient.watch.view import CHART_POINTS, view_of


def figures(at_s: float, **fields: object) -> ClusterFigures:
    made = ClusterFigures(at_s=at_s, time_ms=round(at_s * 1000), url="hbase://zk")
    return replace(made, **fields)  # type: ignore[arg-type]


def meta(*reads: int | None, state: str = "healthy") -> tuple[MetaReplicaFigures, ...]:
    return tuple(
        MetaReplicaFigures(replica_id=number, server=f"rs{number}", reads=count, state=state)
        for number, count in enumerate(reads)
    )


def after(*some: ClusterFigures) -> History:
    history = History()
    for one in some:
        history = advance(history, one)
    return history


def test_shares_are_those_of_the_reads_within_the_window() -> None:
    view = view_of(after(figures(0.0, meta=meta(1000, 0, 0)), figures(4.0, meta=meta(1020, 40, 40))))
    assert [one["share"] for one in view["meta"]] == [0.2, 0.4, 0.4]
    assert [one["reads_per_s"] for one in view["meta"]] == [5.0, 10.0, 10.0]
    assert view["summary"]["primary_share"] == 0.2


def test_counter_of_a_restarted_server_has_no_negative_rate() -> None:
    history = after(figures(0.0, meta=meta(500)), figures(1.0, meta=meta(3)))
    assert rates(history, meta_reads) == {0: None}


@pytest.mark.parametrize(
    ("reads", "shares"), [((None, 10, 30), [None, 0.25, 0.75]), ((None, None, None), [None, None, None])]
)
def test_replica_of_unknown_reads_has_no_share(reads: tuple[int | None, ...], shares: list[float | None]) -> None:
    view = view_of(after(figures(0.0, meta=meta(None, 0, 0)), figures(4.0, meta=meta(*reads))))
    assert [one["share"] for one in view["meta"]] == shares
    assert view["summary"]["meta_reads_per_s"] is None


def test_share_is_unknown_without_reads() -> None:
    view = view_of(after(figures(0.0, meta=meta(5, 5)), figures(4.0, meta=meta(5, 5))))
    assert [one["share"] for one in view["meta"]] == [None, None]


def test_client_that_stands_still_falls_to_zero_although_it_was_fast_before() -> None:
    history = History()
    for second in range(6):
        client = ClientFigures(name="java", title="Java", lookups=min(second, 3) * 20)
        history = advance(history, figures(float(second), clients=(client,)))
    assert view_of(history)["clients"][0]["lookups_per_s"] == 0.0
    assert view_of(history)["charts"]["clients"]["java"][:4] == [None, 20.0, 20.0, 20.0]


def test_hottest_region_comes_first_even_if_another_has_more_requests_in_total() -> None:
    def regions(cold: int, hot: int) -> tuple[RegionFigures, ...]:
        return tuple(
            RegionFigures(name=name, table="t", start_key=name, server="rs1", requests=count)
            for name, count in (("cold", cold), ("hot", hot))
        )

    view = view_of(after(figures(0.0, regions=regions(9000, 10)), figures(2.0, regions=regions(9002, 50))))
    assert [(one["name"], one["requests_per_s"]) for one in view["regions"]] == [("hot", 20.0), ("cold", 1.0)]


def test_everything_that_is_kept_has_a_bound() -> None:
    history = History()
    for number in range(700):
        state = Liveness.UP if number % 2 else Liveness.HUNG
        server = ServerFigures(name="rs1", liveness=state, reads=number, writes=0)
        history = advance(history, figures(number * 0.01, servers=(server,)))
    assert len(history.recent) <= RECENT_MAX
    assert len(history.points) <= POINTS_MAX
    assert len(history.events) <= EVENTS_MAX
    assert len(view_of(history)["charts"]["time_ms"]) <= CHART_POINTS


def test_charts_forget_what_is_older_than_five_minutes() -> None:
    history = after(figures(0.0), figures(CHART_S / 2), figures(CHART_S + 1.0))
    assert [point.time_ms for point in history.points] == [round(CHART_S / 2 * 1000), round((CHART_S + 1.0) * 1000)]


def test_events_tell_what_changed_between_figures() -> None:
    up, hung = ServerFigures(name="rs1", liveness=Liveness.UP), ServerFigures(name="rs1", liveness=Liveness.HUNG)
    peer = PeerFigures(peer_id="p", state="ENABLED", target="zk:2181:/x")
    old = figures(0.0, servers=(up,), meta=meta(0, 0), peers=())
    moved = (meta(0)[0], replace(meta(0, 0)[1], server="rs7"))
    new = figures(1.0, servers=(hung, replace(up, name="rs2")), meta=moved, peers=(peer,))
    gone = figures(2.0, servers=(replace(up, name="rs2"),), meta=moved, peers=(replace(peer, state="DISABLED"),))
    history = after(old, new, gone)
    assert [(event.text, event.level) for event in history.events] == [
        ("watching hbase://zk", "info"),
        ("rs1 is hung", "bad"),
        ("rs2 joined the cluster", "info"),
        ("meta replica 1 moved from rs1 to rs7", "info"),
        ("peer p was added", "info"),
        ("rs1 is gone from the cluster", "warning"),
        ("peer p is disabled", "warning"),
    ]


def test_view_is_json_and_says_what_is_unknown() -> None:
    assert view_of(History()) == {"ready": False}
    view = json.loads(json.dumps(view_of(after(figures(0.0)))))
    assert view["regions"] is view["region_replicas"] is view["peers"] is None
    assert view["summary"]["lookups_per_s"] is None
