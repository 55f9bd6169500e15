"""One connection to one service of one server, with many calls in flight.

1. A call gets an id, waits in the table of calls and its frame in the queue. Whoever begins to wait, and finds nobody
   sending, sends all that is queued, in one write: sixteen calls that are made before the first is waited for cost one.
   The first write also carries preamble and header: there is no handshake to wait for.
2. Answers come in any order and are matched by id. One that nobody waits for any more (its time was over, it lost a
   race, a hung server woke up) is dropped and counted.
3. *Who reads?* Someone who waits for one answer alone reads the socket in its own thread (``Call.help``) and hands out
   what belongs to others on the way: a single caller pays for no hand-over between threads. As soon as anybody waits in
   another way, or is left waiting, the connection's own task reads. There is one reader at a time. Who also *makes* its
   call when nobody else does anything here (``Connection.ask``) does all of it in one stretch.
4. When the socket ends, or what it says is no frame, every call that is waiting fails. A new connection is made for the
   next one. An idle connection is closed after ``IDLE_S``.
5. A connection on which calls time out and no whole frame arrives is *retired*: the network may swallow this TCP flow
   and no other, or the length of a frame was corrupted and all answers are taken for the rest of that frame. A retired
   connection takes no new call, so that the next call dials again. The calls in flight are still waited for: a server
   that only paused answers them. The connection is closed when no call is left.
6. An exception that interrupts a caller (KeyboardInterrupt, or what a signal handler raises) while it sends or reads
   ends the connection: half a frame may be out, or half an answer lost. CPython raises such an exception when a call of
   a function returns, or begins. So the role is noted in a local variable in the same statement that takes it.
"""

from __future__ import annotations

import enum
import logging
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar, cast

from metaclient.errors import CallTimeout, ConnectionClosed, MetaClientError, Overloaded, ServerUnreachable, translated
from metaclient.runtime import Runtime
from metaclient.runtime.waiting import Blocking
from metaclient.wire.rpc import framing
from metaclient.wire.rpc.framing import CONNECTION_CALL_ID, FrameReader, Response, parse_response
from metaclient.wire.rpc.protobuf import ProtocolError
from metaclient.wire.stream import Stream, dial
from metaclient_native import errors
from metaclient_native.in_flight import DOUBT_S, Asked, Call, decoded, given_up, is_silent_too_long
from metaclient_native.security import Security

__all__ = ["Call", "Connection"]

T = TypeVar("T")
_log = logging.getLogger(__name__)
#: As HBase's own client (hbase.ipc.client.connection.minIdleTimeBeforeClose).
IDLE_S = 120.0
#: How long the task that reads waits before it looks for calls whose time is over.
ROUND_S = 1.0
CONNECT_S_MAX = 10.0
#: Calls in flight and bytes that wait to be sent: what is more is refused here, before the server's memory is filled.
CALLS_MAX = 10_000
QUEUED_BYTES_MAX = 256 * 1024 * 1024
#: So much is sent at once, whether anybody waits or not.
HELD_BYTES_MAX = 64 * 1024
_CALL_IDS = 0x7FFFFFFF


class State(enum.Enum):
    """A connection's life; it never goes back."""

    CONNECTING = "connecting"
    OPEN = "open"
    RETIRED = "retired"
    CLOSED = "closed"


#: Calls with their answers, read and not handed out yet.
Answers = list[tuple[Call[Any] | Asked[Any], Response]]


