"""The scenario peers on samples made by hand: its figures, lines and charts. No timings and no servers here."""

import subprocess
import sys

import pytest

from metaclient.errors import ConfigError, MetaClientError
from metaclient_bench.peer_clients import Peer, Sample, Work
from metaclient_bench.scenarios import peers
from metaclient_bench.scenarios.peers import JAVA, NATIVE, SCENARIO, as_text, charts, figures

#: Five rounds; our client is twice as fast as the others in all but one.
OURS = [Sample(1.0, 0.2, 1000, 0.001, 0.002)] * 4 + [Sample(10.0, 2.0, 1000, 0.001, 0.09)]
OTHERS = [Sample(2.0, 0.4, 1000, 0.001, 0.002)] * 5


def made() -> peers.Samples:
    return {
        column.key: {name: OURS if name.startswith("ours") else OTHERS for name in column.clients}
        for column in peers._columns(500)
    }


def test_every_promised_figure_is_measured_and_one_slow_round_does_not_decide() -> None:
    found = {figure.id: figure for figure in figures(made())}
    assert tuple(found) == SCENARIO.ids
    assert found["V1a"].value == pytest.approx(2.0)
    assert found["V1a"].beside["least"] == pytest.approx(0.2)
    assert found["V1b"].value == pytest.approx(0.5)
    assert found["V2b"].value == pytest.approx(200.0)
    assert (found["V5b"].value, found["V5b"].beside["most"]) == (pytest.approx(2.0), pytest.approx(90.0))


def test_quick_run_has_the_columns_of_a_full_one() -> None:
    short, long = ([column.key for column in peers._columns(count)] for count in (500, 2000))
    assert short == long


def test_clients_take_turns_at_being_first_and_warm_up_rounds_do_not_count() -> None:
    order: list[tuple[str, str]] = []

    class Recorded(Peer):
        def __init__(self, name: str) -> None:
            self.name = name

        def run(self, work: Work) -> Sample:
            order.append((work.name, self.name))
            return OTHERS[0]

    column = peers.Column(Work("get", "t", 1, 10, 10), (NATIVE, JAVA))
    samples = peers._rounds([column], {name: Recorded(name) for name in (NATIVE, JAVA)})
    firsts = [name for _, name in order[::2]]
    assert firsts[:4] == [NATIVE, JAVA, NATIVE, JAVA]
    assert {len(each) for each in samples[column.key].values()} == {peers.ROUNDS}
    assert len(order) == 2 * (peers.ROUNDS + peers.WARM_UP_ROUNDS)


def test_pictures_show_rate_and_cpu_by_number_of_callers() -> None:
    drawn = charts(made())
    assert [chart.y for chart in drawn] == ["per second", "microseconds"] * 2
    assert all(list(chart.ticks.values()) == ["1", "4", "16", "64"] for chart in drawn)
    assert drawn[0].series[NATIVE][1] == [1000.0] * 4
    assert drawn[1].series[JAVA][1] == [400.0] * 4


def test_lines_show_medians_with_their_spread() -> None:
    line = next(line for line in as_text(made()).splitlines() if line.startswith("rows") and NATIVE in line)
    assert "1,000 [100 - 1,000]" in line
    assert "200 [200 - 2,000]" in line


def test_work_survives_the_pipe_to_a_client() -> None:
    work = Work("get", "t", 4, 100, 1000, 10, 7)
    assert Work.parse(str(work)) == work


def test_client_that_ends_is_an_error_and_not_a_hang() -> None:
    command = [sys.executable, "-c", "raise SystemExit(3)"]
    with (
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process,
        pytest.raises(MetaClientError, match="java ended with exit code 3"),
    ):
        Peer("java", process).wait_until_ready()


def test_client_that_does_not_answer_is_ended_and_not_waited_for() -> None:
    command = [sys.executable, "-c", "input()"]
    with (
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process,
        pytest.raises(MetaClientError, match="java did not answer within 0 s"),
    ):
        Peer("java", process, answer_s_max=0.0).wait_until_ready()


@pytest.mark.parametrize("backend", ["thrift2://h:1", "hbase://h:1+thrift2://h:2", "fake"])
def test_backend_without_one_of_the_three_servers_is_refused(backend: str) -> None:
    with pytest.raises(ConfigError, match=r"hbase://ZOOKEEPER\+thrift1://"), peers._urls(backend):
        pass
