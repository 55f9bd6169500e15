"""For tests: a scripted backend, the contract that every backend must keep, and pytest fixtures.

>>> from metaclient.testing import ScriptedBackend
>>> backend = ScriptedBackend(meta_replicas=3)
>>> rule = backend.on("read_meta", replica=1).hangs()
"""

from typing import TYPE_CHECKING

from metaclient.testing.scripted import Call, Rule, ScriptedBackend

if TYPE_CHECKING:
    from metaclient.testing.contract import BackendContract

__all__ = ["BackendContract", "Call", "Rule", "ScriptedBackend"]


def __getattr__(name: str) -> object:
    """The contract needs pytest, which users of the scripted backend may not have."""
    if name == "BackendContract":
        import pytest

        pytest.register_assert_rewrite("metaclient.testing.contract")
        from metaclient.testing.contract import BackendContract

        return BackendContract
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
