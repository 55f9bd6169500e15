"""Policies for attempts, and the executor that carries them out.

``plan`` decides which copies are called and when, ``delay`` how long to wait for the primary, ``budget`` how many extra
calls are allowed, ``silence`` which servers are called last, ``retry`` whether and when to retry; ``executor`` starts,
races and drains the calls.
"""

from metaclient.attempts.budget import CallBudget, HedgeBudget
from metaclient.attempts.delay import HedgeDelay, LatencyWindow
from metaclient.attempts.executor import Executor, Won, told
from metaclient.attempts.plan import Leg, all_at_once, one_replica, staged
from metaclient.attempts.silence import SilentServers

__all__ = [
    "CallBudget",
    "Executor",
    "HedgeBudget",
    "HedgeDelay",
    "LatencyWindow",
    "Leg",
    "SilentServers",
    "Won",
    "all_at_once",
    "one_replica",
    "staged",
    "told",
]
