"""A replication sink that plays faults to a source and records the calls, on virtual time and over TCP.

The sink speaks HBase's RPC: ``AdminService.ReplicateWALEntry``. It plays scenes. A scene is a list of reactions, one
per call; the last one is a success, so that the source goes on to its next batch. A real HBase and the fake get the
same scenes, and :func:`normalized` makes their calls comparable: numbers that only one cluster has (region names,
sequence ids, cluster ids, clock times) are left out, and times are in units of the source's settings.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, Protocol

from metaclient.model import ServerName
from metaclient.runtime import Runtime
from metaclient.wire.listener import Client, Listening
from metaclient.wire.rpc import framing
from metaclient.wire.rpc.replication import REPLICATE_WAL_ENTRY, ShippedEntry, decode_replicate

#: How long a hung call is held: longer than any timeout of the source in these tests.
HELD_S = 600.0
#: A late answer comes so many sleeps after the source has given the call up, and before its next call.
LATE = 0.5
#: A slow answer comes after so many sleeps, before the timeout.
SLOW = 1.0
#: A source measures a timeout from its own send, which is a little before the arrival.
_EARLY = 0.1


class Reaction(Enum):
    """What the sink does with one call."""

    ANSWER = "answers"
    REFUSE = "refuses, may be retried"
    REFUSE_FOR_GOOD = "refuses, must not be retried"
    REFUSE_TABLE = "refuses, because it has no such table"
    HANG_UP = "closes the connection"
    HANG = "does not answer"
    ANSWER_LATE = "answers after the timeout"
    ANSWER_SLOWLY = "answers before the timeout"


_SUCCESSES = frozenset({Reaction.ANSWER, Reaction.ANSWER_SLOWLY})
_ERRORS = {
    Reaction.REFUSE: ("java.io.IOException", "the disk is full", False),
    Reaction.REFUSE_FOR_GOOD: ("org.apache.hadoop.hbase.DoNotRetryIOException", "never", True),
    Reaction.REFUSE_TABLE: ("org.apache.hadoop.hbase.TableNotFoundException", "t", True),
}


class Listen(Protocol):
    """Makes a listener: sockets (:class:`metaclient.wire.listener.Listener`) or pipes (``VirtualPorts``)."""

    def __call__(
        self, host: str, port: int, *, runtime: Runtime, name: str, serve: Callable[[Client], None]
    ) -> Listening: ...


@dataclass(frozen=True, slots=True)
class Received:
    """One call: when it came, when it ended for the source, and where."""

    scene: int
    reaction: Reaction
    entries: tuple[ShippedEntry, ...]
    timeout_ms: int
    server: int
    connection: int
    at_s: float
    ended_at_s: float


class ScriptedSink:
    """The servers of a pretended cluster. ``_changed`` guards the mutable fields and is notified at each call."""

    def __init__(
        self,
        runtime: Runtime,
        listen: Listen,
        scenes: Sequence[Sequence[Reaction]],
        *,
        sleep_s: float,
        servers: int = 2,
    ) -> None:
        """``sleep_s`` is ``replication.source.sleepforretries`` of the source."""
        assert all(scene[-1] in _SUCCESSES for scene in scenes), "a scene ends with a success"
        self.cluster_id = str(uuid.UUID(int=runtime.rng.getrandbits(128)))
        self._runtime = runtime
        self._sleep_s = sleep_s
        self._listeners = [
            listen("127.0.0.1", 0, runtime=runtime, name=f"sink{number}", serve=self._serving(number))
            for number in range(servers)
        ]
        self._changed = runtime.condition()
        self._reactions = [(number, reaction) for number, scene in enumerate(scenes) for reaction in scene]
        self._connections = 0
        self._ended = 0
        self.received: list[Received] = []
        self.unexpected: list[str] = []

    @property
    def servers(self) -> list[ServerName]:
        return [ServerName("127.0.0.1", listener.port, 1) for listener in self._listeners]

    def close(self) -> None:
        for listener in self._listeners:
            listener.close()

    def wait_for_scene(self, number: int, deadline: float) -> None:
        """Wait until the first call of a scene has arrived: the source has taken its batch."""
        self._wait(lambda: any(call.scene == number for call in self.received), f"scene {number}", deadline)

    def wait_for_end(self, deadline: float) -> None:
        """Wait until the last call of the last scene is answered."""
        self._wait(lambda: not self._reactions and self._ended == len(self.received), "the last call", deadline)

    def _wait(self, is_so: Callable[[], bool], what: str, deadline: float) -> None:
        with self._changed:
            while not is_so():
                is_in_time = self._changed.wait(deadline)
                assert is_in_time, f"waited for {what}, got {len(self.received)} calls, unexpected: {self.unexpected}"

    # -- connections -------------------------------------------------------------------------------------------

    def _serving(self, server: int) -> Callable[[Client], None]:
        return lambda sock: self._serve(server, sock)

    def _serve(self, server: int, sock: Client) -> None:
        with self._changed:
            connection, self._connections = self._connections, self._connections + 1
        framing.parse_preamble(_exactly(sock, framing.PREAMBLE_BYTES))
        header = framing.parse_connection_header(_exactly(sock, int.from_bytes(_exactly(sock, 4), "big")))
        if header["service_name"] != "AdminService":
            self.unexpected.append(header["service_name"])
            return
        reader = framing.FrameReader()
        while data := sock.recv(1 << 16):
            for frame in reader.feed(data):
                if not self._react(framing.parse_request(frame), server, connection, sock):
                    return

    def _react(self, request: framing.ReceivedRequest, server: int, connection: int, sock: Client) -> bool:
        """Play the next reaction; return False if the connection ends."""
        now = self._runtime.now()
        if request.method != REPLICATE_WAL_ENTRY:
            self.unexpected.append(request.method)
            return False
        with self._changed:
            if not self._reactions:
                self.unexpected.append(f"{request.method} after the last scene")
                return False
            scene, reaction = self._reactions.pop(0)
            delay_s = self._delay_s(reaction, request.timeout_ms / 1000)
            is_given_up = reaction in (Reaction.HANG, Reaction.ANSWER_LATE)
            call = Received(
                scene,
                reaction,
                tuple(decode_replicate(request.param, request.cells)),
                request.timeout_ms,
                server,
                connection,
                now,
                now + (request.timeout_ms / 1000 if is_given_up else delay_s),
            )
            self.received.append(call)
            self._changed.notify_all()
        if delay_s:
            self._runtime.start_daemon(self._finish_later, request.call_id, reaction, sock, delay_s)
            return True
        return self._finish(request.call_id, reaction, sock)

    def _delay_s(self, reaction: Reaction, timeout_s: float) -> float:
        match reaction:
            case Reaction.HANG:
                return HELD_S
            case Reaction.ANSWER_LATE:
                return timeout_s + LATE * self._sleep_s
            case Reaction.ANSWER_SLOWLY:
                return SLOW * self._sleep_s
        return 0.0

    def _finish_later(self, call_id: int, reaction: Reaction, sock: Client, delay_s: float) -> None:
        if reaction is Reaction.HANG:
            self._count()
            return
        self._runtime.sleep(delay_s)
        self._finish(call_id, reaction, sock)

    def _finish(self, call_id: int, reaction: Reaction, sock: Client) -> bool:
        """Answer, or return False to have the connection closed."""
        if reaction is not Reaction.HANG_UP:
            if error := _ERRORS.get(reaction):
                java_class, text, is_final = error
                sock.sendall(
                    framing.error_response(call_id, java_class, f"{java_class}: {text}", do_not_retry=is_final)
                )
            else:
                sock.sendall(framing.response(call_id, b""))
        self._count()
        return reaction is not Reaction.HANG_UP

    def _count(self) -> None:
        with self._changed:
            self._ended += 1
            self._changed.notify_all()


def _exactly(sock: Client, count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = sock.recv(count - len(data))
        if not more:
            raise ConnectionResetError("the source has hung up")
        data += more
    return data


# -- comparable calls ------------------------------------------------------------------------------------------


class Edit(NamedTuple):
    """A cell of an entry. ``timestamp`` is None if it is the source's clock."""

    row: bytes
    column: bytes
    type: int
    value: bytes
    timestamp: int | None


