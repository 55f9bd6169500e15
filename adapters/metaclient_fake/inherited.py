"""Refuses a cluster in a forked child process, where its memory is a copy without threads.

After ``os.fork()`` a child has all of the cluster's memory and none of its threads. Any lock may be held and any write
half done, and a write to the copy would be acknowledged although neither the parent nor another child ever sees it. So
the cluster's parts are replaced, in the child only, by one object that refuses every use.
"""

from __future__ import annotations

from typing import Any, NoReturn

from metaclient.runtime import inherited_error

__all__ = ["PartOfParent"]

_ADVICE = (
    "its memory here is only a copy. Serve the cluster before the fork (FakeCluster.serve) and connect to "
    "front.thrift2_url or front.rpc_url, or make another one in this process (fake:, or fake: with another name)"
)


class PartOfParent:
    """Stands for any part of a cluster that the parent process has; every use of it is refused.

    >>> PartOfParent().is_closed
    Traceback (most recent call last):
    metaclient.errors.ConnectionClosed: the fake cluster belongs to the parent of this process (os.fork): its memory ...
    """

    def __getattr__(self, name: str) -> NoReturn:
        raise inherited_error("the fake cluster", _ADVICE)

    def __iter__(self) -> NoReturn:
        raise inherited_error("the fake cluster", _ADVICE)

    def __getitem__(self, key: Any) -> NoReturn:
        raise inherited_error("the fake cluster", _ADVICE)

    def __contains__(self, key: Any) -> NoReturn:
        raise inherited_error("the fake cluster", _ADVICE)
