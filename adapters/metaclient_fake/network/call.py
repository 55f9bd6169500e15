"""Decides what becomes of one call to one server: at each step it can be lost, refused, held up or answered late.

A call runs in the thread of its caller; it is not handed over to another thread. The steps, and what can go wrong at
each:

1. *send*: a partition holds the message until it heals; a lost message is never answered; latency passes.
2. *arrive*: the server does not listen (refused at once); the server is hung (connected, silent); it is going down.
3. *queue*: CallQueueTooBig, or the deadline passes in the queue and the call is dropped unexecuted.
4. *serve*: the handler is held for the service time; a server that dies meanwhile resets the connection.
5. *reply*: as 1, the other way round. By now a write has happened.

At its deadline the caller gets :class:`CallTimeout`, but the message remains: a slow server finishes the call, and a
hung server runs the calls in its sockets when it wakes up (a zombie). The answer of such a late call is dropped; its
writes happen if the server may still write.

A call may arrive twice when a fault says so and its sender could have sent it twice: reads, and what servers push to
replicas. A client's write is on one connection, which delivers it once (TCP); its repetitions are the client's retries.

DIVERGENCES: calls of the master never run late (HBase guards them by procedure ids and the master's clock).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from metaclient.errors import CallTimeout, ConnectionClosed, MetaClientError, Overloaded, ServerUnreachable
from metaclient.runtime import Runtime
from metaclient_fake.network.handlers import Handler, Handlers
from metaclient_fake.network.network import Network

__all__ = ["Call", "Caller", "Station"]

T = TypeVar("T")


class Caller(Protocol):
    """The party that makes a call: a client's backend, the master, another server."""

    @property
    def party(self) -> str: ...

    @property
    def is_closed(self) -> bool: ...


class Station(Protocol):
    """The server that a call goes to."""

    @property
    def party(self) -> str: ...

    @property
    def is_listening(self) -> bool: ...

    @property
    def is_hung(self) -> bool: ...

    def check_running(self) -> None:
        """Raise ServerStopped when it is going down."""
        ...

    def keep_for_wake_up(self, call: Callable[[], None]) -> None: ...


