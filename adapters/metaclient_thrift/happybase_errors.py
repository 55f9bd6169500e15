"""Errors of ``thrift1:`` that are errors of happybase, too: ``except Hbase_thrift.AlreadyExists`` catches ours.

happybase raises the exceptions of the protocol (IOError, IllegalArgument, AlreadyExists) and those of thriftpy2. An
error of this client gets a class that also inherits from the one that happybase would raise: the exception that the
gateway sent, if there was one; otherwise a TTransportException for servers that cannot be reached, and IOError.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from thriftpy2.thrift import TException
from thriftpy2.transport import TTransportException

from metaclient.errors import ConfigError, MetaClientError, TableExists, Unsupported
from metaclient.wire.thrift.idl import thrift1

__all__ = ["adapt_error"]

T = thrift1()
#: Errors of this client's own, which happybase does not have.
_OURS = (ConfigError, Unsupported)
#: The longest chain of causes that is followed.
_CAUSES_MAX = 10
#: The classes that were made; there are some dozen errors, and five classes of happybase.
_kins: dict[tuple[type[MetaClientError], type[BaseException]], type[MetaClientError]] = {}


def adapt_error(error: MetaClientError) -> None:
    """Make the error an instance of happybase's class, too; its identity, message and traceback stay."""
    kind = type(error)
    if isinstance(error, TException) or issubclass(kind, _OURS):
        return
    sent: list[Any] = [type(one) for one in _causes(error) if isinstance(one, TException)]
    foreign: Any = sent[0] if sent and not issubclass(sent[0], MetaClientError) else _by_kind(error)
    error.__class__ = _kin(kind, foreign)
    if issubclass(foreign, TTransportException):
        timed_out = TTransportException.TIMED_OUT if error.is_deadline else TTransportException.NOT_OPEN
        error.__dict__.setdefault("type", timed_out)


def _causes(error: BaseException) -> Iterator[BaseException]:
    cause = error.__cause__
    for _ in range(_CAUSES_MAX):
        if cause is None:
            return
        yield cause
        cause = cause.__cause__


def _by_kind(error: MetaClientError) -> type[BaseException]:
    if isinstance(error, TableExists):
        found: type[BaseException] = T.AlreadyExists
        return found
    is_of_transport = error.blames_server or error.hides_outcome or error.is_deadline or error.ends_connection
    return TTransportException if is_of_transport else T.IOError


def _kin(kind: type[MetaClientError], foreign: type[BaseException]) -> type[MetaClientError]:
    """Return a class that inherits from both classes, with the name of the one of metaclient."""
    known = _kins.get((kind, foreign))
    if known is not None:
        return known

    def reduce(self: MetaClientError) -> tuple[object, ...]:
        return _rebuilt, (kind, foreign, self.args), self.__dict__

    names: dict[str, Any] = {
        "__module__": kind.__module__,
        "__qualname__": kind.__qualname__,
        "__doc__": kind.__doc__,
        "__repr__": BaseException.__repr__,
        "__str__": kind.__str__,
        "__eq__": object.__eq__,
        "__hash__": object.__hash__,
        "__reduce__": reduce,
    }
    metaclass: Any = type(foreign)
    made: type[MetaClientError] = metaclass(kind.__name__, (kind, foreign), names)
    return _kins.setdefault((kind, foreign), made)


def _rebuilt(kind: type[MetaClientError], foreign: type[BaseException], args: tuple[object, ...]) -> MetaClientError:
    """Make an error again from its pickle."""
    made = kind.__new__(kind, *args)
    made.args = args
    made.__class__ = _kin(kind, foreign)
    return made
