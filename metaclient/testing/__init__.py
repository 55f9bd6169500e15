"""For tests: a scripted backend, the contract that every backend must keep, and pytest fixtures.

>>> from metaclient.testing import ScriptedBackend
>>> backend = ScriptedBackend(meta_replicas=3)
>>> rule = backend.on("read_meta", replica=1).hangs()
"""

from metaclient.testing.scripted import Call, Rule, ScriptedBackend

__all__ = ["Call", "Rule", "ScriptedBackend"]