class Call(Generic[T]):
    """One attempt of one operation at one server; :meth:`run` once."""

    __slots__ = (
        "_caller",
        "_deadline",
        "_function",
        "_handlers",
        "_is_write",
        "_may_repeat",
        "_network",
        "_runs_late",
        "_runtime",
        "_service_s",
        "_station",
    )

    def __init__(
        self,
        network: Network,
        runtime: Runtime,
        caller: Caller,
        station: Station,
        function: Callable[[], T],
        *,
        handlers: Handlers,
        deadline: float,
        service_s: float = 0.0,
        is_write: bool = False,
        runs_late: bool = True,
        may_repeat: bool | None = None,
    ) -> None:
        self._network = network
        self._runtime = runtime
        self._caller = caller
        self._station = station
        self._function = function
        self._handlers = handlers
        self._deadline = deadline
        self._service_s = service_s
        self._is_write = is_write
        self._runs_late = runs_late
        self._may_repeat = (runs_late and not is_write) if may_repeat is None else may_repeat

    def run(self) -> T:
        """Return the answer of the server, or raise the error that the caller sees."""
        self._send()
        self._arrive()
        handlers = self._handlers
        taken: list[Handler] = []
        error: MetaClientError | None = None
        station = self._station
        try:
            if not handlers.take(self._deadline, taken):
                raise self._dropped()
            if self._service_s and not self._serve(taken):
                raise self._timeout("the call was still being served", may_have_applied=self._is_write)
            handler = taken[0]
        except BaseException:
            handlers.free.extend(taken)
            handlers.wake()
            raise
        try:
            if station.is_hung or not station.is_listening:
                self._check_alive()
            if self._is_write:
                handler.writes += 1
            else:
                handler.reads += 1
            answer = self._function()
        except MetaClientError as raised:
            error = raised
        finally:
            handlers.free.append(handler)  # not give_back(): an interrupt at its first line would keep the handler
        if handlers.waiting:
            handlers.wake()
        try:
            self._reply()
            if error is not None:
                raise error
            return answer
        finally:
            error = None  # error -> traceback -> this frame -> error would be a cycle for every failed call

    # -- the way there -----------------------------------------------------------------------------------------

    def _send(self) -> None:
        network, source, target = self._network, self._caller.party, self._station.party
        if network.is_quiet:
            return
        delay = self._delay(source, target, cut="no route to it", lost="the request was lost")
        if self._may_repeat and network.has_rules and network.repeats(source, target):
            self._repeat(network.message_delay(source, target))
        if delay and not self._sleep(delay):
            self._run_late(delay)
            raise self._timeout("the request is still on its way", may_have_applied=self._is_write)

    def _repeat(self, delay: float | None) -> None:
        """Deliver the message a second time, with its own delay; its answer is dropped."""
        if delay is None:
            return

        def arrive() -> None:
            self._runtime.sleep(delay)
            self._execute_late()

        self._start(arrive)

    def _arrive(self) -> None:
        station = self._station
        while True:
            if self._network.is_closed or self._caller.is_closed:
                raise ConnectionClosed("the connection was closed during the call")
            if not station.is_listening:
                raise ServerUnreachable(f"connection refused by {station.party}")
            if not station.is_hung:
                break
            self._wait_for_wake_up("it accepts connections and does not answer")
        station.check_running()

    def _wait_for_wake_up(self, why: str) -> None:
        """Wait for a hung server; at the deadline the call stays in its sockets."""
        station = self._station
        try:
            self._wait(lambda: not station.is_hung, why)
        except CallTimeout:
            if self._runs_late:
                station.keep_for_wake_up(self._execute_late)
            raise

    # -- there -------------------------------------------------------------------------------------------------

    def _serve(self, taken: list[Handler]) -> bool:
        """Hold the handler for the service time; False when the deadline comes first, and the handler goes on alone."""
        is_served = self._sleep(self._service_s)
        if not is_served:
            handler = taken[0]
            del taken[0]
            self._hand_over(handler)
        return is_served

    def _check_alive(self) -> None:
        """The server may have died, hung or been stopped while the call was with it."""
        station = self._station
        if station.is_hung:
            self._wait_for_wake_up("it stopped answering in the middle of the call")
        if not station.is_listening:
            raise self._reset()

    def _hand_over(self, handler: Handler) -> None:
        """Let the server finish the call in a task of its own, because the caller's deadline has passed."""
        late_s = self._service_s - max(0.0, self._deadline - self._runtime.now())

        def finish() -> None:
            try:
                self._runtime.sleep(max(0.0, late_s))
                self._execute_late()
            finally:
                self._handlers.give_back(handler)

        if not self._start(finish):
            self._handlers.give_back(handler)

    def _run_late(self, delay_s: float) -> None:
        if not self._runs_late:
            return
        arrives_in_s = delay_s - max(0.0, self._deadline - self._runtime.now())

        def arrive() -> None:
            self._runtime.sleep(max(0.0, arrives_in_s))
            self._execute_late()

        self._start(arrive)

    def _start(self, task: Callable[[], None]) -> bool:
        try:
            self._runtime.start(task, name="late-call")
        except (Overloaded, ConnectionClosed):
            return False  # as a full socket buffer: the message is gone
        return True

    def _execute_late(self) -> None:
        station = self._station
        if not station.is_listening or not self._runs_late:
            return
        if station.is_hung:
            station.keep_for_wake_up(self._execute_late)
            return
        try:
            station.check_running()
            self._function()
        except MetaClientError:
            pass  # the caller is gone, so the error is dropped as an answer would be

    # -- the way back ------------------------------------------------------------------------------------------

    def _reply(self) -> None:
        network, source, target = self._network, self._station.party, self._caller.party
        if network.is_quiet:
            return
        delay = self._delay(source, target, cut="the answer cannot come back", lost="the answer was lost")
        if delay and not self._sleep(delay):
            raise self._timeout("the answer is still on its way", may_have_applied=self._is_write)
        if not self._station.is_listening:
            raise self._reset()

    def _delay(self, source: str, target: str, *, cut: str, lost: str) -> float:
        """Return the delay of a message. Wait while a partition holds it; a lost one waits for the deadline."""
        network = self._network
        if network.has_partitions and network.is_cut(source, target):
            self._wait(lambda: not network.is_cut(source, target), cut)
        delay = network.message_delay(source, target)
        if delay is None:
            self._wait(_never, lost)
        assert delay is not None, "a lost message has raised CallTimeout or ConnectionClosed"
        return delay

    # -- time --------------------------------------------------------------------------------------------------

    def _sleep(self, seconds: float) -> bool:
        """Sleep, at most until the deadline; return True if all of the time has passed."""
        left = self._deadline - self._runtime.now()
        wanted = seconds if seconds <= left else left if left > 0.0 else 0.0
        if wanted <= _SHORT_S:
            self._runtime.sleep(wanted)
        else:
            self._wait_for_end(self._runtime.now() + wanted)
        return seconds <= left

    def _wait_for_end(self, instant: float) -> None:
        """Sleep until the instant; raise ConnectionClosed when the caller or the network is closed."""
        if self._network.wait_until(self._is_over, instant):
            raise ConnectionClosed("the connection was closed during the call")

    def _is_over(self) -> bool:
        return self._network.is_closed or self._caller.is_closed

    def _wait(self, holds: Callable[[], bool], why: str) -> None:
        """Wait until ``holds()``; raise CallTimeout at the deadline."""
        if not self._network.wait_until(lambda: self._is_over() or holds(), self._deadline):
            raise self._timeout(why, may_have_applied=self._is_write)
        if self._is_over():
            raise ConnectionClosed("the connection was closed during the call")

    def _timeout(self, why: str, *, may_have_applied: bool = False) -> CallTimeout:
        return CallTimeout(f"{self._station.party} did not answer in time: {why}", may_have_applied=may_have_applied)

    def _reset(self) -> MetaClientError:
        """Return the error for a server that is gone: it died, or its cluster was closed."""
        if self._is_over():
            return ConnectionClosed("the connection was closed during the call")
        return ServerUnreachable(f"connection reset by {self._station.party}", may_have_applied=self._is_write)

    def _dropped(self) -> MetaClientError:
        if not self._station.is_listening:
            return self._reset()
        return self._timeout("the call waited in its queue until the deadline and was dropped")


#: Shorter sleeps are not interrupted by a close, because a close may be this late.
_SHORT_S = 0.05


def _never() -> bool:
    return False
