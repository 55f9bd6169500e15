"""Delegation tokens on their way from the driver to the tasks, which need no keytab, ticket, KDC or package for it.

1. When options are pickled on the driver, for a reader, a writer or the partitions of a micro-batch, the token of their
   cluster is pickled with them. ``clients`` fetches it with the driver's ticket or keytab, and fetches a new one at
   80 % of its life (``Token.renew_ms``). A driver that has a token itself passes that one on.
2. When options are unpickled in a worker, the worker keeps the newest token of each cluster. The connections that it
   opens from then on use that token.

A token is never part of the options: neither their repr nor their properties nor Spark's plans show it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from metaclient import Token

if TYPE_CHECKING:
    from spark_connector.settings.options import Options

__all__ = ["TokenParcel", "received_token", "set_token_source"]

#: The url and the properties of a cluster; `ClientKey` of the options.
_Key: TypeAlias = tuple[str, tuple[tuple[str, str], ...]]
#: Clusters whose token a worker keeps; a job reads from one cluster and may write to a second one.
RECEIVED_MAX = 64

_received: dict[_Key, Token] = {}
_source: Callable[[Options], Token | None] | None = None


def set_token_source(source: Callable[[Options], Token | None]) -> None:
    """Set the function that returns the token for the tasks of a read or write; None if the cluster needs none."""
    global _source
    _source = source


def received_token(key: _Key) -> Token | None:
    """Return the newest token of a cluster that the driver has sent to this process."""
    return _received.get(key)


class TokenParcel:
    """Takes the token of the options' cluster along when it is pickled; it is empty after that.

    Pickle calls ``__reduce__`` on the driver and `_receive` in the worker.
    """

    __slots__ = ("_options",)

    def __init__(self, options: Options) -> None:
        self._options = options

    def __repr__(self) -> str:
        return "<TokenParcel>"

    def __reduce__(self) -> tuple[object, ...]:
        if _source is None:
            return _receive, ()
        token = _source(self._options)
        return (_receive, ()) if token is None else (_receive, (self._options.resolved().client_key(), token))


def _receive(key: _Key | None = None, token: Token | None = None) -> None:
    """Keep a token that expires later than the one that is there."""
    if key is None or token is None:
        return
    known = _received.get(key)
    if known is None or known.expires_ms < token.expires_ms:
        _received.pop(key, None)
        while len(_received) >= RECEIVED_MAX:
            _received.pop(next(iter(_received)), None)
        _received[key] = token
