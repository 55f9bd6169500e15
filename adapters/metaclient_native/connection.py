"""One connection to one service of one server, with many calls in flight.

1. A call gets an id. It is entered in the table of calls, and its frame in the queue. A thread that begins to wait
   sends all queued frames in one write, unless another thread is sending: sixteen calls that are made before the first
   wait cost one write. The first write also carries the preamble and the connection header: there is no round trip for
   them.
2. Responses arrive in any order and are matched by id. A response whose call is no longer in the table (it timed out,
   or lost a race, or its server was hung) is dropped and counted.
3. A thread that makes a call and waits for it (``Connection.ask``, a `DirectCall`) reads the socket itself if no other
   thread does: a single caller pays for no switch between threads. While other calls are in flight, the connection's
   own task reads, until none is left. It wakes the threads whose responses it has read, one after the other, and each
   decodes its own (`sending.py`). Frames that are queued meanwhile are sent by the last one, in one write. Calls
   that any thread can wait for (``Connection.call``, a `PendingCall`) are completed by the reader: the task, or a
   thread that waits for a single one of them (``PendingCall.help``). There is one reader at a time.
4. When the stream ends, or its bytes are not a frame, all calls in flight fail. `Connections` makes a new connection
   for the next call. An idle connection is closed after ``IDLE_S``.
5. A connection on which calls time out and no whole frame arrives is *retired*: the network may drop the packets of
   this TCP flow only, or the length of a frame was corrupted and all responses are read as the rest of that frame. A
   retired connection accepts no new call, so that the next call dials again. The calls in flight are still waited for:
   a server that only paused answers them. The connection is closed when no call is left.
6. An exception that interrupts a caller (KeyboardInterrupt, or one that a signal handler raises) while it sends or
   reads ends the connection: half a frame may have been sent, or half a response lost. CPython raises such an exception
   when a function call returns, or begins. So the role is noted in a local variable in the same statement that takes
   it.
"""

from __future__ import annotations

import logging
from itertools import count
from typing import Any, TypeVar, cast

from metaclient.errors import (
    AuthenticationFailed,
    CallTimeout,
    ConnectionClosed,
    MetaClientError,
    ServerUnreachable,
    note_interrupt,
)
from metaclient.protobuf import ProtocolError
from metaclient.runtime import Runtime
from metaclient.runtime.waiting import Blocking, Waiter
from metaclient.wire.reply_limit import REPLY_BYTES_MAX, RESULT_BYTES_KEY
from metaclient.wire.rpc import framing
from metaclient.wire.rpc.framing import CONNECTION_CALL_ID, FrameReader, Response, parse_response
from metaclient.wire.stream import Dial
from metaclient_native import errors
from metaclient_native.in_flight import (
    DOUBT_S,
    UNASKED,
    DirectCall,
    InFlight,
    PendingCall,
    Unasked,
    explain_abandoned,
    explain_bad_response,
    explain_end,
    explain_exception,
    explain_full,
    explain_inherited,
    explain_nested,
    explain_timeout,
    is_silent_too_long,
)
from metaclient_native.loop_half import CALL_IDS, CALLS_MAX, ROUND_S, LoopHalf, State
from metaclient_native.request import Request, ServiceAddress
from metaclient_native.security import Security

__all__ = ["Connection", "PendingCall"]

T = TypeVar("T")
_log = logging.getLogger(__name__)
#: As HBase's own client (hbase.ipc.client.connection.minIdleTimeBeforeClose).
IDLE_S = 120.0
CONNECT_S_MAX = 10.0
#: Frames of more bytes than this are sent at once, even if no thread waits yet.
HELD_BYTES_MAX = 64 * 1024
#: Bytes per read of the stream: the response to a get fits, and a page of a scan arrives in few reads.
READ_BYTES_MIN = 64 * 1024
READ_BYTES_MAX = 1024 * 1024


