"""Replication peers that are no clusters: workers of subscriptions to changes, in this process.

A subscription is reached by its cluster key, as a cluster is. Each worker is a party of the network,
``changes/PEER/NUMBER``: partitions, delays and lost messages act on the calls to it.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence

from metaclient.errors import CallTimeout, DeadlineExceeded, RequestRefused, ServerUnreachable
from metaclient.model import ServerName
from metaclient.runtime import Pending, Runtime
from metaclient.wire.rpc.receiving import Delivery, Receiver
from metaclient.wire.rpc.replication import ShippedEntry, encode_replicate
from metaclient_fake.network.call import Call, Caller
from metaclient_fake.network.handlers import Handlers
from metaclient_fake.network.network import Network

__all__ = ["CHANGES", "Subscriber", "SubscriberEndpoint", "Subscribers", "Worker"]

#: The first part of the name of a worker on the network, and the host in the cluster key of a subscription.
CHANGES = "changes"
#: A call holds a handler until it is answered, so that these must outnumber the calls of all sources.
_HANDLERS = 1000


class Worker:
    """A process that takes entries for a subscription, as the sources of the cluster see it."""

    is_hung = False
    slow_s = 0.0

    def __init__(
        self, name: ServerName, party: str, runtime: Runtime, receiver: Receiver, leave: Callable[[Worker], None]
    ) -> None:
        self.name = name
        self.party = party
        self.handlers = Handlers(runtime, _HANDLERS, _HANDLERS, party)
        self.is_listening = True
        self._runtime = runtime
        self._receiver = receiver
        self._leave = leave
        self._accepted = 0
        self._waiting: dict[Pending[None], None] = {}  # calls without an answer, in the order of their arrival

    @property
    def address(self) -> str:
        return f"{self.name.host}:{self.name.port}"

    def check_running(self) -> None:
        """Do nothing: a worker that leaves does not listen any more."""

    def keep_for_wake_up(self, call: Callable[[], None]) -> None:
        raise NotImplementedError("a worker is never hung: its consumer is")

    def deliver(self, entries: Sequence[ShippedEntry], source: str, deadline: float) -> None:
        """Hand a call to the receiver; return when it is answered, raise CallTimeout at the deadline."""
        param, cells = encode_replicate(entries)
        size = len(param) + len(cells)
        self._accepted += 1
        arrived = self._runtime.now()
        if not self._receiver.reserve(size):
            raise ServerUnreachable(f"{self.party} closed the connection")
        answered: Pending[None] = self._runtime.pending(name="changes-call")
        self._waiting[answered] = None
        try:
            self._receiver.receive(
                Delivery(
                    param,
                    cells,
                    size=size,
                    arrived=arrived,
                    deadline=deadline,
                    source=source,
                    send=lambda: answered.complete(None),
                )
            )
            answered.result(deadline)
        except DeadlineExceeded as error:
            raise CallTimeout(f"{self.party} did not answer in time", may_have_applied=True) from error
        finally:
            self._waiting.pop(answered, None)

    def close(self) -> None:
        """Leave the subscription; calls that wait for an answer end as at a broken connection."""
        self.is_listening = False
        self._leave(self)
        for answered in list(self._waiting):
            answered.fail(ServerUnreachable(f"{self.party} closed the connection"))

    def stats(self) -> Mapping[str, int]:
        return {"clients": len(self._waiting), "accepted": self._accepted}


class Subscriber:
    """The workers of one subscription, as a cluster."""

    def __init__(self, cluster_id: str) -> None:
        self.cluster_id = cluster_id
        self.workers: dict[ServerName, Worker] = {}


class Subscribers:
    """The subscriptions of one cluster, by peer. ``_lock`` guards the maps."""

    def __init__(self, runtime: Runtime, network: Network) -> None:
        self._runtime = runtime
        self._network = network
        self._lock = runtime.lock()
        self._by_peer: dict[str, Subscriber] = {}
        self._joined = 0

    @staticmethod
    def key(peer_id: str) -> str:
        """Return the cluster key of a subscription."""
        return f"{CHANGES}:2181:/metaclient-changes/{peer_id}"

    def prepare(self, peer_id: str, cluster_id: str) -> bool:
        with self._lock:
            known = self._by_peer.get(peer_id)
            if known is None:
                self._by_peer[peer_id] = Subscriber(cluster_id)
        if known is not None and known.cluster_id != cluster_id:
            raise RequestRefused(f"the subscription of peer {peer_id!r} has another cluster id")
        return known is None

    def withdraw(self, peer_id: str) -> None:
        with self._lock:
            self._by_peer.pop(peer_id, None)

    def workers(self, peer_id: str) -> list[Worker]:
        with self._lock:
            found = self._by_peer.get(peer_id)
            return [] if found is None else list(found.workers.values())

    def join(self, peer_id: str, receiver: Receiver) -> Worker:
        with self._lock:
            self._joined += 1
            number = self._joined
            name = ServerName(f"{CHANGES}-{peer_id}", number, self._runtime.time_ms())
            party = self._network.party(f"{CHANGES}/{peer_id}/{number}")
            worker = Worker(name, party, self._runtime, receiver, lambda one: self._left(peer_id, one))
            self._by_peer[peer_id].workers[name] = worker
        self._network.announce()
        return worker

    def _left(self, peer_id: str, worker: Worker) -> None:
        with self._lock:
            found = self._by_peer.get(peer_id)
            if found is not None:
                found.workers.pop(worker.name, None)
        self._network.announce()

    def find(self, key: str) -> Subscriber | None:
        """Return the subscription with this cluster key."""
        with self._lock:
            return next((found for peer, found in self._by_peer.items() if self.key(peer) == key), None)


class SubscriberEndpoint:
    """A subscription as the sources of one server see it."""

    def __init__(
        self, runtime: Runtime, network: Network, caller: Caller, find: Callable[[], Subscriber | None]
    ) -> None:
        self._runtime = runtime
        self._network = network
        self._caller = caller
        self._find = find
        self._is_closed = False

    @property
    def party(self) -> str:
        return self._caller.party

    @property
    def is_closed(self) -> bool:
        """True when calls in flight must end: they are made with this object as their caller."""
        return self._is_closed or self._caller.is_closed

    def cluster_id(self) -> uuid.UUID | None:
        found = self._find()
        return None if found is None else uuid.UUID(found.cluster_id)

    def servers(self) -> Sequence[ServerName]:
        found = self._find()
        return () if found is None else list(found.workers)

    def replicate(self, server: ServerName, entries: Sequence[ShippedEntry], deadline: float) -> None:
        found = self._find()
        worker = None if found is None else found.workers.get(server)
        if worker is None:
            raise ServerUnreachable(f"connection refused by {server}: the worker has left")
        Call(
            self._network,
            self._runtime,
            self,
            worker,
            lambda: worker.deliver(entries, self.party, deadline),
            handlers=worker.handlers,
            deadline=deadline,
            is_write=True,
            may_repeat=True,
        ).run()

    def close(self) -> None:
        self._is_closed = True
        self._network.announce()
