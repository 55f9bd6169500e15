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
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Callable
from typing import Any, Generic, TypeVar, cast

from metaclient.errors import CallTimeout, ConnectionClosed, MetaClientError, Overloaded, ServerUnreachable, translated
from metaclient.runtime import Pending, Runtime
from metaclient.runtime.waiting import Blocking
from metaclient.wire.rpc import framing
from metaclient.wire.rpc.framing import CONNECTION_CALL_ID, FrameReader, Response, parse_response
from metaclient.wire.rpc.protobuf import ProtocolError
from metaclient.wire.stream import Stream, dial
from metaclient_native import errors
from metaclient_native.security import Security

__all__ = ["Call", "Connection"]

T = TypeVar("T")
#: As HBase's own client (hbase.ipc.client.connection.minIdleTimeBeforeClose).
IDLE_S = 120.0
#: After so long without an answer it is worth a look whether the server is still there, before a call is trusted to it.
DOUBT_S = 1.0
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
    CLOSED = "closed"


class Call(Pending[T]):
    """A call under way. ``decode`` understands its answer; ``keeps`` says that a late one still must be looked at."""

    __slots__ = ("call_id", "connection", "deadline", "decode", "is_write", "keeps", "what")

    def __init__(
        self,
        connection: Connection,
        decode: Callable[[Response], T],
        deadline: float,
        what: str,
        is_write: bool,
        keeps: bool,
    ) -> None:
        super().__init__(connection._blocking)
        self.connection = connection
        self.decode = decode
        self.deadline = deadline
        self.what = what
        self.is_write = is_write
        self.keeps = keeps
        self.call_id = 0

    def send(self) -> None:
        """Now, though nobody waits for it."""
        self.connection.flush(self.deadline)

    def help(self, deadline: float | None) -> None:
        self.connection._drive(self, self.deadline if deadline is None else deadline)

    def on_done(self, callback: Callable[[Pending[T]], object]) -> None:
        super().on_done(callback)
        if not self._is_done:
            self.send()
            self.connection._attend()

    def cancel(self) -> None:
        super().cancel()
        if not self.keeps:
            self.connection._forget(self)


