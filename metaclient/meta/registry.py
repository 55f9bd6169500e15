"""Stores which replicas of hbase:meta there are and which server hosts each, as the cluster's registry has it.

The registry is read when nothing is known yet, in the background when the last read is older than ``meta_refresh_s``,
and after errors that suggest that a replica has moved, at most once per ``meta_refresh_min_s``. Callers that need the
registry at the same time share one read.
"""

from __future__ import annotations

from collections.abc import Sequence

from metaclient.attempts.executor import Executor
from metaclient.backend import Addressing, Backend
from metaclient.config import Config
from metaclient.errors import (
    CallTimeout,
    DeadlineExceeded,
    Disposition,
    MetaClientError,
    ServerUnreachable,
    translated,
)
from metaclient.keys import REPLICA_ID_MAX
from metaclient.meta.health_tracker import HealthTracker
from metaclient.model import MetaReplica
from metaclient.runtime import Pending, Runtime
from metaclient.telemetry import Telemetry

__all__ = ["MetaRegistry"]


class MetaRegistry:
    """The meta replicas of the cluster and their servers, as one connection last read them."""

    def __init__(
        self,
        backend: Backend,
        runtime: Runtime,
        config: Config,
        executor: Executor,
        telemetry: Telemetry,
        health: HealthTracker,
    ) -> None:
        self._backend = backend
        self._runtime = runtime
        self._config = config
        self._executor = executor
        self._telemetry = telemetry
        self._health = health
        self._is_gateway = backend.capabilities.addressing is Addressing.GATEWAY
        #: False when the backend cannot address a replica of hbase:meta: only the primary is read.
        self.can_choose = backend.capabilities.meta_replicas
        # Swapped under the lock; the tuple is immutable and read without it.
        self._replicas: tuple[MetaReplica, ...] = ()
        self._refreshed_at = float("-inf")
        self._begin()
        runtime.on_fork(self._begin)

    def _begin(self) -> None:
        """Start with no read of the registry in flight, here and in a forked child, which keeps the replicas."""
        self._lock = self._runtime.lock()
        self._refreshing: Pending[tuple[MetaReplica, ...]] | None = None  # guarded by the lock

    def known(self) -> tuple[MetaReplica, ...]:
        """Return the replicas as last read; empty when the registry was not read yet."""
        return self._replicas

    def is_placed(self, replica: MetaReplica) -> bool:
        """Return True if a server is known to host the replica, or a gateway finds it."""
        return self._is_gateway or replica.server is not None

    def is_addressable(self, replica: MetaReplica) -> bool:
        """Return True if a call can reach the replica; a backend that cannot choose one finds the primary itself."""
        return not self.can_choose or self.is_placed(replica)

    def primary_missing(self) -> MetaClientError:
        """Refresh in the background and return the error for a read that has no addressable replica."""
        self.refresh_on_evidence()
        return ServerUnreachable("the registry names no server for hbase:meta; the cluster may be starting")

    def replicas(self, deadline: float) -> tuple[MetaReplica, ...]:
        """Return the replicas as last read; wait for the registry only when nothing is known yet."""
        if not self.can_choose:
            return (MetaReplica(0),)
        known = self._replicas
        if known:
            if self._runtime.now() - self._refreshed_at >= self._config.meta_refresh_s:
                self._refresh_soon()
            return known
        if self._is_gateway:
            return self._replicas_behind_gateway(deadline)
        return self.refresh(deadline)

    def _replicas_behind_gateway(self, deadline: float) -> tuple[MetaReplica, ...]:
        """Wait at most one try for the number of replicas: a gateway finds the primary by itself."""
        pending = self._refresh_soon()
        self._runtime.wait_first((pending,), min(deadline, self._runtime.now() + self._health.try_s()))
        return self._replicas or (MetaReplica(0),)

    def assume(self, replicas: Sequence[MetaReplica]) -> None:
        """Use the replicas that another client exported, unless this client has read the registry.

        The registry is read when an assumed place proves wrong, or in the background after ``meta_refresh_s``.
        """
        if not replicas or not self.can_choose:
            return
        with self._lock:
            if not self._replicas:
                self._replicas = _in_order(replicas)
                self._refreshed_at = self._runtime.now()

    def refresh(self, deadline: float) -> tuple[MetaReplica, ...]:
        """Read the registry now, or join the read in flight."""
        while True:
            pending, is_ours = self._flight()
            if is_ours:
                self._fetch(pending, deadline)
            if self._runtime.wait_first((pending,), deadline) is None:
                raise DeadlineExceeded("the registry did not return the locations of hbase:meta in time")
            # The caller that made the read may have had an earlier deadline: its time-out does not end this call.
            if is_ours or not isinstance(pending.error(), CallTimeout):
                return pending.result()

    def refresh_after(self, error: MetaClientError) -> None:
        """Refresh in the background if the error suggests that a replica has moved."""
        if error.disposition is Disposition.RELOCATE or error.blames_server:
            self.refresh_on_evidence()

    def refresh_on_evidence(self) -> None:
        """Refresh in the background, at most once per ``meta_refresh_min_s``."""
        if self._runtime.now() - self._refreshed_at >= self._config.meta_refresh_min_s:
            self._refresh_soon()

    def _refresh_soon(self) -> Pending[tuple[MetaReplica, ...]]:
        pending, is_ours = self._flight()
        if is_ours:
            deadline = self._runtime.now() + self._config.meta_rpc_timeout_s
            try:
                self._runtime.start(self._fetch, pending, deadline, name="meta-refresh")
            except MetaClientError as error:  # no thread is free: the next lookup tries again
                self._finish(pending, None, error)
        return pending

    def _flight(self) -> tuple[Pending[tuple[MetaReplica, ...]], bool]:
        """Return the read in flight, and whether the caller has to make it."""
        with self._lock:
            if self._refreshing is not None:
                return self._refreshing, False
            self._refreshing = self._runtime.pending(name="registry")
            return self._refreshing, True

    def _fetch(self, pending: Pending[tuple[MetaReplica, ...]], deadline: float) -> None:
        self._telemetry.count("metaclient.meta.refreshes")
        until = min(deadline, self._runtime.now() + self._config.meta_rpc_timeout_s)
        try:
            replicas = _in_order(self._executor.call(self._backend.meta_replicas, deadline=until))
        except BaseException as error:  # any error ends the flight, so that no caller waits for it for ever
            if not isinstance(error, Exception):  # the caller was interrupted, which is no evidence about the registry
                self._finish(pending, None, CallTimeout("the call that read the registry was interrupted"))
                raise
            self._finish(pending, None, translated(error))
        else:
            self._finish(pending, replicas, None)

    def _finish(
        self,
        pending: Pending[tuple[MetaReplica, ...]],
        replicas: tuple[MetaReplica, ...] | None,
        error: MetaClientError | None,
    ) -> None:
        """Store the result of a read and complete its flight; replicas that are known survive a failed read."""
        with self._lock:
            self._refreshing = None
            self._refreshed_at = self._runtime.now()
            before = self._replicas
            if replicas is not None:
                self._replicas = replicas
                self._health.keep_only(replicas)
        if before and replicas is not None and before != replicas:
            self._telemetry.emit("meta_replicas_changed", before=len(before), after=len(replicas))
        if replicas is None and not before:
            pending.fail(error or ServerUnreachable("the registry lists no meta replica"))
        else:
            pending.complete(replicas or before)


def _in_order(found: Sequence[MetaReplica]) -> tuple[MetaReplica, ...]:
    """Return the replicas by id, each id once and the primary always present."""
    by_id = {replica.replica_id: replica for replica in found if 0 <= replica.replica_id <= REPLICA_ID_MAX}
    by_id.setdefault(0, MetaReplica(0))
    return tuple(by_id[replica_id] for replica_id in sorted(by_id))
