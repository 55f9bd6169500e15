"""The native client against the fake's RPC front on virtual time: hours of faults, byte by byte, in seconds."""

from __future__ import annotations

import os
import random
from dataclasses import dataclass, field

import pytest

import metaclient
from metaclient import MetaClientError
from metaclient.connection import connect_to
from metaclient.model import FamilyDescriptor, TableDescriptor
from metaclient.runtime import SimRuntime
from metaclient_fake import FakeCluster
from metaclient_fake.front.rpc import RpcFront
from metaclient_fake.front.rpc.virtual import VirtualPorts
from metaclient_fake.server.region_server import ServerState
from metaclient_native import NativeBackend

CLIENTS = 6
#: Of virtual time; METACLIENT_SIM_RPC_S=3600 runs the hour.
DURATION_S = float(os.environ.get("METACLIENT_SIM_RPC_S", "600"))
COUNTER = b"counter"


@dataclass
class Register:
    """What one row of one client may hold: the last value that was acknowledged, or one in doubt since."""

    possible: set[bytes | None] = field(default_factory=lambda: {None})

    def wrote(self, value: bytes, *, surely: bool) -> None:
        self.possible = {value} if surely else self.possible | {value}

    def read(self, value: bytes | None) -> None:
        assert value in self.possible, f"read {value!r}, which can only be one of {self.possible!r}"
        self.possible = {value}


class Client:
    """Writes its own rows and reads them back; counts what it adds to a counter that all share."""

    def __init__(self, number: int, connection: metaclient.Connection, runtime: SimRuntime, seed: int) -> None:
        self.number = number
        self.table = connection.table("t")
        self.runtime = runtime
        self.rng = random.Random(f"{seed}/{number}")
        self.rows: dict[bytes, Register] = {}
        self.added = self.maybe_added = 0
        self.operations = self.failed = 0

    def run(self, until: float) -> None:
        while self.runtime.now() < until:
            self.runtime.sleep(self.rng.uniform(0.5, 1.5))
            self.operations += 1
            try:
                self.rng.choice((self.put, self.put, self.get, self.get, self.scan, self.add))()
            except MetaClientError:
                self.failed += 1

    def _row(self) -> tuple[bytes, Register]:
        key = b"%02x-%d-%d" % (self.rng.randrange(256), self.number, self.rng.randrange(4))
        return key, self.rows.setdefault(key, Register())

    def put(self) -> None:
        row, register = self._row()
        value = b"%d" % self.operations
        try:
            self.table.put(row, {b"f:q": value})
        except MetaClientError as error:
            if error.may_have_applied:
                register.wrote(value, surely=False)
            raise
        register.wrote(value, surely=True)

    def get(self) -> None:
        row, register = self._row()
        found = self.table.row(row)
        if self.possible_is_settled(register):
            register.read(found.get(b"f:q"))

    @staticmethod
    def possible_is_settled(register: Register) -> bool:
        """A write in doubt may still arrive later: nothing is learnt by reading before it."""
        return len(register.possible) == 1

    def scan(self) -> None:
        start = b"%02x" % self.rng.randrange(200)
        seen = [row for row, _ in self.table.scan(row_start=start, limit=50, batch_size=7)]
        assert seen == sorted(set(seen)), "a scan repeats rows or is out of order"
        known = sorted(
            row for row, one in self.rows.items() if self.possible_is_settled(one) and None not in one.possible
        )
        if len(seen) == 50:
            known = [row for row in known if row <= seen[-1]]
        missing = [row for row in known if row >= start and row not in seen]
        assert not missing, f"a scan has lost {missing}"

    def add(self) -> None:
        try:
            self.table.counter_inc(COUNTER, b"f:n")
        except MetaClientError as error:
            self.maybe_added += error.may_have_applied
            raise
        self.added += 1


def revive(cluster: FakeCluster) -> None:
    """A server that lost its session while it was hung ends itself when it wakes up."""
    for name in cluster.servers():
        if cluster.server_named(name).state is ServerState.DEAD:
            cluster.restart(name)


def torment(cluster: FakeCluster, runtime: SimRuntime, seed: int, until: float) -> dict[str, int]:
    """One fault after the other until the time is over; each ends before the next but one."""
    rng = random.Random(f"{seed}/faults")
    done: dict[str, int] = {}
    while runtime.now() < until:
        runtime.sleep(rng.uniform(5, 40))
        revive(cluster)
        live = cluster.servers()
        kind = rng.choice(("kill", "pause", "slow", "move", "split", "balance", "flush"))
        victim = rng.choice(live)
        try:
            match kind:
                case "kill":
                    cluster.kill(victim)
                    runtime.sleep(rng.uniform(1, 60))
                    cluster.restart(victim)
                case "pause":
                    cluster.pause(victim, keeps_session=rng.random() < 0.5)
                    runtime.sleep(rng.uniform(1, 60))
                    cluster.resume(victim)
                case "slow":
                    cluster.slow(victim, rng.uniform(0.01, 2.0))
                    runtime.sleep(rng.uniform(1, 30))
                    cluster.slow(victim, 0.0)
                case "move":
                    cluster.move(rng.choice(cluster.regions("t")), victim)
                case "split":
                    if len(cluster.regions("t")) < 30:
                        cluster.split(rng.choice(cluster.regions("t")))
                case "balance":
                    cluster.balance()
                case "flush":
                    cluster.flush("t")
        except MetaClientError:
            kind += " refused"
        done[kind] = done.get(kind, 0) + 1
    return done


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_faults_on_the_wire_give_no_wrong_answer_and_leak_no_connection(seed: int) -> None:
    with (
        SimRuntime(seed=seed) as runtime,
        FakeCluster(servers=5, meta_replicas=3, seed=seed, runtime=runtime) as cluster,
    ):
        ports = VirtualPorts(runtime)
        front = RpcFront(cluster, "127.0.0.1", 0, listen=ports.listen)
        splits = [b"%02x" % at for at in range(32, 256, 32)]
        cluster.create_table(TableDescriptor(b"t", (FamilyDescriptor(b"f"),), region_replication=2), splits)
        until = runtime.now() + DURATION_S
        clients = []
        for number in range(CLIENTS):
            backend = NativeBackend(f"hbase+rpc://127.0.0.1:{front.listener.port}", runtime=runtime, dial=ports.dial)
            connection = connect_to(backend, runtime=runtime)
            clients.append((Client(number, connection, runtime, seed), connection))
        faults = runtime.start(torment, cluster, runtime, seed, until)
        running = [runtime.start(client.run, until) for client, _ in clients]
        for task in running:
            task.result(until + 600)
        kinds = faults.result(until + 600)
        cluster.heal()
        revive(cluster)
        runtime.sleep(300)  # writes in doubt are decided by then
        for client, connection in clients:
            for row, register in client.rows.items():
                register.read(connection.table("t").row(row).get(b"f:q"))
        total = clients[0][1].table("t").counter_get(COUNTER, b"f:n")
        sure = sum(client.added for client, _ in clients)
        assert sure <= total <= sure + sum(client.maybe_added for client, _ in clients)
        for _, connection in clients:
            connection.close()
        runtime.sleep(1)
        assert front.clients() == 0
        front.close()
        operations = sum(client.operations for client, _ in clients)
        failed = sum(client.failed for client, _ in clients)
        print(f"seed {seed}: {operations} operations, {failed} failed; faults: {kinds}")
        assert operations > CLIENTS * DURATION_S / 4
        assert failed < 0.05 * operations
        assert len(kinds) >= 4