class Asked(Generic[T]):
    """A call whose maker reads the answer itself: as a :class:`Call` to the connection, but nobody can wait for it."""

    __slots__ = ("deadline", "decode", "error", "is_done", "is_write", "value", "what")
    value: T

    def __init__(self, decode: Callable[[Response], T], deadline: float, what: str, is_write: bool) -> None:
        self.decode = decode
        self.deadline = deadline
        self.what = what
        self.is_write = is_write
        self.is_done = False
        self.error: BaseException | None = None

    def complete(self, value: T) -> None:
        self.value = value
        self.is_done = True

    def fail(self, error: BaseException) -> None:
        self.error = error
        self.is_done = True

    _orphan = fail


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
        self._answered_at = float("-inf")
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
        call = Call(self, decode, deadline, what, is_write, keeps)
        now = self._now()
        timeout_ms = int((deadline - now) * 1000)
        if timeout_ms <= 0:
            raise CallTimeout(f"there was no time left for {what}")
        if now - self._answered_at > DOUBT_S:
            self._doubt()
        if len(self._calls) >= CALLS_MAX:
            self._fail_overdue()
        with self._lock:
            if self._state is State.CLOSED:
                raise ConnectionResetError(f"{self!r} is closed")
            if len(self._calls) >= CALLS_MAX or self._queued_bytes > QUEUED_BYTES_MAX:
                raise Overloaded(
                    f"{len(self._calls)} calls to {self.address} are in flight and {self._queued_bytes} bytes are not "
                    "sent yet: it does not keep up"
                )
            call_id = call.call_id = self._next_id = (self._next_id + 1) & _CALL_IDS
            self._calls[call_id] = call
            frame = framing.request(call_id, method, param, cells, priority=priority, timeout_ms=timeout_ms)
            self._queue.append(frame)
            self._queued_bytes += len(frame)
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
        asked = Asked(decode, deadline, what, is_write)
        with self._lock:
            if self._is_read or self._is_sending or self._calls or self._state is not State.OPEN:
                return None
            self._is_read = self._is_sending = True
            call_id = self._next_id = (self._next_id + 1) & _CALL_IDS
            self._calls[call_id] = asked
        try:
            self._send(framing.request(call_id, method, param, cells, priority, timeout_ms), deadline)
            left_s = deadline - now
            while left_s > 0:
                self._finish(self._receive(left_s))
                if asked.is_done:
                    break
                left_s = deadline - self._now()
        except BaseException as error:
            self._interrupted(error)
            raise
        finally:
            self._stop_reading()
        if not asked.is_done:
            self._calls.pop(call_id, None)
            raise CallTimeout(f"{what}: no answer within its time", may_have_applied=is_write)
        return asked

    def flush(self, deadline: float) -> None:
        """Send what is queued, unless somebody is at it: they will send this, too."""
        with self._lock:
            data = self._taken()
        if data:
            self._send(data, deadline)

    def _taken(self) -> bytes:
        """What is queued, to be sent by the caller now; nothing when somebody sends. Under the lock."""
        if self._is_sending or not self._queue:
            return b""
        self._is_sending = True
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
                data = self._taken()

    def _doubt(self) -> None:
        """After a silence: did the server hang up, or answer late, while nobody was reading?"""
        with self._lock:
            stream = self._stream
            if self._state is not State.OPEN or self._is_read or self._calls or stream is None or stream.is_silent():
                return
            self._is_read = True
        try:
            self._finish(self._receive(ROUND_S))  # there is something to read, if only the end
        finally:
            self._stop_reading()

    def _forget(self, call: Call[Any]) -> None:
        with self._lock:
            self._calls.pop(call.call_id, None)

    # -- reading -----------------------------------------------------------------------------------------------------

    def _drive(self, call: Call[Any], deadline: float) -> None:
        """Send, then read in the thread of the only one who waits for this call, unless somebody else reads."""
        with self._lock:
            data = self._taken()
            is_reader = not self._is_read and self._state is State.OPEN
            if is_reader:
                self._is_read = True
        if not is_reader:
            if data:
                self._send(data, call.deadline)
            return
        try:
            if data:
                self._send(data, call.deadline)
            while not call._is_done:
                left_s = deadline - self._now()
                if left_s <= 0:
                    return
                self._finish(self._receive(left_s))
        except BaseException as error:
            self._interrupted(error)
            raise
        finally:
            self._stop_reading()

    def _interrupted(self, error: BaseException) -> None:
        """Ctrl-C while we were sending or reading: what was half said cannot be gone on with, by anybody."""
        self._end(_given_up(self.address, error))

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

    def _receive(self, timeout_s: float) -> list[tuple[Call[Any] | Asked[Any], Response]]:
        """Read once: the answers that are complete now. The end, or nonsense, ends the connection."""
        stream = self._stream
        answers: list[tuple[Call[Any] | Asked[Any], Response]] = []
        data: bytes | None = None
        if stream is None:
            return answers
        try:
            data = stream.read(self._frames.missing, timeout_s)
            if data is None:
                return answers
            if not data:
                self._end(EOFError("the server closed the connection"))
                return answers
            self._answered_at = self._now()
            for frame in self._frames.feed(data):
                response = parse_response(frame)
                call = self._calls.pop(response[0], None)  # one reader, and dict.pop is atomic: no lock
                if call is None:
                    self._unmatched(response)
                else:
                    answers.append((call, response))
                    self._has_answered = True
        except OSError as error:
            self._end(error)
        except ProtocolError as error:
            self._end(errors.nonsense(error, self.address, b"" if self._has_answered else data))
        return answers  # those before the nonsense, too: they are in the table no more, so that nobody else fails them

    def _unmatched(self, response: Response) -> None:
        """Nobody waits for it, or it is not the answer to a call."""
        if response.call_id == CONNECTION_CALL_ID and response.exception is not None:
            self._end(errors.refused(response.exception, self.address, self._service))
        else:
            self.late += 1

    def _finish(self, answers: list[tuple[Call[Any] | Asked[Any], Response]]) -> None:
        """Hand out answers. Whatever interrupts that, no call whose answer was read is left without an outcome."""
        for number, (call, response) in enumerate(answers):
            try:
                self._finish_one(call, response)
            except BaseException as error:
                for rest, _ in answers[number:]:
                    rest.fail(self._why(_given_up(self.address, error), rest, was_sent=True))
                raise

    def _finish_one(self, call: Call[Any] | Asked[Any], response: Response) -> None:
        if response.exception is not None:
            what = f"{call.what} at {self.address}"
            call.fail(errors.from_exception(response.exception, what, is_write=call.is_write))
            return
        try:
            value = call.decode(response)
        except Exception as error:
            call.fail(_decoded(error, call, self.address))
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
            while self._state is State.OPEN:
                if self._is_wanted and not self._is_read and self._calls:
                    self._is_read = True
                    return True
                if not self._calls:
                    self._is_wanted = False
                self._news.wait(self._now() + IDLE_S)
                if not self._calls and not self._is_read and self._now() - self._answered_at >= IDLE_S:
                    self._state = State.CLOSED
        stream = self._stream
        if stream is not None:
            stream.close()
        return False

    def _read_round(self) -> None:
        """Read once; give the reading up before the last answer is handed out, so that its owner can read the next."""
        answers = self._receive(ROUND_S)
        with self._lock:
            self._is_read = False
        self._finish(answers)
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

    # -- the end -----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        self._end(ConnectionClosed("the connection to HBase is closed"))

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


def _given_up(address: str, error: BaseException) -> ServerUnreachable:
    return ServerUnreachable(f"the connection to {address} was given up by another call: {error!r}")


def _decoded(error: Exception, call: Call[Any] | Asked[Any], address: str) -> MetaClientError:
    """An answer that we do not understand: what we asked for may have been done all the same."""
    if isinstance(error, MetaClientError) and not isinstance(error, ProtocolError):
        return error
    made = ProtocolError(
        f"{call.what} at {address}: the answer makes no sense: {type(error).__name__}: {error}",
        may_have_applied=call.is_write,
    )
    made.__cause__ = error
    return made
