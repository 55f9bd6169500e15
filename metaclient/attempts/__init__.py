"""Policies about reads, and the one place that carries them out.

``plan`` says which copies are asked and when, ``delay`` how long the primary is given, ``budget`` how many extra calls
there may be, ``silence`` who is asked last; ``executor`` starts, races and drains the calls.
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
