"""Decides how many extra calls are allowed: hedges in addition to first calls, retries after failures.

Extra calls stay below ``max(a burst, ratio * calls)``, so that the extra load during failures is bounded by a share of
the normal load. The unused balance is capped, so that a quiet week does not allow a storm of extra calls.

A refused hedge is not sent. A refused *retry* waits: the operation sleeps and asks the budget again until its deadline.
So that a client whose threads all wait notices the end of an outage, one thread may send a canary call after a time
without calls (one second, doubling up to twenty). Canaries are deducted from the budget later, like other retries; only
a client with hardly any load exceeds its share, by one call in 20 seconds.
"""

from __future__ import annotations

__all__ = ["CallBudget", "HedgeBudget"]

#: An unused balance of at most this many bursts of hedges is kept for later.
BALANCE_BURSTS = 10
#: This part of the balance is a reserve. A pause of 0.1 s on one of five servers delays 20 of 1,000 reads per second.
RESERVE_BURSTS = 2
#: Extra calls beyond the budget that show whether a server is slow.
DEBT_MAX = 5
#: Sums of small fractions fall a little short of whole numbers.
ROUNDING = 1e-9
CANARY_S = 1.0
#: This share of the retry ratio is kept back, so that canaries at the end of an outage stay within the ratio, too.
CANARY_SHARE = 0.05
#: HBase's longest pause between two attempts: the last multiplier of RETRY_BACKOFF with a unit of 100 ms.
CANARY_S_MAX = 20.0


class HedgeBudget:
    """The budget of extra calls beside the normal ones. Races between threads may exceed it by one call per thread.

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

    def is_low(self) -> bool:
        """Return True if the remaining hedges should be kept for reads whose server has stopped answering."""
        kept = self._burst / 2 if self._extra < self._burst else self._burst * RESERVE_BURSTS
        return max(self._burst, self._calls) - self._extra < kept

    def allows(self, calls: int = 1, *, debt: int = 0) -> bool:
        """Return True if that many extra calls could be made now, without more than this debt."""
        return self._ratio > 0 and self._extra + calls <= max(self._burst, self._calls) + debt + ROUNDING

    def borrow(self, calls: int = 1) -> bool:
        """Return True and deduct extra calls from the future budget if the debt stays within DEBT_MAX."""
        if not self.allows(calls, debt=DEBT_MAX):
            return False
        self._extra += calls
        return True

    def take(self, calls: int = 1) -> bool:
        """Return True and deduct that many extra calls if the budget allows all of them."""
        if not self.allows(calls):
            return False
        self._extra += calls
        return True

    def owe(self, calls: int = 1) -> None:
        """Deduct extra calls that could not be refused from the future budget."""
        self._extra += calls


class CallBudget:
    """The budget of retries beside first attempts. A success earns more retries than a failure.

    There are two balances, so that failures of a few regions can be retried while the rest of the cluster works, and a
    total outage causes few calls:

    - ``earned``: a success earns one retry, at most two bursts are kept;
    - ``share``: a failed first attempt earns ``ratio`` of a retry, at most one burst is kept. Every retry is deducted
      from this balance, which may become negative, so that an outage of N operations causes
      ``N + max(2 * burst, ratio * N)`` calls, plus the canaries that the balance does not cover at its end. A success
      resets a negative balance to zero.

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
        """Record an operation that succeeded. Nothing changes while the balance is full."""
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
