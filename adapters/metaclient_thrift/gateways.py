"""The gateways of one backend: their order, their ejections, and a bounded pool of connections to each.

1. Calls go round-robin over the gateways that are not ejected. A gateway that cannot be connected to is ejected for a
   time that doubles with each failure; the next gateway is tried at once, because nothing was sent yet. When all are
   ejected, the one whose ejection ends first is tried.
2. A gateway that has not answered several calls in a row is ejected, too. One call is not enough: the region server
   behind the gateway may hang, and then the gateway answers other calls meanwhile.
3. After its ejection a gateway is probed by one call. Until that call is answered, the gateway is ejected again, for
   twice as long: otherwise all calls would wait with the probe, and lookups would blame the meta replica that they
   read.
4. A connection is used by one call at a time. A call that timed out, broke, was interrupted, or got the reply to
   another call (by its sequence id) drops it: a late reply must never be read as the reply to the next call.
5. A connection is checked before each use: gateways hang up after 60 s of silence, and bytes that belong to no call
   mean that the replies are out of step. In both cases another connection is used, and no call fails.
6. A caller that finds all connections in use waits in a queue. A returned connection goes to the first caller in the
   queue that may use it, and only that caller is woken. Otherwise callers that come later could take it first, and the
   slowest of many callers would wait for seconds. The thread that returns a connection lends the *gateway* to the
   waiting caller. That caller then moves an idle connection into its loan. An interrupt of either thread therefore
   leaves each connection idle or in exactly one loan.
7. The caller makes a :class:`Loan` and passes it to ``borrow``. If an exception interrupts the caller
   (KeyboardInterrupt, or one that a signal handler raises), even inside of ``borrow``, ``drop`` of that loan leaves no
   connection counted.
"""

from __future__ import annotations

import enum
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from metaclient.errors import ConnectionClosed, MetaClientError, NoConnectionsAvailable, ServerUnreachable
from metaclient.runtime import Condition, Runtime
from metaclient_thrift.link import Link
from metaclient_thrift.url import Gateway

__all__ = ["DropCause", "Gateways", "Loan"]

_log = logging.getLogger(__name__)
#: The first ejection, and the longest; the same as for meta replicas (meta_ejection_s, meta_ejection_max_s).
OUT_S, OUT_S_MAX = 1.0, 60.0
#: Calls without an answer, in a row, after which a gateway is ejected.
SILENT_CALLS_MAX = 3
#: For one connection: a gateway whose host drops packets must leave time for the next one. HBase's clients take
#: 10 s (hbase.ipc.client.socket.timeout.connect).
CONNECT_S_MAX = 5.0


class DropCause(enum.Enum):
    """Why a connection is dropped."""

    ABANDONED = "abandoned"  # an interrupt, or replies out of step: not a failure of the gateway
    SILENT = "silent"  # no reply before the deadline
    BROKEN = "broken"  # an error of the network


class Loan:
    """The claim of one call to a connection: its gateway, and the connection as soon as there is one."""

    __slots__ = ("_gateway", "_link")

    def __init__(self) -> None:
        self._gateway: Gateway | None = None
        self._link: Link | None = None

    @property
    def gateway(self) -> Gateway:
        assert self._gateway is not None, "nothing was borrowed"
        return self._gateway

    @property
    def link(self) -> Link:
        assert self._link is not None, "nothing was borrowed"
        return self._link


@dataclass(slots=True)
class _State:
    """The state of one gateway; guarded by the lock of `Gateways`."""

    idle: deque[Link] = field(default_factory=deque)
    lent: set[Loan] = field(default_factory=set)
    failures: int = 0
    silent_calls: int = 0
    out_until: float = float("-inf")

    def eject(self, now: float) -> float:
        """Eject the gateway, for twice as long as the last time; return the seconds."""
        out_s: float = min(OUT_S * 2**self.failures, OUT_S_MAX)
        self.failures += 1
        self.out_until = now + out_s
        self.silent_calls = 0
        return out_s


@dataclass(slots=True, eq=False)
class _Waiting:
    """A caller in the queue: its loan, the gateways that it may use, and the condition that wakes it."""

    loan: Loan
    failed: set[Gateway]
    only: Gateway | None
    lent: Condition

    @property
    def is_choosy(self) -> bool:
        """True if it cannot use every gateway, so that a later caller may be served first."""
        return self.only is not None or bool(self.failed)


