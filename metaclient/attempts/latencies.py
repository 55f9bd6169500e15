"""Decides which servers are slow: those whose calls take longer than a replica's by more than the hedge delay.

A hedge helps a read whose call is slow by exception, and is deducted from the budget. For a server that is *steadily*
slow there is another remedy: reads that a replica may answer call the replica first, which costs no extra call.

1. A server is slow when half of its recent calls, and five at least, took longer than the *bar*: the third quartile of
   a replica's calls plus the hedge delay, and twice that quartile at least. A fifth of its calls is enough, and six at
   least, when they took longer than the quartile plus four hedge delays, and five times the quartile.
2. A call that was outrun by a replica that was called a hedge delay later is above the bar (OUTRUN). A replica that is
   no faster outruns less than half of the calls, however much latencies vary.
3. Only gets are compared by their latencies, because the latency of a batch or a scan depends on its size. A batch or a
   scan is recorded as IN_TIME or OUTRUN. The verdict applies to the server, so that a verdict from gets also directs
   batches and scans.
4. A slow server gets a probe every half second, at a random moment, so that its recovery is noticed; the next probe
   follows at once when the last one was fast. Four fast calls in a row end the verdict; the number doubles each time
   that the server is slow again within ten seconds. A call is fast below the middle between quartile and bar. Both
   rules prevent that two servers take turns in being called first.
5. Calls older than a minute do not count, and a verdict ends after a minute without a call.
6. A server that has stopped answering five times within three seconds is slow, too. Between the pauses its calls are
   fast, and reads avoid it during the pauses, so that less than half of its calls are slow.
7. While the replicas have too few calls to compare with, slow calls of the server may borrow a hedge every half second.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable

__all__ = ["IN_TIME", "OUTRUN", "ServerLatencies"]

WINDOW = 32  # calls kept per server and kind
SLOW_SHARE, SLOW_CALLS_MIN = 0.5, 5
FAR_SHARE, FAR_CALLS_MIN, FAR_FACTOR = 0.2, 6, 4
#: The fewest calls of replicas that a server is compared with. With fewer, two lucky calls would set the bar.
RIVAL_CALLS_MIN = 4
FAST_CALLS, FAST_CALLS_MAX = 4, 32
FRESH_S = 60.0
RELAPSE_S = 10.0
VERDICT_S = 60.0
#: A server that pauses for a garbage collection every second is not slow; the scenario slow-server pauses seven times.
SILENCES, SILENCES_S = 5, 3.0
PROBE_S = 0.5
#: After OVERDUE_S without a call a probe may borrow the hedge that it may need; after NEGLECTED_S it starts without it.
OVERDUE_S, NEGLECTED_S = 2.0, 10.0
SERVERS_MAX = 4096
#: The latency of a call that a replica outran, and of a batch or scan that none outran.
OUTRUN = float("inf")
IN_TIME = 0.0
_FINITE_MAX = 1e300


class _Server:
    """The recent calls of one server by kind, as pairs (instant, latency); the state of its verdict."""

    __slots__ = (
        "acquitted_at",
        "answered_at",
        "calls",
        "compared_at",
        "fast_calls",
        "fast_calls_needed",
        "is_slow",
        "last_call",
        "probe_at",
        "silences",
    )

    def __init__(self) -> None:
        self.calls: dict[str, deque[tuple[float, float]]] = {}
        self.is_slow = False
        self.fast_calls = 0  # in a row
        self.fast_calls_needed = FAST_CALLS
        self.acquitted_at = -RELAPSE_S
        self.answered_at = -FRESH_S
        self.last_call = 0.0
        self.compared_at = -PROBE_S
        self.probe_at = 0.0
        self.silences: deque[float] = deque(maxlen=SILENCES)


class ServerLatencies:
    """The recent latencies of each server, and the slow servers. A race between threads only loses samples.

    >>> servers = ServerLatencies()
    >>> [servers.add("rs2", "get", ms / 1000, now=0.0) for ms in (1, 2, 1, 1)]
    [False, False, False, False]
    >>> [servers.add("rs1", "get", 0.1, now=0.0, rivals=["rs2"], delay_s=0.01) for _ in range(5)]
    [False, False, False, False, True]
    >>> servers.is_slow("rs1"), servers.is_slow("rs2")
    (True, False)
    >>> servers.is_probe_due("rs1", now=0.1), servers.is_probe_due("rs1", now=1.0)
    (False, True)
    >>> [servers.add("rs1", "get", 0.001, now=1.0, rivals=["rs2"], delay_s=0.01) for _ in range(4)]
    [False, False, False, True]
    >>> bool(servers)
    False
    """

    __slots__ = ("_servers", "slow")

    def __init__(self) -> None:
        self._servers: dict[Hashable, _Server] = {}
        self.slow: dict[Hashable, _Server] = {}

    def __bool__(self) -> bool:
        """Return True if any server is slow; usually False, which saves further checks."""
        return bool(self.slow)

    def is_slow(self, server: Hashable) -> bool:
        return server in self.slow

    def is_known(self, kind: str, servers: Iterable[Hashable], now: float) -> bool:
        """Return True if one of the servers has recent calls of this kind to compare with."""
        return self._quartile_s(kind, servers, now) is not None

    def has_answered_since(self, server: Hashable, instant: float) -> bool:
        """Return True if the server has answered a call after this instant: it is at work."""
        found = self._servers.get(server)
        return found is not None and found.answered_at > instant

    def add(
        self,
        server: Hashable,
        kind: str,
        latency_s: float,
        *,
        now: float,
        rivals: Iterable[Hashable] = (),
        delay_s: float = 0.0,
        is_answer: bool = True,
    ) -> bool:
        """Record a call; return True if the server became slow or has recovered.

        ``rivals`` are the servers of the region's other replicas, ``delay_s`` is the hedge delay of this kind of call.
        """
        found = self._record(server, kind, latency_s, now)
        calls = found.calls[kind]
        if is_answer and latency_s < OUTRUN:
            found.answered_at = now
        if not found.is_slow and latency_s < delay_s:  # below every bar: the usual case
            return False
        quartile_s = self._quartile_s(kind, rivals, now)
        if quartile_s is not None:
            found.compared_at = now
        if found.is_slow:
            return self._check_recovery(server, found, latency_s, quartile_s or 0.0, delay_s, now)
        is_slow = _is_slow(_fresh(calls, now), quartile_s, delay_s)
        if is_slow:
            self._convict(server, found, now)
        return is_slow

    def add_fast(self, server: Hashable, kind: str, latency_s: float, now: float) -> None:
        """Record a call of a server that is not slow; its latency is below every bar, so that the verdict stays."""
        found = self._servers.get(server)
        calls = None if found is None else found.calls.get(kind)
        if found is None or calls is None:
            self._record(server, kind, latency_s, now).answered_at = now
        else:
            found.last_call = found.answered_at = now
            calls.append((now, latency_s))

    def _record(self, server: Hashable, kind: str, latency_s: float, now: float) -> _Server:
        found = self._servers.get(server) or self._insert(server)
        found.last_call = now
        calls = found.calls.get(kind)
        if calls is None:
            calls = found.calls[kind] = deque(maxlen=WINDOW)
        calls.append((now, latency_s))
        return found

    def add_bound(self, server: Hashable, kind: str, at_least_s: float, *, now: float, delay_s: float) -> None:
        """Record a call of unknown latency that took at least this long; a bound below the usual latency is ignored."""
        quartile_s = self._quartile_s(kind, (server,), now)
        if not self.is_slow(server) and at_least_s > (delay_s if quartile_s is None else quartile_s):
            self.add(server, kind, at_least_s, now=now, delay_s=OUTRUN, is_answer=False)

    def add_silence(self, server: Hashable, *, now: float) -> bool:
        """Record that the server has stopped answering; return True if it became slow.

        >>> servers = ServerLatencies()
        >>> [servers.add_silence("rs1", now=at / 2) for at in range(5)]
        [False, False, False, False, True]
        """
        found = self._servers.get(server) or self._insert(server)
        found.silences.append(now)
        if found.is_slow or len(found.silences) < SILENCES or now - found.silences[0] > SILENCES_S:
            return False
        found.last_call = now
        self._convict(server, found, now)
        return True

    def take_comparison(self, server: Hashable, now: float) -> bool:
        """Return True if a call of this server shall be hedged to measure how fast the replicas are."""
        found = self._servers.get(server)
        if found is None or now - found.compared_at < PROBE_S:
            return False
        found.compared_at = now
        return True

    def is_probe_due(self, server: Hashable, now: float) -> bool:
        """Return True if the next read shall call the server first although it is slow."""
        found = self.slow.get(server)
        if found is not None and now - found.last_call > VERDICT_S:
            self._acquit(server, found, now)
        return found is not None and now >= found.probe_at

    def is_probe_overdue(self, server: Hashable, now: float, *, can_borrow: bool) -> bool:
        """Return True if a probe shall start without budget: the last call was fast, or the wait has been too long."""
        found = self.slow.get(server)
        wait_s = OVERDUE_S if can_borrow else NEGLECTED_S
        return found is not None and (found.fast_calls > 0 or now - found.last_call >= wait_s)

    def begin_probe(self, server: Hashable, *, now: float, chance: float) -> None:
        """Record that a probe starts; ``chance``, a draw from [0, 1), decides when the next one is due."""
        found = self.slow.get(server)
        if found is not None:
            found.probe_at = now + PROBE_S * (0.5 + chance)

    def _check_recovery(
        self, server: Hashable, found: _Server, latency_s: float, quartile_s: float, delay_s: float, now: float
    ) -> bool:
        if latency_s > quartile_s + max(quartile_s, delay_s) / 2:
            found.fast_calls = 0
            return False
        found.fast_calls += 1
        found.probe_at = 0.0
        if found.fast_calls < found.fast_calls_needed:
            return False
        self._acquit(server, found, now)
        return True

    def _convict(self, server: Hashable, found: _Server, now: float) -> None:
        is_relapse = now - found.acquitted_at < RELAPSE_S
        found.fast_calls_needed = min(2 * found.fast_calls_needed, FAST_CALLS_MAX) if is_relapse else FAST_CALLS
        found.is_slow, found.fast_calls, found.probe_at = True, 0, now + PROBE_S
        self.slow[server] = found

    def _acquit(self, server: Hashable, found: _Server, now: float) -> None:
        found.is_slow, found.acquitted_at = False, now
        found.calls = {}
        self.slow.pop(server, None)

    def _quartile_s(self, kind: str, servers: Iterable[Hashable], now: float) -> float | None:
        """Return the third quartile of the fastest of the servers, or of all together; None if they have few calls."""
        known = [_fresh(found.calls.get(kind), now) for at in servers if (found := self._servers.get(at)) is not None]
        enough = [each for each in known if len(each) >= RIVAL_CALLS_MIN] or [[each for one in known for each in one]]
        return min((sorted(each)[len(each) * 3 // 4] for each in enough if len(each) >= RIVAL_CALLS_MIN), default=None)

    def _insert(self, server: Hashable) -> _Server:
        while len(self._servers) >= SERVERS_MAX:
            oldest = next(iter(self._servers), None)
            self._servers.pop(oldest, None)
            self.slow.pop(oldest, None)
        return self._servers.setdefault(server, _Server())


def _is_slow(latencies: list[float], quartile_s: float | None, delay_s: float) -> bool:
    """Return True if these calls are slow compared with a replica's third quartile, which is None if unknown."""
    above_s = _FINITE_MAX if quartile_s is None else quartile_s + max(quartile_s, delay_s)
    far_s = _FINITE_MAX if quartile_s is None else quartile_s + FAR_FACTOR * max(quartile_s, delay_s)
    above = sum(each > above_s for each in latencies)
    far = sum(far_s < each < OUTRUN for each in latencies)
    share = 1 / len(latencies)
    return (above >= SLOW_CALLS_MIN and above * share >= SLOW_SHARE) or (
        far >= FAR_CALLS_MIN and far * share >= FAR_SHARE
    )


def _fresh(calls: deque[tuple[float, float]] | None, now: float) -> list[float]:
    return [latency for at, latency in calls.copy() if now - at <= FRESH_S] if calls else []
