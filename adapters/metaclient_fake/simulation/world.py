"""Stores one run: the runtime, the cluster, the clients, the faults, and the recorded operations.

The run of a seed:

1. the cluster starts, tables are made and filled, replicas catch up (nothing is wrong yet);
2. the clients work while the faults strike (``spec.duration_s``);
3. everything is healed; after a while all must be as if nothing had happened (:mod:`metaclient_fake.simulation.calm`);
4. clients and cluster close; nothing may be left of them.

The checkers use these records after the run; violations that are visible only during the run are reported at once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from unittest.mock import patch

from metaclient.connection import Connection
from metaclient.errors import MetaClientError
from metaclient.runtime import Lock, SimRuntime, Task
from metaclient.runtime.line_preemption import LinePauses
from metaclient.runtime.simulation import _SimLock
from metaclient_fake.cluster import FakeCluster
from metaclient_fake.simulation.history import History, Operation
from metaclient_fake.simulation.injector import Injector
from metaclient_fake.simulation.spec import Spec
from metaclient_fake.simulation.workloads import WORKLOADS, Workload
from metaclient_fake.simulation.workloads.cycle import whole_cycle
from metaclient_fake.simulation.workloads.registers import COLUMN
from metaclient_fake.storage import StorageConfig

__all__ = ["RunRecord", "Violation", "WatchedRuntime", "World", "cluster_config"]

#: The number of violations that are kept per checker: the first ones are the most useful.
_REPORTS_MAX = 20
#: The faults begin this long after the clients: the first moments show what is wrong without any.
_CALM_BEFORE_S = 2.0
_STORAGE = frozenset(field.name for field in dataclasses.fields(StorageConfig))


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken promise: the checker that reports it, the instant, and the operations that show it."""

    checker: str
    message: str
    at_s: float = 0.0
    operations: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"{self.checker}: {self.message}"


class WatchedRuntime(SimRuntime):
    """A runtime that lists the running tasks and the held locks."""

    def __init__(self, seed: int, *, preempt: float) -> None:
        super().__init__(seed, preempt=preempt)
        self._locks: list[_SimLock] = []  # some hundreds in a run

    def lock(self) -> Lock:
        made = _SimLock(self)
        self._locks.append(made)
        return made

    def holders(self) -> list[str]:
        """Return the name of the owning task for each lock that is held."""
        return [lock.holder for lock in self._locks if lock.holder is not None]

    def unfinished(self) -> list[str]:
        """Return the names of the running tasks, without service loops and the calling task."""
        return [task.name for task in self._tasks.values() if not task.is_daemon and task is not self._current]


class RunRecord:
    """The violations that are visible during a run, and the tasks that die in it."""

    def __init__(self, runtime: WatchedRuntime) -> None:
        self.runtime = runtime
        self.violations: list[Violation] = []

    def report(self, checker: str, message: str, operations: tuple[int, ...] = ()) -> None:
        """Record a violation at the current instant."""
        if sum(1 for known in self.violations if known.checker == checker) < _REPORTS_MAX:
            self.violations.append(Violation(checker, message, self.runtime.now(), operations))

    @contextmanager
    def watching_tasks(self) -> Iterator[None]:
        """Report a task that dies of an exception that is no MetaClientError, because no caller may wait for it."""
        right = Task._fail_aloud

        def fail_aloud(task: Task[object], error: BaseException) -> None:
            if task._runtime is self.runtime and not isinstance(error, MetaClientError):
                self.report("crash", f"task {task.name} died of {type(error).__name__}: {error}")
            right(task, error)

        with patch.object(Task, "_fail_aloud", fail_aloud):
            yield


