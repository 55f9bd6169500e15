"""Decides which user may do what with which table, as HBase's AccessController of 2.6 does with its grants.

Rights are checked from the first call of `Grants.grant` or `Grants.revoke` on; before that, all users may do
everything. Superusers may always do everything: the user ``hbase``, the user of this process, and clients without a
name (connections inside the process that name no user, the Thrift gateways).

DIVERGENCES: a right is for a table, a namespace or all tables, not for a family or a cell; CREATE of a table that does
not exist yet can be granted by its name; the execution of coprocessors (X) is accepted and has no effect; there are no
groups and no tables of visibility labels.
"""

from __future__ import annotations

import enum
import getpass
from collections.abc import Iterable, Sequence
from typing import Final

from metaclient import keys
from metaclient.errors import AccessDenied, ConfigError
from metaclient.model import Get, Mutation
from metaclient.wire.java_errors import advise_on_denial

__all__ = ["CHANGE", "Grants", "Right"]

#: Rights that are kept; each is a user and a scope.
GRANTS_MAX = 100_000
_META = b"hbase:meta"
_SUPERUSER = "hbase"


class Right(enum.Enum):
    """An action of HBase's Permission; the value is the letter in ``grant`` of HBase's shell."""

    READ = "R"
    WRITE = "W"
    EXEC = "X"
    CREATE = "C"
    ADMIN = "A"


#: The rights of which one is needed to change a table.
CHANGE: Final = (Right.CREATE, Right.ADMIN)


def _this_user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        return _SUPERUSER


class Grants:
    """The rights of all users of a cluster. Safe to share between threads: a change replaces one entry of a dict."""

    def __init__(self) -> None:
        self._rights: dict[tuple[str, bytes], frozenset[Right]] = {}
        self._superusers = frozenset({_SUPERUSER, _this_user()})
        self.is_enforced = False

    def __repr__(self) -> str:
        return f"Grants({len(self._rights)} rights, {'enforced' if self.is_enforced else 'not enforced'})"

    def grant(self, user: str, rights: str, scope: str | bytes | None = None) -> None:
        """Give a user the rights of these letters; see :meth:`FakeCluster.grant`."""
        if not isinstance(user, str) or not user:
            raise ConfigError(f"grant needs the name of a user, got {user!r}")
        key = (user, _scope(scope))
        if key not in self._rights and len(self._rights) >= GRANTS_MAX:
            raise ConfigError(f"the fake keeps at most {GRANTS_MAX} rights")
        self._rights[key] = self._rights.get(key, frozenset()) | _parse(rights)
        self.is_enforced = True

    def revoke(self, user: str, scope: str | bytes | None = None) -> None:
        """Take all rights of a user in this scope away; those of a wider scope stay."""
        self._rights.pop((user, _scope(scope)), None)
        self.is_enforced = True

    def own(self, user: str | None, table: bytes) -> None:
        """Give the creator of a table all rights on it, as HBase does."""
        if user is not None and self.is_enforced and not self.is_super(user):
            self.grant(user, "RWXCA", table)

    def is_super(self, user: str | None) -> bool:
        return user is None or user in self._superusers

    def allows(self, user: str | None, rights: Iterable[Right], table: bytes = b"") -> bool:
        """Return True if the user has one of the rights on a table; an empty name means all tables."""
        if not self.is_enforced or self.is_super(user):
            return True
        assert user is not None
        wanted = frozenset(rights)
        if table == _META and Right.READ in wanted:
            return True
        scopes = [b"", table, b"@" + _namespace(table)] if table else [b""]
        return any(wanted & self._rights.get((user, scope), frozenset()) for scope in scopes)

    def check(self, user: str | None, rights: Sequence[Right], table: bytes = b"") -> None:
        """Raise AccessDenied with HBase's text unless the user has one of the rights."""
        if not self.allows(user, rights, table):
            raise _denied(user, rights[0], table)

    def denial(self, user: str | None, operation: Get | Mutation, table: bytes) -> AccessDenied | None:
        """Return the error of one operation of a batch; None if the user may do it."""
        right = Right.READ if isinstance(operation, Get) else Right.WRITE
        return None if self.allows(user, [right], table) else _denied(user, right, table)

    def visible(self, user: str | None, tables: Iterable[bytes]) -> list[bytes]:
        """Return the tables on which the user has any right: HBase lists no others."""
        return [table for table in tables if self.allows(user, Right, table)]


def _denied(user: str | None, right: Right, table: bytes) -> AccessDenied:
    scope = keys.printable(table) if table else "GLOBAL"
    text = f"Insufficient permissions (user={user}, scope={scope}, action={right.name})"
    return AccessDenied(f"{text}{advise_on_denial(text)}", detail=AccessDenied.java_class)


def _scope(scope: str | bytes | None) -> bytes:
    """Return the key of a scope: a table, ``@namespace``, or b"" for all tables."""
    if scope is None:
        return b""
    text = scope if isinstance(scope, bytes) else scope.encode()
    return text if text.startswith(b"@") else keys.table_name(text)


def _namespace(table: bytes) -> bytes:
    namespace, colon, _ = table.partition(b":")
    return namespace if colon else b"default"


def _parse(rights: str) -> frozenset[Right]:
    known = [one.value for one in Right]
    for letter in rights:
        if letter not in known:
            raise ConfigError(
                f"{letter!r} in {rights!r} is no right; the letters are those of HBase's "
                "shell: R (read), W (write), X (execute), C (create), A (admin)"
            )
    if not rights:
        raise ConfigError("grant needs at least one of the letters RWXCA")
    return frozenset(Right(letter) for letter in rights)
