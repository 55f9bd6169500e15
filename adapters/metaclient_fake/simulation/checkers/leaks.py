"""Decides whether a run leaks resources: tasks, locks, scanners, handlers, abandoned calls."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from metaclient_fake.simulation.world import Violation

if TYPE_CHECKING:
    from metaclient_fake.simulation.world import World

__all__ = ["check"]

#: Servers close scanners whose lease has expired, and check once per second.
_LOOK_S = 5.0


def check(world: World) -> Iterator[Violation]:
    """Check for leaks after all connections were closed; wait for the longest lease first."""
    for client in world.clients:
        if client.backend.scanners:
            yield Violation("leaks", f"{client.name} left {len(client.backend.scanners)} scanners open")
        if client.connection.stats()["calls"]["abandoned"]:
            yield Violation("leaks", f"{client.name} still waits for calls that it gave up on")
    world.runtime.sleep(world.cluster.config.scanner_lease_s + _LOOK_S)
    for host, server in world.cluster.servers_by_host.items():
        if len(server.scanners):
            yield Violation("leaks", f"{host} holds {len(server.scanners)} scanners after their lease")
        for pool in (server.handlers, server.meta_handlers, server.admin_handlers, server.replication_handlers):
            if pool.busy:
                yield Violation("leaks", f"{host} has {pool.busy} busy handlers though no call is in flight")
    tasks = world.runtime.unfinished()
    if tasks:
        yield Violation("leaks", f"{len(tasks)} tasks are left: {', '.join(sorted(tasks)[:5])}")
    for holder in world.runtime.holders():
        yield Violation("leaks", f"a lock is held by {holder}, which has ended")