class World(RunRecord):
    """One run. ``spec`` decides all of it."""

    #: Tables that are there from the beginning to the end.
    tables = ("t", "log")

    def __init__(self, spec: Spec) -> None:
        super().__init__(WatchedRuntime(spec.seed, preempt=spec.preempt))
        self.spec = spec
        #: Of tasks that are preempted between statements; stopped when the calm begins.
        self.pauses = spec.lines.pauses() if spec.lines else LinePauses(0.0, 0.0)
        self.history = History(self.runtime)
        self.registers = tuple(b"%d-r" % shard for shard in range(10))
        self.register_set = frozenset(self.registers)
        self.statics = tuple(sorted((*(b"%d-s" % shard for shard in range(10)), b"3-t", b"6-t")))
        self.cells = (b"1-c", b"4-c", b"6-c")
        self.counters = (b"2-n", b"5-n", b"9-n")
        self.cycles = (b"0-y", b"5-y")
        self.border_rows = tuple(sorted((*self.registers, *self.statics, *self.cells, b"5", b"8-x")))
        self.acknowledged: list[bytes] = []
        self.is_over = False
        self.chaos_from_s = self.chaos_until_s = 0.0
        self._timestamp = 1_000_000
        self.cluster = FakeCluster(
            servers=spec.servers,
            meta_replicas=spec.meta_replicas,
            runtime=self.runtime,
            config=cluster_config(spec.settings),
        )
        self.injector = Injector(self)
        self.clients: list[Workload] = []
        self._helper: Connection | None = None

    # -- the run -------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Run the first two parts; :mod:`metaclient_fake.simulation.calm` runs the third."""
        self._fill()
        self.clients = [WORKLOADS[client.workload](self, client) for client in self.spec.clients]
        tasks = [self.runtime.start(client.run, name=client.name) for client in self.clients]
        self.runtime.sleep(_CALM_BEFORE_S)
        self.chaos_from_s = self.runtime.now()
        self.runtime.start(self.injector.run, self.spec.faults, name="injector")
        self.runtime.sleep(self.spec.duration_s)
        self.chaos_until_s = self.runtime.now()
        self.is_over = True
        self._join(tasks)

    def _join(self, tasks: list[Task[None]]) -> None:
        """Let each client end after its operation; report a client that takes longer than a few operations."""
        deadline = self.runtime.now() + 10 * max([60.0, *(_timeout_s(client) for client in self.clients)])
        for task in tasks:
            if self.runtime.wait_first((task,), deadline) is None:
                self.report("deadlines", f"client {task.name} does not come to an end")

    def _fill(self) -> None:
        helper = self.helper
        copies = self.spec.copies
        helper.create_table("t", {"f": {}, "g": {}}, splits=[b"3", b"7"], region_replication=copies)
        helper.create_table("log", {"f": {}}, splits=[b"5"], region_replication=copies)
        table = helper.table("t")
        for row in self.registers:
            operation = self.history.begin("setup", "put", "t", row)
            operation.is_write = True
            operation.argument, operation.timestamp = b"start", self.next_timestamp()
            table.put(row, {COLUMN: b"start"}, timestamp=operation.timestamp)
            self.history.ok(operation)
        with table.batch() as batch:
            for row in self.statics:
                batch.put(row, {b"f:v": row, b"g:v": row})
            for row in self.cells:
                batch.put(row, {COLUMN: b"start"})
            for row in self.cycles:
                batch.put(row, whole_cycle())
        self.cluster.wait_until_replicated(60.0)

    @property
    def helper(self) -> Connection:
        """The connection for operations that are not part of a client's workload."""
        if self._helper is None:
            self._helper = self.cluster.connect(client="helper", operation_timeout_s=30.0, rpc_timeout_s=2.0)
        return self._helper

    def next_timestamp(self) -> int:
        """Return the next timestamp, from one counter for all writers of registers; see ``spec``."""
        self._timestamp += 1
        return self._timestamp

    def burst(self, pick: int, count: int, size: int) -> None:
        """Put big values in quick succession, to reach the limits of buffers and memstores."""
        table = self.helper.table("t")
        for n in range(count):
            table.put(b"%d-b" % ((pick + n) % 10), {b"g:big": b"x" * size})

    def misled(self) -> set[int]:
        """Return the numbers of the operations in which a zombie took part; see ``observed``."""
        return self._numbers({client.name: client.was_misled for client in self.clients})

    def unproven(self) -> set[int]:
        """Return the numbers of the reads whose ``lag_s`` nothing proves; see ``workloads.canary``."""
        return self._numbers({client.name: client.has_unproven_lag for client in self.clients})

    def _numbers(self, conditions: Mapping[str, Callable[[Operation], bool]]) -> set[int]:
        """Return the numbers of the operations for which the condition of their client holds."""
        return {
            operation.number
            for operation in self.history
            if operation.client in conditions and conditions[operation.client](operation)
        }

    @property
    def active_s(self) -> float:
        """Simulated seconds in which clients worked."""
        return self.chaos_until_s - self.chaos_from_s + _CALM_BEFORE_S if self.chaos_until_s else 0.0

    def close(self) -> None:
        """Part four: close everything; what remains is a leak (:mod:`metaclient_fake.simulation.checkers.leaks`)."""
        for connection in self.connections():
            connection.close()
        self.runtime.sleep(1.0)

    def connections(self) -> list[Connection]:
        """Return every connection that was made."""
        found = [client.connection for client in self.clients]
        found += [client.bystander for client in self.clients if hasattr(client, "bystander")]
        return found if self._helper is None else [*found, self._helper]


def _timeout_s(client: Workload) -> float:
    return client.connection.config.operation_timeout_s


def cluster_config(settings: Mapping[str, object]) -> dict[str, object]:
    """Return the cluster's settings; those of the storage are a value of their own."""
    storage = {name: value for name, value in settings.items() if name in _STORAGE}
    rest = {name: value for name, value in settings.items() if name not in _STORAGE}
    return {**rest, "storage": StorageConfig(**storage)}  # type: ignore[arg-type]  # numbers, by name