#: Calls with their responses, which were read and are not decoded yet.
Answers = list[tuple[InFlight, Response]]


class Connection(LoopHalf):
    """See the module's docstring. Made by :class:`~metaclient_native.connections.Connections`.

    It has more than 30 methods because callers, the sender and the reader share one lock and the state that it guards.
    """

    def __init__(
        self,
        address: ServiceAddress,
        *,
        runtime: Runtime,
        security: Security,
        dial: Dial,
        reply_bytes_max: int = REPLY_BYTES_MAX,
    ) -> None:
        super().__init__(runtime)
        self._runtime = runtime
        self._blocking = cast("Blocking", runtime)  # the part of the runtime that a Pending uses
        self._host, self._port, self._service = address
        self.address = f"{self._host}:{self._port}"
        self._security = security
        self._dial = dial
        self._begin()
        self._ids = count(1)
        # Guarded by the lock:
        self._state = State.CONNECTING
        self._calls: dict[int, InFlight] = {}
        self._is_read = True  # a thread is reading; at first the task
        self._reader = 0  # the thread that reads; 0 for the task
        self._is_wanted = False  # a thread waits without reading: the task must read
        # Used by the reading thread only:
        self._frames = FrameReader(reply_bytes_max, RESULT_BYTES_KEY)
        self._answered_at = float("-inf")  # when the last whole frame arrived
        self._asked_at = float("-inf")  # when the first call after that frame was made
        self._swept_at = float("-inf")
        self._has_answered = False
        self.late = 0

    def _begin(self) -> None:
        self._lock = self._runtime.lock()
        self._news = self._runtime.condition(self._lock)  # notifies the task: it must read, or the connection has ended

    @property
    def is_closed(self) -> bool:
        return self._state is State.CLOSED

    @property
    def calls(self) -> int:
        """The number of calls in flight."""
        return len(self._calls)

    def __repr__(self) -> str:
        return f"<Connection {self.address} {self._service} {self._state.value}: {len(self._calls)} calls>"

    # -- calling -----------------------------------------------------------------------------------------------------

    def call(self, request: Request[T]) -> PendingCall[T]:
        """Enter a call, without blocking. It is sent when a thread waits for a call of this connection, or by `flush`.

        ConnectionResetError when this connection accepts no more calls: the caller makes another connection.
        """
        now = self._now()
        method, param, _, deadline, what, cells, priority, _, _ = request
        call = PendingCall(self, request, now)
        timeout_ms = int((deadline - now) * 1000)
        if timeout_ms <= 0:
            raise CallTimeout(f"there was no time left for {what}")
        if now - self._answered_at > DOUBT_S:
            self._doubt(now, deadline - now)
        if len(self._calls) >= CALLS_MAX:
            self.fail_overdue()
        with self._lock:
            if self._state is State.CLOSED or self._state is State.RETIRED:
                raise ConnectionResetError(f"{self!r} accepts no more calls")
            if self._is_full(CALLS_MAX):
                raise explain_full(self.address, len(self._calls), self._queued_bytes)
            call_id = call.call_id = next(self._ids) & CALL_IDS
            frame = framing.request(call_id, method, param, cells, priority=priority, timeout_ms=timeout_ms)
            size = len(frame)
            # No function is called between these statements: an interrupt leaves all of them done, or none.
            if self._asked_at <= self._answered_at:
                self._asked_at = now
            self._queued_bytes += size
            self._calls[call_id] = call
            self._queue.append(frame)
            is_long = self._queued_bytes > HELD_BYTES_MAX
        if is_long:
            self.flush(deadline)
        return call

    def ask(self, request: Request[T], until: float | None = None) -> T | PendingCall[T] | Unasked:
        """Make a call, wait for its response, and decode the response in this thread; CallTimeout at the deadline.

        This thread sends unless another thread is sending, which then sends this frame, too. It reads unless another
        thread is reading, which then wakes this thread. A call without a response at the instant ``until`` stays in
        flight, and is returned as a `PendingCall`. UNASKED, without any effect, unless this connection is open and was
        answered lately.
        """
        now = self._now()
        method, param, _, deadline, _, cells, priority, _, _ = request
        timeout_ms = int((deadline - now) * 1000)
        if timeout_ms <= 0 or now - self._answered_at > DOUBT_S:
            return UNASKED
        waits_until = deadline if until is None or until > deadline else until
        call = DirectCall(request, now)
        call_id = next(self._ids) & CALL_IDS
        frame = framing.request(call_id, method, param, cells, priority, timeout_ms)
        size = len(frame)
        waiter: Waiter | None = None
        is_reader = is_sender = False
        me = self._check_nested(request, may_have_applied=False)
        try:
            with self._lock:
                if self._state is not State.OPEN or (self._calls and self._is_full(CALLS_MAX)):
                    return UNASKED
                # The task has been notified if a reader is wanted and calls are in flight.
                if self._is_read or (self._is_wanted and self._calls):
                    waiter = call.waiter = self._blocking.waiter()
                    call.is_queued = not self._blocking.runs_signal_handlers()
                    self._is_wanted = True
                else:
                    is_reader = self._is_read = True
                    self._reader = me
                if self._asked_at <= self._answered_at:
                    self._asked_at = now
                self._calls[call_id] = call
                is_held = self._is_sending or (bool(self._woken) and self._is_resuming(now))
                if is_held or self._queue:
                    self._queued_bytes += size
                    self._queue.append(frame)
                if not is_held:
                    is_sender = self._is_sending = True
                    if self._queue:
                        frame = self._dequeue()
            if is_sender:
                self._send(frame, deadline)
                is_sender = False
            if waiter is not None:
                waiter.park(waits_until, call)
                self._resume(call)
            else:
                while not call.is_done and self._now() < waits_until:
                    self._read(waits_until)
                self._stop_reading()
        except BaseException as error:
            self._calls.pop(call_id, None)
            self._give_up_roles(call, error, is_reader=is_reader, is_sender=is_sender)
            raise
        return call.decode(self.address) if call.is_done else self._unanswered(call, call_id, waits_until < deadline)

    def _give_up_roles(self, call: DirectCall[Any], error: BaseException, *, is_reader: bool, is_sender: bool) -> None:
        """End the part that an interrupted thread, or a cancelled greenlet of an event loop, has in this connection."""
        is_cancelled = not self._runtime.callers_help and not isinstance(error, Exception)
        if is_reader and is_cancelled and not is_sender:
            self._stop_reading()  # it was cancelled while it waited for bytes, of which none is lost
        elif is_reader or is_sender:
            self._interrupted(error)
        self._resume(call)
        if is_cancelled:
            note_interrupt(error, is_write=call.request.is_write)

    def _unanswered(self, call: DirectCall[T], call_id: int, is_left: bool) -> T | PendingCall[T]:
        """Leave a call without a response in flight, or raise CallTimeout."""
        if is_left:
            left = call.leave(self, call_id)
            return call.decode(self.address) if left is None else left
        self._calls.pop(call_id, None)
        self._check_silence(call)
        raise explain_timeout(call.request)

    def _doubt(self, now: float, call_s: float) -> None:
        """After a silence, read what arrived while no thread was reading: a hang-up, or late responses."""
        is_reader = False
        try:
            with self._lock:
                stream = self._stream
                is_used = self._state is not State.OPEN or self._is_read or self._calls or stream is None
                if not is_used and stream is not None and not stream.is_silent():
                    is_reader = self._is_read = True
                    self._reader = self._blocking.thread_id()
            if is_reader:
                self._read(now + ROUND_S)  # there are bytes, or the end of the stream
                self._stop_reading()
        except BaseException as error:
            if is_reader:
                self._interrupted(error)
            raise
        self._retire_if_silent(now, call_s)

    def _check_silence(self, call: InFlight) -> None:
        """Retire the connection if this call's deadline has passed, and nothing arrived for long before it."""
        now, deadline = self._now(), call.request.deadline
        if now >= deadline:
            self._retire_if_silent(now, deadline - call.begun)

    def _retire_if_silent(self, now: float, call_s: float) -> None:
        if not is_silent_too_long(asked_at=self._asked_at, answered_at=self._answered_at, now=now, call_s=call_s):
            return
        with self._lock:
            is_connecting = self._state is State.CONNECTING
            if self._state is State.OPEN:
                self._state = State.RETIRED
                self._is_wanted = True
                self._news.notify_all()
                _log.warning(
                    "%s: no answer for %.1f s, the next call makes a new connection", self.address, now - self._asked_at
                )
        if is_connecting:  # nothing was sent
            text = f"{self.address} did not accept a connection within {now - self._asked_at:.1f} s"
            self._end(ServerUnreachable(text))

    def _forget(self, call: PendingCall[T]) -> None:
        with self._lock:
            self._calls.pop(call.call_id, None)

    # -- reading -----------------------------------------------------------------------------------------------------

    def _drive(self, call: PendingCall[T], deadline: float) -> None:
        """Send, then read in the thread that waits for this call, unless another thread sends or reads."""
        is_reader = is_sender = False
        me = self._check_nested(call.request, may_have_applied=call.request.is_write)
        try:
            with self._lock:
                if self._queue and not self._is_sending:
                    is_sender = self._is_sending = True
                    data = self._dequeue()
                # A call that is not in the table was read by the task, which completes it after it has stopped reading.
                is_open = self._state is State.OPEN or self._state is State.RETIRED
                if is_open and not self._is_read and call.call_id in self._calls:
                    is_reader = self._is_read = True
                    self._reader = me
            if is_sender:
                self._send(data, call.request.deadline)
            if not is_reader:
                return
            while not call._is_done and self._now() < deadline:
                self._read(deadline)
            self._stop_reading()
        except BaseException as error:
            if is_reader or is_sender:
                self._interrupted(error)
            raise

    def _check_nested(self, request: Request[Any], *, may_have_applied: bool) -> int:
        """Return this thread's number; raise Unsupported if it is the thread that reads: a signal handler runs in it.

        This is checked before the lock is taken, which the interrupted call may hold.
        """
        me = self._blocking.thread_id()
        if self._reader == me and me and self._is_read and self._state is not State.CLOSED:
            raise explain_nested(self.address, request, may_have_applied=may_have_applied)
        return me

    def _interrupted(self, error: BaseException) -> None:
        """End the connection after an interrupt: a frame may be half sent, or a response half read."""
        self._end(explain_abandoned(self.address, error))

    def _stop_reading(self) -> None:
        """Give up the role of reader. The task takes it if a thread waits that does not read."""
        with self._lock:
            self._is_read = False
            if self._is_wanted:
                if self._calls or self._state is not State.OPEN:
                    self._news.notify()
                else:
                    self._is_wanted = False

    def _want_reader(self) -> None:
        """Let the task read, because a thread waits that does not read."""
        with self._lock:
            if not self._is_wanted:
                self._is_wanted = True
                if not self._is_read:
                    self._news.notify()

    def _read(self, deadline: float) -> None:
        """Read once and complete the calls whose responses are whole; an interrupt fails those calls."""
        answers: Answers = []
        try:
            self._receive(deadline, answers)
            self._finish(answers)
        except BaseException as error:
            self._give_up(answers, error)
            raise

    def _receive(self, deadline: float, answers: Answers) -> None:
        """Read once and append the whole responses. The end, or bytes that are no frame, end the connection.

        Responses before such bytes are appended, too: their calls are no longer in the table, so `_end` does not fail
        them.
        """
        stream = self._stream
        data: bytes | None = None
        if stream is None:
            return
        try:
            missing = self._frames.missing
            data = stream.read(READ_BYTES_MIN if missing < READ_BYTES_MIN else min(missing, READ_BYTES_MAX), deadline)
            if data is None:
                return
            if not data:
                self._end(self._ask_why_closed(deadline) or EOFError("the server closed the connection"))
                return
            calls, now = self._calls, self._now()
            for frame in self._frames.feed(data):
                self._answered_at = now
                response = parse_response(frame)
                call = calls.get(response[0])
                if call is None:
                    self._take_unmatched(response)
                else:
                    answers.append((call, response))
                    calls.pop(response[0], None)  # after the append; one reader, and dict.pop is atomic: no lock
                    self._has_answered = True
        except (OSError, AuthenticationFailed) as error:
            self._end(error)
        except ProtocolError as error:
            self._end(errors.explain_no_frame(error, self.address, b"" if self._has_answered else data))

    def _ask_why_closed(self, deadline: float) -> AuthenticationFailed | None:
        """Ask a server that closed the connection before its first response whether it requires authentication."""
        if self._has_answered:
            return None
        address = ServiceAddress(self._host, self._port, self._service)
        return self._security.ask_why_closed(self._dial, address, self._now, deadline)

    def _take_unmatched(self, response: Response) -> None:
        """Count a response whose call is not in the table, or end the connection if the response is about that."""
        if response.call_id == CONNECTION_CALL_ID and response.exception is not None:
            self._end(errors.explain_refusal(response.exception, self.address, self._service))
        else:
            self.late += 1

    def _finish(self, answers: Answers) -> None:
        """Wake the threads of direct calls, which decode their responses themselves; complete or fail the others."""
        last: DirectCall[Any] | None = None
        for call, response in answers:
            if isinstance(call, PendingCall):
                self._finish_one(call, response)
                continue
            if not isinstance(call, DirectCall):
                call.deliver(response)
                continue
            is_waiting = call.waiter is not None
            if is_waiting:
                self._woken.add(call)
            last = call.deliver(response, last)
            if call.successor is not None:
                self._finish_one(call.successor, response)
            if is_waiting and call.waiter is None:  # its thread has resumed, perhaps before it was noted as woken
                self._resume(call)

    def _give_up(self, answers: Answers, error: BaseException) -> None:
        """Fail the calls whose responses were read and not decoded; the others have their outcome already."""
        for call, _ in answers:
            call.fail(self._explain(explain_abandoned(self.address, error), call, was_sent=True))

    def _finish_one(self, call: PendingCall[Any], response: Response) -> None:
        request = call.request
        if response.exception is not None:
            call.fail(explain_exception(response.exception, request, self.address))
            return
        try:
            value = request.decode(response)
        except Exception as error:
            call.fail(explain_bad_response(error, request, self.address))
        else:
            call.complete(value)

    # -- the task ----------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Connect, then read while threads wait that do not read; return when the connection has ended."""
        try:
            if self._connect():
                while self._wait_until_wanted():
                    while self._read_round():
                        self._read_by_callbacks()
        except ConnectionClosed:  # the runtime is closing
            self._end(ConnectionClosed("the runtime is closed"))
        except BaseException as error:  # a defect of the client: the waiting calls must fail with it
            self._end(error)
            raise

    def _connect(self) -> bool:
        try:
            stream = self._dial(self._host, self._port, self._now, self._now() + CONNECT_S_MAX)
        except MetaClientError as error:  # unreachable, or a handshake of TLS or SASL failed
            self._end(error)
            return False
        with self._lock:
            if self._state is State.CLOSED:
                stream.close()
                return False
            self._stream = stream
            self._state = State.OPEN
            self._answered_at = self._now()
            first = self._security.encode_opening(self._service) + b"".join(self._queue)
            self._queue.clear()
            self._queued_bytes = 0
            self._is_wanted = bool(self._calls)
            self._is_read = False
            self._is_sending = bool(first)  # nothing may be left to send after a handshake
        if first:
            self._send(first, self._now() + CONNECT_S_MAX)
        return True

    def _wait_until_wanted(self) -> bool:
        """Wait until a reader is wanted, and take that role; False when the connection has ended.

        An idle connection is closed under the lock that found it idle, so that a call that is made now finds it closed
        and uses a new connection.
        """
        with self._lock:
            while self._state is State.OPEN or self._state is State.RETIRED:
                if self._is_wanted and not self._is_read and self._calls:
                    self._is_read, self._reader = True, 0
                    return True
                if not self._calls:
                    self._is_wanted = False
                    if self._state is State.RETIRED and not self._is_read:
                        self._state = State.CLOSED
                        break
                self._news.wait(self._now() + (IDLE_S if self._state is State.OPEN else ROUND_S))
                if not self._calls and not self._is_read and self._now() - self._answered_at >= IDLE_S:
                    self._state = State.CLOSED
        stream = self._stream
        if stream is not None:
            stream.close()
        return False

    def _read_round(self) -> bool:
        """Read once; return True if calls are in flight, for which the task goes on to read.

        Otherwise the role of reader is given up before the last calls are completed, so that their threads can read
        the responses of their next calls themselves. On an event loop no caller reads: there reading goes on until
        nothing has arrived for ``ROUND_S``, so that calls which follow each other need not wake this task.
        """
        answers: Answers = []
        try:
            self._receive(self._now() + ROUND_S, answers)
            with self._lock:
                is_used = bool(self._calls) or (self._loop is not None and bool(answers) and self._state is State.OPEN)
                is_read = self._is_read = is_used
            self._finish(answers)
        except BaseException as error:
            self._give_up(answers, error)
            raise
        # Also while responses to other calls keep coming: callbacks of an overdue call must not wait for a pause.
        if not answers or self._now() - self._swept_at >= ROUND_S:
            self.fail_overdue()
        return is_read

    def fail_overdue(self) -> None:
        """Fail the calls whose deadline has passed and that were not cancelled: their callbacks may be waited for."""
        with self._lock:
            now = self._swept_at = self._now()
            calls = list(self._calls.items())  # a copy: the reader removes calls without the lock
            overdue = [self._calls.pop(call_id, None) for call_id, call in calls if call.request.deadline < now]
        for call in overdue:
            if call is not None:
                call.fail(explain_timeout(call.request))
                self._check_silence(call)

    # -- the end -----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        self._end(ConnectionClosed("the connection to HBase is closed"))

    def give_up(self) -> None:
        """Close a connection that was retired long ago, and fail its last calls."""
        self._end(ServerUnreachable(f"{self.address} has sent no answer since this connection was replaced"))

    def _end(self, cause: BaseException) -> None:
        with self._lock:
            if self._state is State.CLOSED:
                return
            was_connecting = self._state is State.CONNECTING
            self._state = State.CLOSED
            calls, self._calls = list(self._calls.values()), {}
            self._queue.clear()
            self._queued_bytes = 0
            stream = self._stream
            self._news.notify_all()
        if self._loop is not None:
            self._loop.alarm.stop()
        if stream is not None:
            stream.close()
        for call in calls:
            call.fail(self._explain(cause, call, was_sent=not was_connecting))

    def _explain(self, cause: BaseException, call: InFlight, *, was_sent: bool) -> MetaClientError:
        peer = self.address, self._service
        return explain_end(cause, call.request, peer, was_sent=was_sent, has_answered=self._has_answered)

    def leave_to_parent(self) -> None:
        """In a child process: end here and send nothing; the calls in flight belong to the parent's threads."""
        self._begin()
        self._state = State.CLOSED
        if self._stream is not None:
            self._stream.leave_to_parent()
        calls, self._calls = list(self._calls.values()), {}
        for call in calls:
            call._orphan(explain_inherited(self.address, call.request))