class Gateways:
    """See the module's docstring. ``dial`` connects to one gateway or raises ServerUnreachable."""

    def __init__(
        self,
        gateways: Sequence[Gateway],
        dial: Callable[[Gateway, float], Link],
        *,
        runtime: Runtime,
        connections_max: int,
    ) -> None:
        self._dial = dial
        self._runtime = runtime
        self._connections_max = connections_max
        self._states = {gateway: _State() for gateway in gateways}
        self._order = list(self._states)
        self._is_closed = False
        self._begin()
        runtime.on_fork(self._renew)

    def _begin(self) -> None:
        """Start without connections in use and without waiting callers, at first and in a child process."""
        self._lock = self._runtime.lock()
        # Guarded by the lock, as the states, their order and _is_closed are:
        self._turn = self._runtime.rng.randrange(len(self._order))  # spreads clients that start together
        self._queue: dict[_Waiting, None] = {}  # in the order of arrival; each caller has its deadline
        self._choosy = 0  # callers in the queue that are choosy

    def _renew(self) -> None:
        """In a child process: start without connections; all of the parent's are left to the parent."""
        for link in self._links():
            link.transport.leave_to_parent()
        self._states = {
            gateway: _State(failures=state.failures, out_until=state.out_until)
            for gateway, state in self._states.items()
        }
        self._begin()

    def _links(self) -> list[Link]:
        """Return every connection, idle or in use."""
        states = self._states.values()
        lent = [loan._link for state in states for loan in state.lent if loan._link is not None]
        return [*lent, *(link for state in states for link in state.idle)]

    # -- borrowing -----------------------------------------------------------------------------------------------

    def borrow(self, loan: Loan, deadline: float, only: Gateway | None = None) -> Loan:
        """Fill the loan with a connection to the next gateway, or to ``only`` that one.

        The caller gives the loan back or drops it, also when this raises an exception.
        """
        failed: set[Gateway] = set()
        is_planned = only is None and self._lend_idle(loan)
        while True:
            if not is_planned:
                self._plan(loan, deadline, failed, only)
            is_planned = False
            # Outside of the lock: the check is a system call, for which other callers would wait.
            while (link := loan._link) is not None:
                if link.transport.is_usable():
                    return loan
                self._replace_unusable(loan, link)
            try:
                self._dial_for(loan, min(deadline, self._runtime.now() + CONNECT_S_MAX))
                return loan
            except ServerUnreachable as error:
                self._on_unreachable(loan.gateway, error, loan)
                failed.add(loan.gateway)
                if only is not None or len(failed) == len(self._order) or self._runtime.now() >= deadline:
                    raise

    def borrow_idle(self, loan: Loan, only: Gateway) -> bool:
        """Fill the loan with an idle connection to this gateway, without waiting; return False if there is none.

        At most half of the connections are lent, so that others are free for the calls of worker threads: a call that
        was sent in this way holds its connection until a worker thread is free.
        """
        with self._lock:
            self._check_open()
            state = self._states[only]
            if not state.idle or self._queue or 2 * len(state.lent) >= self._connections_max - 1:
                return False
            loan._gateway = only
            state.lent.add(loan)
            self._take_idle(loan, state)
        if loan.link.transport.is_usable():
            return True
        self.drop(loan)
        return False

    def _lend_idle(self, loan: Loan) -> bool:
        """Lend an idle connection to the gateway whose turn it is; return False if `_plan` has to choose.

        This is the usual case, in one step: with many callers, each function call inside of the lock is noticeable.
        """
        order = self._order
        with self._lock:
            turn = self._turn + 1
            gateway = order[turn % len(order)]
            state = self._states[gateway]
            idle = state.idle
            if not idle or self._is_closed or state.failures or state.silent_calls:
                return False
            if len(state.lent) >= self._connections_max:
                return False
            self._turn = turn
            loan._gateway = gateway
            state.lent.add(loan)
            loan._link = idle[-1]  # first: an interrupt must find the connection either idle or in a loan
            idle.pop()
            return True

    def _plan(self, loan: Loan, deadline: float, failed: set[Gateway], only: Gateway | None) -> None:
        """Lend the gateway to use, and an idle connection to it if there is one."""
        with self._lock:
            self._check_open()
            if not self._lend(loan, failed, only):
                self._wait_for_loan(_Waiting(loan, failed, only, self._runtime.condition(self._lock)), deadline)
            self._take_idle(loan, self._states[loan.gateway])

    def _wait_for_loan(self, waiting: _Waiting, deadline: float) -> None:
        """Wait in the queue until the caller has a gateway; NoConnectionsAvailable at the deadline."""
        try:
            self._queue[waiting] = None
            self._choosy += waiting.is_choosy
            while not self._is_lent(waiting.loan):
                is_notified = waiting.lent.wait(deadline)
                self._check_open()
                if not is_notified and not self._is_lent(waiting.loan) and self._runtime.now() >= deadline:
                    raise NoConnectionsAvailable(
                        f"all {self._connections_max} connections to each Thrift gateway were in use "
                        "(?connections= in the url allows more)"
                    )
        finally:
            self._leave_queue(waiting)

    def _leave_queue(self, waiting: _Waiting) -> None:
        self._queue.pop(waiting, None)
        self._choosy = sum(one.is_choosy for one in self._queue) if self._choosy else 0

    def _serve_queue(self) -> None:
        """Lend gateways to waiting callers, in their order, as far as connections are free."""
        if self._choosy:  # the callers of scanners, and after failures: one may be served before an earlier one
            for waiting in tuple(self._queue):
                self._serve(waiting)
        while self._queue and self._serve(next(iter(self._queue))):
            pass

    def _serve(self, waiting: _Waiting) -> bool:
        """Lend a gateway to a waiting caller and wake the caller; return False if it has to wait on."""
        # Lent already if an interrupt ended this function before it woke the caller.
        if not self._is_lent(waiting.loan) and not self._lend(waiting.loan, waiting.failed, waiting.only):
            return False
        waiting.lent.notify()
        self._leave_queue(waiting)
        return True

    def _is_lent(self, loan: Loan) -> bool:
        return loan._gateway is not None and loan in self._states[loan._gateway].lent

    def _lend(self, loan: Loan, failed: set[Gateway], only: Gateway | None) -> bool:
        """Lend a gateway without its connection; return False if all connections that it may use are in use."""
        gateway = self._next(failed, only)
        if gateway is None:
            return False
        loan._gateway = gateway
        self._states[gateway].lent.add(loan)
        return True

    def _next(self, failed: set[Gateway], only: Gateway | None) -> Gateway | None:
        """Return the gateway to use; None when all connections of the possible gateways are in use."""
        if only is not None:
            return only if len(self._states[only].lent) < self._connections_max else None
        now = self._runtime.now()
        count = len(self._order)
        turns = [self._order[(self._turn + at) % count] for at in range(1, count + 1)]
        candidates = [gateway for gateway in turns if gateway not in failed]
        healthy = [gateway for gateway in candidates if self._states[gateway].out_until <= now]
        # All are ejected: the one whose ejection ends first may serve again already.
        wanted = healthy or sorted(candidates, key=lambda gateway: self._states[gateway].out_until)
        most = self._connections_max
        chosen = next((gateway for gateway in wanted if len(self._states[gateway].lent) < most), None)
        if chosen is None:
            return None
        self._turn += 1
        if healthy and self._states[chosen].failures:
            self._states[chosen].eject(now)
        return chosen

    def _take_idle(self, loan: Loan, state: _State) -> None:
        """Move the connection that was used last from the idle ones to the loan, if there is one."""
        if state.idle:
            loan._link = state.idle[-1]  # first: an interrupt must find the connection either idle or in a loan
            state.idle.pop()

    def _replace_unusable(self, loan: Loan, link: Link) -> None:
        """Close a connection that cannot be used, and take another idle one to the same gateway if there is one."""
        link.close()
        with self._lock:
            loan._link = None
            if self._is_lent(loan):  # not so after a fork in a signal handler of this thread
                self._take_idle(loan, self._states[loan.gateway])

    def _dial_for(self, loan: Loan, deadline: float) -> None:
        link = self._dial(loan.gateway, deadline)
        with self._lock:
            loan._link = link
            is_closed = self._is_closed or loan not in self._states[loan.gateway].lent  # by close() or _renew meanwhile
        if is_closed:
            link.close()
            self._check_open()
            raise ServerUnreachable(f"{loan.gateway}: this process forked while it connected")

    # -- giving back ---------------------------------------------------------------------------------------------

    def give_back(self, loan: Loan) -> None:
        """Return a connection whose call was answered, by a result or by an error of HBase."""
        with self._lock:
            state = self._states[loan.gateway]
            if loan not in state.lent:
                return  # closed by _renew: this thread forked during the call, in a signal handler
            state.silent_calls = state.failures = 0
            state.out_until = float("-inf")
            is_kept = not self._is_closed
            if is_kept:
                state.idle.append(loan.link)
            state.lent.discard(loan)
            if self._queue:
                self._serve_queue()
        if not is_kept:
            loan.link.close()

    def drop(self, loan: Loan, cause: DropCause = DropCause.ABANDONED) -> None:
        """Close the connection of a loan. Without effect on a loan that was given back or dropped already.

        After an interrupt this may be called at any point of ``borrow`` or ``give_back``.
        """
        gateway = loan._gateway
        if gateway is None:
            return
        with self._lock:
            closing = self._dropped(loan, gateway, cause)
            self._states[gateway].lent.discard(loan)
            self._serve_queue()
        for one in closing:
            one.close()

    def _dropped(self, loan: Loan, gateway: Gateway, cause: DropCause) -> list[Link]:
        """Count a dropped connection against its gateway; return the connections to close."""
        state, link = self._states[gateway], loan._link
        if loan not in state.lent or link is None or link in state.idle:
            return []  # given back or never taken, or as in give_back
        state.silent_calls += cause is DropCause.SILENT
        # With a single gateway a region server is silent rather than the gateway, and there is no other way to it.
        is_mute = state.silent_calls >= SILENT_CALLS_MAX and len(self._order) > 1
        is_ejected = (cause is DropCause.BROKEN or is_mute) and not self._is_closed
        return [link, *(self._eject(gateway, state) if is_ejected else ())]

    def _on_unreachable(self, gateway: Gateway, error: MetaClientError, loan: Loan | None = None) -> None:
        with self._lock:
            state = self._states[gateway]
            closing = self._eject(gateway, state)  # first: no waiting caller may get this gateway now
            if loan is not None:
                state.lent.discard(loan)
                self._serve_queue()
        for link in closing:
            link.close()
        _log.debug("%s", error)

    def _eject(self, gateway: Gateway, state: _State) -> list[Link]:
        """Eject a gateway; return its idle connections, which the caller closes after it has released the lock."""
        now = self._runtime.now()
        if state.out_until <= now:  # calls that fail together count once
            _log.warning("the Thrift gateway %s is ejected for %.0f s", gateway, state.eject(now))
        idle, state.idle = list(state.idle), deque()
        return idle

    # -- the end -------------------------------------------------------------------------------------------------

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def _check_open(self) -> None:
        if self._is_closed:
            raise _closed()

    def close(self) -> None:
        """Close every connection, those in use too: their calls end now."""
        with self._lock:
            self._is_closed = True
            links = self._links()
            for state in self._states.values():
                state.idle.clear()
            # Under the lock, for which callers that retry at once wait meanwhile. Each close() releases the GIL, and it
            # takes a second to acquire it again while hundreds of callers retry in a busy loop.
            for link in links:
                link.close()
            for waiting in self._queue:
                waiting.lent.notify()

    def status(self) -> dict[str, dict[str, object]]:
        """Return the connections, the ejection and the failures per gateway, as JSON values."""
        with self._lock:
            now = self._runtime.now()
            return {
                str(gateway): {
                    "idle": len(state.idle),
                    "in_use": len(state.lent),
                    "is_out": state.out_until > now,
                    "failures": state.failures,
                }
                for gateway, state in self._states.items()
            }


def _closed() -> ConnectionClosed:
    return ConnectionClosed("the connection to the Thrift gateways is closed")