class Connection:
    """See the module's docstring. Made by :class:`~metaclient_native.connections.Connections`."""

    def __init__(self, runtime: Runtime, host: str, port: int, service: str, security: Security) -> None:
        self._runtime = runtime
        self._blocking = cast("Blocking", runtime)  # what a Pending of ours needs of it
        self._now = runtime.now
        self._host, self._port = host, port
        self._service = service
        self._security = security
        self._begin()
        # Guarded by the lock:
        self._state = State.CONNECTING
        self._calls: dict[int, Call[Any] | Asked[Any]] = {}
        self._next_id = 0
        self._queue: deque[bytes] = deque()
        self._queued_bytes = 0
        self._is_sending = True  # nobody may send before the task has connected
        self._is_read = True  # somebody reads; at first the task
        self._is_wanted = False  # somebody waits and will not read
        # Of whoever reads:
        self._stream: Stream | None = None
        self._frames = FrameReader()
        self._answered_at = float("-inf")  # when the last whole frame arrived
        self._asked_at = float("-inf")  # when the first call after that frame was made
        self._swept_at = float("-inf")
        self._has_answered = False
        self.late = 0

    def _begin(self) -> None:
        self._lock = self._runtime.lock()
        self._news = self._runtime.condition(self._lock)  # for the task: a reader is wanted, or it is over

    @property
    def address(self) -> str:
        return f"{self._host}:{self._port}"

    @property
    def is_closed(self) -> bool:
        return self._state is State.CLOSED

    @property
    def calls(self) -> int:
        """How many are in flight."""
        return len(self._calls)

    def __repr__(self) -> str:
        return f"<Connection {self.address} {self._service} {self._state.value}: {len(self._calls)} calls>"

    # -- calling -----------------------------------------------------------------------------------------------------

    def call(
        self,
        method: bytes,
        param: bytes,
        decode: Callable[[Response], T],
        deadline: float,
        what: str,
        cells: bytes = b"",
        priority: int = 0,
        is_write: bool = False,
        keeps: bool = False,
    ) -> Call[T]:
        """Make a call. It is sent when somebody waits for it, or for another one, or by :meth:`flush`; never blocks.

        ConnectionResetError when this connection is over: make another.
        """
        now = self._now()
        call = Call(self, decode, now, deadline, what, is_write, keeps)
        timeout_ms = int((deadline - now) * 1000)
        if timeout_ms <= 0:
            raise CallTimeout(f"there was no time left for {what}")
        if now - self._answered_at > DOUBT_S:
            self._doubt(now, deadline - now)
        if len(self._calls) >= CALLS_MAX:
            self._fail_overdue()
        with self._lock:
            if self._state is State.CLOSED or self._state is State.RETIRED:
                raise ConnectionResetError(f"{self!r} is over")
            if len(self._calls) >= CALLS_MAX or self._queued_bytes > QUEUED_BYTES_MAX:
                raise Overloaded(
                    f"{len(self._calls)} calls to {self.address} are in flight and {self._queued_bytes} bytes are not "
                    "sent yet: it does not keep up"
                )
            call_id = call.call_id = self._next_id = (self._next_id + 1) & _CALL_IDS
            frame = framing.request(call_id, method, param, cells, priority=priority, timeout_ms=timeout_ms)
            size = len(frame)
            # No call of a function stands between these: an interrupt leaves all of them done, or none.
            if self._asked_at <= self._answered_at:
                self._asked_at = now
            self._queued_bytes += size
            self._calls[call_id] = call
            self._queue.append(frame)
            is_much = self._queued_bytes > HELD_BYTES_MAX
        if is_much:
            self.flush(deadline)
        return call

    def ask(
        self,
        method: bytes,
        param: bytes,
        decode: Callable[[Response], T],
        deadline: float,
        what: str,
        cells: bytes = b"",
        priority: int = 0,
        is_write: bool = False,
    ) -> Asked[T] | None:
        """As :meth:`call`, and read the answer, in one stretch; CallTimeout at the deadline.

        None, and nothing was done, unless this connection is open, has answered lately, and is used by nobody else.
        """
        now = self._now()
        timeout_ms = int((deadline - now) * 1000)
        if timeout_ms <= 0 or now - self._answered_at > DOUBT_S:
            return None
        asked = Asked(decode, now, deadline, what, is_write)
        is_ours = False
        try:
            with self._lock:
                if self._is_read or self._is_sending or self._calls or self._state is not State.OPEN:
                    return None
                is_ours = self._is_read = self._is_sending = True
                if self._asked_at <= self._answered_at:
                    self._asked_at = now
                call_id = self._next_id = (self._next_id + 1) & _CALL_IDS
                self._calls[call_id] = asked
            self._send(framing.request(call_id, method, param, cells, priority, timeout_ms), deadline)
            left_s = deadline - now
            while left_s > 0:
                self._read(left_s)
                if asked.is_done:
                    break
                left_s = deadline - self._now()
            self._stop_reading()
        except BaseException as error:
            if is_ours:
                self._interrupted(error)
            raise
        if not asked.is_done:
            self._calls.pop(call_id, None)
            self._check_silence(asked)
            raise CallTimeout(f"{what}: no answer within its time", may_have_applied=is_write)
        return asked

    def flush(self, deadline: float) -> None:
        """Send what is queued, unless somebody is at it: they will send this, too."""
        is_sender = False
        try:
            with self._lock:
                if self._is_sending or not self._queue:
                    return
                is_sender = self._is_sending = True
                data = self._dequeue()
            self._send(data, deadline)
        except BaseException as error:
            if is_sender:
                self._interrupted(error)
            raise

    def _dequeue(self) -> bytes:
        """Return what is queued, to be sent by the caller, which is the only sender. Under the lock."""
        data = self._queue[0] if len(self._queue) == 1 else b"".join(self._queue)
        self._queue.clear()
        self._queued_bytes = 0
        return data

    def _send(self, data: bytes, deadline: float) -> None:
        """Send it and what has been queued meanwhile; we are the only ones."""
        stream = self._stream
        assert stream is not None
        while data:
            try:
                stream.write(data, deadline)
            except OSError as error:
                # A frame may be out in part: nothing can follow it.
                self._end(error)
                return
            with self._lock:
                self._is_sending = False
                if not self._queue:
                    return
                self._is_sending = True
                data = self._dequeue()

    def _doubt(self, now: float, call_s: float) -> None:
        """After a silence: did the server hang up, or answer late, while nobody was reading?"""
        is_reader = False
        try:
            with self._lock:
                stream = self._stream
                is_used = self._state is not State.OPEN or self._is_read or self._calls or stream is None
                if not is_used and stream is not None and not stream.is_silent():
                    is_reader = self._is_read = True
            if is_reader:
                self._read(ROUND_S)  # there is something to read, if only the end
                self._stop_reading()
        except BaseException as error:
            if is_reader:
                self._interrupted(error)
            raise
        self._retire_if_silent(now, call_s)

    def _check_silence(self, call: Call[Any] | Asked[Any]) -> None:
        """Retire the connection if this call's time is over, and nothing arrived for long before that."""
        now = self._now()
        if now >= call.deadline:
            self._retire_if_silent(now, call.deadline - call.begun)

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
                    "%s: no answer for %.1f s, the next call connects anew", self.address, now - self._asked_at
                )
        if is_connecting:  # nothing was sent
            text = f"{self.address} did not accept a connection within {now - self._asked_at:.1f} s"
            self._end(ServerUnreachable(text))

    def _forget(self, call: Call[Any]) -> None:
        with self._lock:
            self._calls.pop(call.call_id, None)

    # -- reading -----------------------------------------------------------------------------------------------------

    def _drive(self, call: Call[Any], deadline: float) -> None:
        """Send, then read in the thread of the only one who waits for this call, unless somebody else reads."""
        is_reader = is_sender = False
        try:
            with self._lock:
                if self._queue and not self._is_sending:
                    is_sender = self._is_sending = True
                    data = self._dequeue()
                if not self._is_read and (self._state is State.OPEN or self._state is State.RETIRED):
                    is_reader = self._is_read = True
            if is_sender:
                self._send(data, call.deadline)
            if not is_reader:
                return
            while not call._is_done:
                left_s = deadline - self._now()
                if left_s <= 0:
                    break
                self._read(left_s)
            self._stop_reading()
        except BaseException as error:
            if is_reader or is_sender:
                self._interrupted(error)
            raise

    def _interrupted(self, error: BaseException) -> None:
        """Ctrl-C while we were sending or reading: what was half said cannot be gone on with, by anybody."""
        self._end(given_up(self.address, error))

    def _stop_reading(self) -> None:
        with self._lock:
            self._is_read = False
            if self._is_wanted:
                self._news.notify()

    def _attend(self) -> None:
        """Somebody waits who cannot read: the task must."""
        with self._lock:
            if not self._is_wanted:
                self._is_wanted = True
                if not self._is_read:
                    self._news.notify()

    def _read(self, timeout_s: float) -> None:
        """Read once and hand out what is complete; after an interrupt, no call whose answer was read waits for it."""
        answers: Answers = []
        try:
            self._receive(timeout_s, answers)
            self._finish(answers)
        except BaseException as error:
            self._give_up(answers, error)
            raise

    def _receive(self, timeout_s: float, answers: Answers) -> None:
        """Read once; append the answers that are complete now. The end, or nonsense, ends the connection.

        Those before the nonsense, too: they are in the table no more, so that nobody else fails them.
        """
        stream = self._stream
        data: bytes | None = None
        if stream is None:
            return
        try:
            data = stream.read(self._frames.missing, timeout_s)
            if data is None:
                return
            if not data:
                self._end(EOFError("the server closed the connection"))
                return
            calls = self._calls
            for frame in self._frames.feed(data):
                self._answered_at = self._now()
                response = parse_response(frame)
                call = calls.get(response[0])
                if call is None:
                    self._unmatched(response)
                else:
                    answers.append((call, response))
                    calls.pop(response[0], None)  # after the append; one reader, and dict.pop is atomic: no lock
                    self._has_answered = True
        except OSError as error:
            self._end(error)
        except ProtocolError as error:
            self._end(errors.nonsense(error, self.address, b"" if self._has_answered else data))

    def _unmatched(self, response: Response) -> None:
        """Nobody waits for it, or it is not the answer to a call."""
        if response.call_id == CONNECTION_CALL_ID and response.exception is not None:
            self._end(errors.refused(response.exception, self.address, self._service))
        else:
            self.late += 1

    def _finish(self, answers: Answers) -> None:
        """Hand out answers."""
        for call, response in answers:
            self._finish_one(call, response)

    def _give_up(self, answers: Answers, error: BaseException) -> None:
        """Fail the calls whose answers were read and not handed out; the others have their outcome already."""
        for call, _ in answers:
            call.fail(self._why(given_up(self.address, error), call, was_sent=True))

    def _finish_one(self, call: Call[Any] | Asked[Any], response: Response) -> None:
        if response.exception is not None:
            what = f"{call.what} at {self.address}"
            call.fail(errors.from_exception(response.exception, what, is_write=call.is_write))
            return
        try:
            value = call.decode(response)
        except Exception as error:
            call.fail(decoded(error, call, self.address))
        else:
            call.complete(value)

    # -- the task ----------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Connect, then read whenever somebody waits who does not read; ends with the connection."""
        try:
            if self._connect():
                while self._take():
                    self._read_round()
        except ConnectionClosed:  # the runtime is closing
            self._end(ConnectionClosed("the runtime is closed"))
        except BaseException as error:  # our own mistake: whoever waits must hear of it
            self._end(error)
            raise

    def _connect(self) -> bool:
        try:
            stream = dial(self._host, self._port, self._now, self._now() + CONNECT_S_MAX)
        except ServerUnreachable as error:
            self._end(error)
            return False
        with self._lock:
            if self._state is State.CLOSED:
                stream.close()
                return False
            self._stream = stream
            self._state = State.OPEN
            self._answered_at = self._now()
            first = self._security.opening(self._service) + b"".join(self._queue)
            self._queue.clear()
            self._queued_bytes = 0
            self._is_wanted = bool(self._calls)
            self._is_read = False
        self._send(first, self._now() + CONNECT_S_MAX)
        return True

    def _take(self) -> bool:
        """Wait until a reader is wanted, and be it; False when the connection is over.

        An idle connection is closed under the lock that found it idle: a call that is made now must find it closed, and
        go to another one.
        """
        with self._lock:
            while self._state is State.OPEN or self._state is State.RETIRED:
                if self._is_wanted and not self._is_read and self._calls:
                    self._is_read = True
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

    def _read_round(self) -> None:
        """Read once; give the reading up before the last answer is handed out, so that its owner can read the next."""
        answers: Answers = []
        try:
            self._receive(ROUND_S, answers)
            with self._lock:
                self._is_read = False
            self._finish(answers)
        except BaseException as error:
            self._give_up(answers, error)
            raise
        # Also while answers to other calls keep coming: the callbacks of an overdue call must not wait for a pause.
        if not answers or self._now() - self._swept_at >= ROUND_S:
            self._fail_overdue()

    def _fail_overdue(self) -> None:
        """Take out the calls whose time is over and that nobody has taken back, and fail them: callbacks may wait."""
        with self._lock:
            now = self._swept_at = self._now()
            calls = list(self._calls.items())  # a copy: the reader takes out, too
            over = [self._calls.pop(call_id, None) for call_id, call in calls if call.deadline < now]
        for call in over:
            if call is not None:
                call.fail(CallTimeout(f"{call.what}: no answer within its time", may_have_applied=call.is_write))
                self._check_silence(call)

    # -- the end -----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        self._end(ConnectionClosed("the connection to HBase is closed"))

    def give_up(self) -> None:
        """End a connection that was retired long ago, with its last calls."""
        self._end(ServerUnreachable(f"{self.address} has not answered for long, and others were asked meanwhile"))

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
        if stream is not None:
            stream.close()
        for call in calls:
            call.fail(self._why(cause, call, was_sent=not was_connecting))

    def leave_to_parent(self) -> None:
        """In a child process: end here, without a word to the server; the calls are those of the parent's threads."""
        self._begin()
        self._state = State.CLOSED
        if self._stream is not None:
            self._stream.leave_to_parent()
        calls, self._calls = list(self._calls.values()), {}
        for call in calls:
            text = f"{call.what} at {self.address} was sent by the parent of this process (os.fork)"
            call._orphan(ServerUnreachable(text, may_have_applied=call.is_write))

    def _why(self, cause: BaseException, call: Call[Any] | Asked[Any], *, was_sent: bool) -> MetaClientError:
        is_write = call.is_write and was_sent
        match cause:
            case ConnectionClosed():
                made: MetaClientError = ConnectionClosed(str(cause), may_have_applied=is_write)
            case TimeoutError():
                text = f"{self.address} did not take {call.what}: {cause}"
                made = CallTimeout(text, may_have_applied=is_write)
            case EOFError() | ConnectionResetError() | BrokenPipeError():
                made = errors.hung_up(
                    self.address, self._service, call.what, has_answered=self._has_answered, is_write=is_write
                )
            case MetaClientError():
                made = type(cause)(str(cause), may_have_applied=is_write, detail=cause.detail)
            case _:
                made = translated(cause, is_write=is_write)
        made.__cause__ = cause
        return made
