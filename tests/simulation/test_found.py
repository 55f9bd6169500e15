"""Bugs that the simulation found, each as the smallest schedule that showed it, with its story.

The schedules are written out, so that they stay what they were when other things change. Each was seen to fail before
the fix that its story names.
"""

import dataclasses

from metaclient_fake.simulation.schedule import Fault
from metaclient_fake.simulation.spec import ClientSpec, Spec, drawn
from metaclient_fake.simulation.trial import run

SERVERS = 5


def made(*faults: Fault, meta_replicas: int = 3, copies: int = 2, workloads: tuple[str, ...] = ("registers",)) -> Spec:
    """A quiet cluster with default settings, a few clients, and these faults."""
    return dataclasses.replace(
        drawn(0, duration_s=25.0),
        meta_replicas=meta_replicas,
        copies=copies,
        preempt=0.0,
        settings={},
        has_deletes=False,
        clients=tuple(ClientSpec(number, workload) for number, workload in enumerate(workloads)),
        kinds=tuple(dict.fromkeys(fault.kind for fault in faults)),
        faults=faults,
    )


def violations(spec: Spec) -> list[str]:
    return [str(violation) for violation in run(spec).violations]


def test_seed_38_skewed_clock_of_metas_server_hid_later_changes() -> None:
    """hbase:meta's rows had the time of the server that held it.

    While that clock was a minute ahead, a region moved; when the clock was right again, its next move was older than
    the last, and nobody found it any more. Fixed: the master's clock stamps the rows (meta_table.py), as in HBase.
    """
    skewed = [Fault(1.0, "skew", pick=server, lasts_s=9.0, amount=0.999) for server in range(SERVERS)]
    moves = [Fault(at_s, "move", pick=region) for at_s in (3.0, 15.0) for region in range(3)]
    assert violations(made(*skewed, *moves, workloads=("registers", "registers", "storm"))) == []


def test_seed_0_merge_of_a_region_that_was_split_meanwhile() -> None:
    """A merge that had waited for a split of the same region died of a KeyError instead of being refused.

    Fixed: the state of a region is checked again under the procedure lock (region_procedures.py).
    """
    at_once = [Fault(1.0, "split", amount=0.5), Fault(1.0001, "merge"), Fault(1.0002, "split", amount=0.2)]
    assert violations(made(*at_once)) == []


def test_seed_0_first_copies_of_meta_were_never_readable() -> None:
    """With one copy hbase:meta had no sink, and getting more copies does not open it again: they waited for ever.

    Fixed: its primary has a sink while it is alone (replication/server.py).
    """
    assert violations(made(Fault(4.0, "meta_replica_count", other=2), meta_replicas=1)) == []


def test_seed_322_stop_of_a_server_whose_log_was_fenced() -> None:
    """A server that was told to stop after it had been declared dead could not close its regions, and stopped for ever.

    Fixed: it ends as a killed one does (region_server.py).
    """
    gone = Fault(1.0, "registry_gone", lasts_s=15.0, amount=0.1)
    stops = [Fault(12.0, "stop", pick=server, lasts_s=2.0) for server in range(2)]
    assert violations(made(gone, *stops)) == []


def test_seed_421_move_while_every_server_is_declared_dead() -> None:
    """A region that had been closed for a move was left closed for ever when no server was alive to take it.

    Fixed: its opening waits until there is one (region_procedures.py). The seed as it was drawn.
    """
    assert violations(drawn(421)) == []
