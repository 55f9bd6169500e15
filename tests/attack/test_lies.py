"""A network that drops, repeats, delays, cuts, corrupts, drips and swallows, between a client and a served fake.

No answer is wrong, no acknowledged put is lost, each operation ends at its deadline, the client works again soon after
the network has healed, and nothing leaks.
"""

from __future__ import annotations

import time

import pytest

import metaclient
from metaclient import MetaClientError
from tests.attack.conftest import Figure, nothing_leaks
from tests.attack.lying_network import Lie, lying_network
from tests.attack.workload import COLUMN, THREADS, Workload, run_for, value_of

pytestmark = pytest.mark.attack

BACKENDS = ["thrift1", "thrift2", "hbase+rpc"]
RPC_S, OPERATION_S = 0.5, 2.0
#: Beyond its deadline an operation may take this long, on a busy machine.
GRACE_S = 3.0
ATTACK_S = 2.0
#: The goal for the first operation that succeeds after the network has healed.
RECOVERY_S = 3.0
GIVE_UP_S = 30.0
#: The slow reader takes half a minute for them; HBase's greatest cell has 10 MB (hbase.client.keyvalue.maxsize).
LONG_BYTES = 9 << 20


@pytest.mark.parametrize(
    "lie", [one for one in Lie if one not in (Lie.NONE, Lie.READ_SLOWLY)], ids=lambda one: one.name.lower()
)
@pytest.mark.parametrize("url", BACKENDS, indirect=True)
def test_lying_network_makes_no_wrong_answer_and_the_client_recovers(
    url: str, lie: Lie, monkeypatch: pytest.MonkeyPatch, figure: Figure
) -> None:
    with nothing_leaks(), lying_network(monkeypatch, seed=16) as network:
        with metaclient.connect(url, rpc_timeout_s=RPC_S, operation_timeout_s=OPERATION_S) as connection:
            is_exact = lie is not Lie.CORRUPT  # neither protocol has checksums: a length may be another one
            workloads = [Workload(connection, one, checks_presence=is_exact) for one in range(THREADS)]
            run_for(workloads, 0.3)
            network.lie = lie
            run_for(workloads, ATTACK_S)
            network.lie = Lie.NONE
            recovery_s = _recovery_s(connection)
            for one in workloads:
                one.check_all()
        reports = [one.report for one in workloads]
        slowest_s = max(one.slowest_s for one in reports)
        figure(
            f"{url.partition(':')[0]:9} {lie.name.lower():8} {sum(one.succeeded for one in reports):6} succeeded, "
            f"{sum(one.failed for one in reports):4} failed, slowest {slowest_s:.2f} s, recovered in {recovery_s:.2f} s"
        )
        assert [text for one in reports for text in one.wrong] == []
        assert slowest_s < OPERATION_S + GRACE_S
        assert recovery_s < RECOVERY_S


@pytest.mark.parametrize("url", BACKENDS, indirect=True)
def test_long_put_to_a_slow_reader_ends_at_its_deadline_and_the_client_recovers(
    url: str, monkeypatch: pytest.MonkeyPatch, figure: Figure
) -> None:
    with nothing_leaks(), lying_network(monkeypatch, seed=16) as network:
        with metaclient.connect(url, rpc_timeout_s=RPC_S, operation_timeout_s=OPERATION_S) as connection:
            network.lie = Lie.READ_SLOWLY
            begun = time.monotonic()
            with pytest.raises(MetaClientError):
                connection.table("t").put(b"r01", {COLUMN: bytes(LONG_BYTES)})
            put_s = time.monotonic() - begun
            network.lie = Lie.NONE
            recovery_s = _recovery_s(connection)
        figure(f"{url.partition(':')[0]:9} slow reader: {put_s:.2f} s for a long put, recovered in {recovery_s:.2f} s")
        assert put_s < OPERATION_S + GRACE_S
        assert recovery_s < RECOVERY_S


def _recovery_s(connection: metaclient.Connection) -> float:
    """Return the time until a put and a read of every region have succeeded."""
    table, begun = connection.table("t"), time.monotonic()
    for row in (b"a", b"r01", b"r02"):
        while True:
            try:
                table.put(row, {COLUMN: value_of(row, 1)})
                assert table.row(row)[COLUMN] == value_of(row, 1)
                break
            except MetaClientError:
                assert time.monotonic() - begun < GIVE_UP_S, "the client does not come back"
    return time.monotonic() - begun
