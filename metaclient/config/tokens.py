"""Delegation tokens of HBase: the value, and Hadoop's file of tokens (``HADOOP_TOKEN_FILE_LOCATION``).

The file, as Hadoop 2 and 3 write it (``Credentials.writeTokenStorageToStream``), with Hadoop's variable-length ints::

    "HDTS" | version 0 | count | {alias | identifier | password | kind | service}* | count | {name | value}*

Each text and each array of bytes has its length before it. Version 1 is protobuf, which only Hadoop 3.3's
``dtutil --format protobuf`` writes; it is refused.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from metaclient.config.rules import PLAIN, NotAllowedError, Unit
from metaclient.errors import ConfigError, Unsupported
from metaclient.protobuf import SIGNED, TEXT, UNSIGNED, Message, ProtocolError, decode, encode

__all__ = ["TOKEN", "Token", "TokenFunction", "TokenRule", "encode_identifier", "parse_token_file", "read_token_file"]

#: The kind of HBase's tokens (AuthenticationTokenIdentifier.AUTH_TOKEN_TYPE of 2.6).
KIND: Final = "HBASE_AUTH_TOKEN"
#: A file holds tokens of HDFS, YARN, Hive and HBase, each of some hundred bytes.
FILE_BYTES_MAX: Final = 4 << 20
_IDENTIFIER = Message(
    "AuthenticationTokenIdentifier",
    (1, "kind", UNSIGNED),
    (2, "username", TEXT),
    (3, "key_id", SIGNED),
    (4, "issue_date", SIGNED),
    (5, "expiration_date", SIGNED),
    (6, "sequence_number", SIGNED),
)


@dataclass(frozen=True, slots=True, repr=False)
class Token:
    """A delegation token: it proves a user's identity to all servers of one cluster until it expires.

    ``password`` is a secret, so ``repr`` shows neither it nor the identifier. Two tokens are equal if cluster, user,
    expiry and key are. A token can be pickled, to be sent to another process.
    """

    identifier: bytes
    password: bytes = field(compare=False)
    #: The id of the cluster that issued the token.
    cluster_id: str

    def __post_init__(self) -> None:
        """Raise ConfigError if the identifier is not that of a token of HBase."""
        self._fields()

    def _fields(self) -> dict[str, Any]:
        size = int.from_bytes(self.identifier[:4], "big")
        if len(self.identifier) < 4 or size != len(self.identifier) - 4:
            raise ConfigError("the identifier of the token is not that of a token of HBase: its length is wrong")
        try:
            return decode(_IDENTIFIER, self.identifier, 4, len(self.identifier))
        except ProtocolError as error:
            raise ConfigError("the identifier of the token is not that of a token of HBase") from error

    @property
    def username(self) -> str:
        """The user that the token stands for."""
        name: str = self._fields().get("username", "")
        return name

    @property
    def issued_ms(self) -> int:
        """The wall clock, in milliseconds, when the token was issued."""
        when: int = self._fields().get("issue_date", 0)
        return when

    @property
    def expires_ms(self) -> int:
        """The wall clock, in milliseconds, from which on the servers refuse the token."""
        when: int = self._fields().get("expiration_date", 0)
        return when

    @property
    def renew_ms(self) -> int:
        """The wall clock, in milliseconds, at which a new token should be fetched: 80 % of the token's life."""
        return self.issued_ms + (self.expires_ms - self.issued_ms) * 4 // 5

    def __repr__(self) -> str:
        return f"<Token of {self.username} for cluster {self.cluster_id}, expires_ms={self.expires_ms}>"


def encode_identifier(username: str, *, issued_ms: int, expires_ms: int, number: int = 0) -> bytes:
    """Return the identifier of a token, as a server that issues one writes it."""
    fields = {
        "kind": 0,
        "username": username,
        "key_id": 1,
        "issue_date": issued_ms,
        "expiration_date": expires_ms,
        "sequence_number": number,
    }
    body = encode(_IDENTIFIER, fields)
    return len(body).to_bytes(4, "big") + body


@dataclass(frozen=True, slots=True, repr=False)
class TokenFunction:
    """A function of the application that returns a new token. Its arguments may be secrets, so ``repr`` is mute."""

    fetch: Callable[[], Token]

    def __call__(self) -> Token:
        return self.fetch()

    def __repr__(self) -> str:
        return "<a function that fetches a token>"


class TokenRule:
    """The rule of the option ``token``: a `Token` or a function that returns one.

    By keyword only, because a property would show its password.
    """

    own = PLAIN

    def parse(self, text: str) -> object:
        raise NotAllowedError("a token is a secret and no property")

    def check(self, value: object, unit: Unit) -> object:
        if isinstance(value, Token | TokenFunction):
            return value
        if callable(value):
            return TokenFunction(value)
        raise NotAllowedError("not a token")

    def allowed(self, unit: Unit) -> str:
        return (
            "by keyword the result of connection.delegation_token(), or a function that returns one; or set "
            "HADOOP_TOKEN_FILE_LOCATION to a file of tokens"
        )


TOKEN: Final = TokenRule()


def read_token_file(path: str | os.PathLike[str]) -> tuple[Token, ...]:
    """Return HBase's tokens of a file; those of other programs are skipped. ConfigError, Unsupported."""
    try:
        with Path(path).open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(
            f"{os.fspath(path)} (HADOOP_TOKEN_FILE_LOCATION): cannot be read: {error.strerror}; check the path and its "
            "permissions"
        ) from error
    return parse_token_file(data, os.fspath(path))


def parse_token_file(data: bytes, name: str) -> tuple[Token, ...]:
    """Return HBase's tokens in the bytes of a file of this name.

    >>> parse_token_file(b"HDTS" + bytes(3), "tokens")
    ()
    """
    if len(data) > FILE_BYTES_MAX or not data.startswith(b"HDTS"):
        raise ConfigError(f"{name}: not a file of Hadoop's tokens (HDTS); was it made by a YARN or Spark container?")
    if data[4:5] == b"\x01":
        raise Unsupported(
            f"{name}: tokens in protobuf (version 1); write them with `hadoop dtutil -format java`, which is version 0"
        )
    reader = _TokenFileReader(data, 5, name)
    if data[4:5] != b"\0":
        raise reader.broken()
    found = []
    for _ in range(reader.count()):
        reader.chunk()  # the alias
        identifier, password, kind, service = (reader.chunk() for _ in range(4))
        if kind == KIND.encode():
            found.append(Token(identifier, password, service.decode(errors="replace")))
    for _ in range(reader.count()):
        reader.chunk()
        reader.chunk()
    return tuple(found)


class _TokenFileReader:
    """Reads Hadoop's variable-length ints (WritableUtils.readVInt) and the arrays behind them."""

    def __init__(self, data: bytes, at: int, name: str) -> None:
        self._data = data
        self._at = at
        self._name = name

    def broken(self) -> ConfigError:
        return ConfigError(f"{self._name}: the file of tokens is cut or damaged, at byte {self._at}")

    def count(self) -> int:
        first = self._take(1)[0]
        if first < 128:
            return first
        size = 144 - first  # the byte -113 means one byte, -120 eight
        if not 1 <= size <= 8:  # a negative number, which no length is
            raise self.broken()
        return int.from_bytes(self._take(size), "big")

    def chunk(self) -> bytes:
        return self._take(self.count())

    def _take(self, size: int) -> bytes:
        end = self._at + size
        if end > len(self._data):
            raise self.broken()
        taken, self._at = self._data[self._at : end], end
        return taken
