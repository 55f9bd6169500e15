"""Policies for attempts, and the executor that carries them out.

``plan`` decides which copies are called and when, ``delay`` how long to wait for the primary, ``budget`` how many extra
calls are allowed, ``silence`` and ``latencies`` which servers are called last, ``choice`` which replica is called
first, ``retry`` whether and when to retry, ``contest`` what the outcomes of a race mean; ``executor`` starts, races and
drains the calls.
"""

from metaclient.attempts.budget import CallBudget, HedgeBudget
from metaclient.attempts.choice import PINNED, PRIMARY, ReadGuard, avoiding, explained, is_slow_now
from metaclient.attempts.contest import Won
from metaclient.attempts.delay import HedgeDelay, LatencyWindow
from metaclient.attempts.executor import Executor, told
from metaclient.attempts.latencies import IN_TIME, OUTRUN, ServerLatencies
from metaclient.attempts.plan import Leg, all_at_once, one_replica, staged
from metaclient.attempts.silence import SilentServers

__all__ = [
    "IN_TIME",
    "OUTRUN",
    "PINNED",
    "PRIMARY",
    "CallBudget",
    "Executor",
    "HedgeBudget",
    "HedgeDelay",
    "LatencyWindow",
    "Leg",
    "ReadGuard",
    "ServerLatencies",
    "SilentServers",
    "Won",
    "all_at_once",
    "avoiding",
    "explained",
    "is_slow_now",
    "one_replica",
    "staged",
    "told",
]
