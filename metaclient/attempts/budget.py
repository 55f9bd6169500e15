"""Decides how many extra calls there may be: hedges beside first calls, retries beside failures.

Extra calls stay below ``max(a burst, ratio * calls)``, so that the cost of trouble is bounded by a share of the healthy
load, whatever happens. A balance that was not used is capped: a quiet week does not pay for a storm.

A hedge that is refused is simply not sent. A *retry* that is refused waits: the operation sleeps on and asks again
until its deadline. So that a client all of whose threads wait notices the end of an outage, one of them may go ahead
as a canary when nobody has called for a while (one second, doubling up to twenty). Canaries are paid for like other
retries, later: only a client with hardly any load has more of them than its share, and that is a call in 20 seconds.
"""

from __future__ import annotations

__all__ = ["CallBudget", "HedgeBudget"]

#: An unused balance of at most this many bursts of hedges is kept for later.
BALANCE_BURSTS = 10
#: Sums of small fractions fall a little short of whole numbers.
ROUNDING = 1e-9
CANARY_S = 1.0
#: Kept back of the retries' ratio, so that canaries at the end of an outage stay within it, too.
CANARY_SHARE = 0.05
#: HBase's longest pause between two attempts (RETRY_BACKOFF's last with 100 ms).
CANARY_S_MAX = 20.0


class HedgeBudget:
    """Extra calls beside the normal ones. Not exact under races between threads, by at most one call a thread.

    >>> budget = HedgeBudget(ratio=0.05, burst=2)
    >>> [budget.take() for _ in range(3)]
    [True, True, False]
    >>> for _ in range(60): budget.on_call()    # 5 % of 60 calls are 3 hedges, 2 of which are spent
    >>> [budget.take(), budget.take()]
    [True, False]
    """

    __slots__ = ("_burst", "_calls", "_extra", "_ratio")

    def __init__(self, *, ratio: float, burst: int) -> None:
        self._ratio = ratio
        self._burst = burst if ratio > 0 else 0
        self._calls = 0.0
        self._extra = 0

    def on_call(self) -> None:
        self._calls += self._ratio
        if self._calls - self._extra > self._burst * BALANCE_BURSTS:
            self._calls = self._extra + self._burst * BALANCE_BURSTS

    def take(self, calls: int = 1) -> bool:
        """Leave for that many extra calls: all of them or none."""
        if self._extra + calls > max(self._burst, self._calls) + ROUNDING:
            return False
        self._extra += calls
        return True

    def owe(self, calls: int = 1) -> None:
        """Extra calls that could not be refused: they are taken from those to come."""
        self._extra += calls


class CallBudget:
    """Retries beside first attempts; a success earns more than a failure does.

    Two balances, so that trouble in one corner does not starve while the rest of the cluster is well, and a total
    outage stays cheap:

    - ``earned``: a success earns one retry, at most two bursts are kept;
    - ``share``: a first attempt that failed earns ``ratio`` of one, at most a burst is kept. Every retry is taken from
      here, down into debt, so that an outage of N operations makes ``N + max(2 * burst, ratio * N)`` calls, and
      canaries on top only as far as they are in debt at its end. A success forgives the debt.

    >>> budget = CallBudget(ratio=0.2, burst=3)
    >>> [budget.take(now=0.0) for _ in range(4)]
    [True, True, True, False]
    >>> budget.take(now=1.0)                    # nobody has called for a second: a canary
    True
    >>> budget.take(now=2.5), budget.take(now=3.0)
    (False, True)
    """

    __slots__ = ("_burst", "_canary_s", "_earned", "_earned_max", "_last_call", "_ratio", "_share")

    def __init__(self, *, ratio: float, burst: int) -> None:
        self._ratio = ratio * (1 - CANARY_SHARE)
        self._burst = burst
        self._earned = float(burst)
        self._earned_max = 2.0 * burst
        self._share = 0.0
        self._last_call = 0.0
        self._canary_s = CANARY_S

    def on_first_attempt_failed(self, now: float) -> None:
        self._share = min(self._share + self._ratio, float(self._burst))
        self._last_call = now

    def on_success(self) -> None:
        """Called for each operation that succeeded: nothing to do while all is well."""
        if self._earned < self._earned_max:
            self._earned += 1.0
            self._share = max(self._share, 0.0)
            self._canary_s = CANARY_S

    def take(self, now: float) -> bool:
        if self._earned >= 1.0:
            self._earned -= 1.0
        elif self._share < 1.0 - ROUNDING and not self._is_canary_due(now):
            return False
        self._share -= 1.0
        self._last_call = now
        return True

    def _is_canary_due(self, now: float) -> bool:
        if now - self._last_call < self._canary_s:
            return False
        self._canary_s = min(self._canary_s * 2, CANARY_S_MAX)
        return True