class Entry(NamedTuple):
    """An entry without what differs from cluster to cluster. ``number`` counts the entries of all scenes, from 0."""

    number: int
    scopes: tuple[tuple[bytes, int], ...]
    cluster_ids: int
    has_nonce: bool
    edits: tuple[Edit, ...]


class NormalizedCall(NamedTuple):
    """A call as it is compared. The first call of a scene has no pause: the reader of the log decides when it comes."""

    scene: int
    reaction: Reaction
    entries: tuple[Entry, ...]
    pause: int | None  # in sleeps, since the end of the call before
    timeout: int  # in units of replication.source.shipedits.timeout
    is_on_same_connection: bool | None  # as the call before; None if the sink is drawn anew, or at the first call
    is_at_same_server: bool | None


#: Clock times are milliseconds since the epoch; the tests' own timestamps are small.
_CLOCK_FROM = 1_000_000_000
#: After these, HBase draws its sample of sinks anew.
_DRAWN_ANEW = frozenset(_ERRORS)


def normalized(calls: Sequence[Received], *, sleep_s: float, timeout_s: float) -> list[NormalizedCall]:
    """Return the calls without what differs from cluster to cluster and from run to run."""
    numbers: dict[tuple[str, int], int] = {}
    made: list[NormalizedCall] = []
    before: Received | None = None
    for call in calls:
        is_retry = before is not None and before.scene == call.scene
        is_drawn = before is None or before.reaction in _DRAWN_ANEW
        made.append(
            NormalizedCall(
                call.scene,
                call.reaction,
                tuple([_entry(one, numbers) for one in call.entries]),
                int((call.at_s - before.ended_at_s) / sleep_s + _EARLY) if before is not None and is_retry else None,
                round(call.timeout_ms / 1000 / timeout_s),
                None if before is None or is_drawn else call.connection == before.connection,
                None if before is None or is_drawn else call.server == before.server,
            )
        )
        before = call
    return made


def _entry(entry: ShippedEntry, numbers: dict[tuple[str, int], int]) -> Entry:
    key = entry.key
    edits = [
        Edit(row, cell.column, int(cell.type), cell.value, cell.timestamp if cell.timestamp < _CLOCK_FROM else None)
        for row, cell in entry.cells
    ]
    return Entry(
        numbers.setdefault((key.region, key.sequence_id), len(numbers)),
        tuple(sorted(key.scopes)),
        len(key.cluster_ids),
        key.nonce is not None,
        tuple(edits),
    )
