"""The kinds of option values: one small parser per kind, and the text of its error message."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from metaclient.errors import ConfigError
from metaclient.model import Durability
from spark_connector.schema.ranges import KeyRange, bytes_of

__all__ = [
    "Kind",
    "WriteTimestamp",
    "decimal_number",
    "durability",
    "flag",
    "key",
    "key_ranges",
    "keys_list",
    "names",
    "one_of",
    "starting_timestamp",
    "text",
    "whole",
    "write_timestamp",
]

T = TypeVar("T")
INT64_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Kind(Generic[T]):
    """A kind of value: its parser, and the allowed values as text for error messages."""

    read: Callable[[str], T]
    allowed: str

    def parse(self, name: str, given: str) -> T:
        try:
            return self.read(given.strip())
        except ConfigError as error:
            raise ConfigError(f"option {name}: {error}") from None
        except ValueError:
            raise ConfigError(f"option {name} = {given!r}: allowed is {self.allowed}") from None


@dataclass(frozen=True, slots=True)
class WriteTimestamp:
    """The timestamp of written cells: milliseconds, a column, the servers' time, or (none of these) the job's time."""

    ms: int | None = None
    column: str | None = None
    is_servers: bool = False

    @property
    def is_job(self) -> bool:
        return self.ms is None and self.column is None and not self.is_servers


def _refuse_empty(value: str) -> str:
    if not value:
        raise ValueError
    return value


text: Kind[str] = Kind(_refuse_empty, "text that is not empty")


def _flag(value: str) -> bool:
    if value.lower() not in ("true", "false"):
        raise ValueError
    return value.lower() == "true"


flag: Kind[bool] = Kind(_flag, "true or false")


def whole(low: int, high: int = INT64_MAX, *, off: str = "") -> Kind[int | None]:
    """Return the kind of whole numbers in [low, high]; ``off`` (such as -1) means "not set"."""

    def read(value: str) -> int | None:
        if off and value.lower() == off:
            return None
        number = int(value)
        if not low <= number <= high:
            raise ValueError
        return number

    upper = f" to {high}" if high < INT64_MAX else " or more"
    return Kind(read, f"a whole number, {low}{upper}" + (f" ({off} = not set)" if off else ""))


def decimal_number(above: float, *, off: str = "") -> Kind[float | None]:
    """Return the kind of numbers greater than ``above``."""

    def read(value: str) -> float | None:
        if off and value.lower() == off:
            return None
        number = float(value)
        if not above < number < float("inf"):
            raise ValueError
        return number

    return Kind(read, f"a number greater than {above:g}" + (f" ({off} = not set)" if off else ""))


def one_of(*words: str) -> Kind[str]:
    """Return the kind whose values are these words, in any case."""
    by_lower = {word.lower(): word for word in words}

    def read(value: str) -> str:
        if value.lower() not in by_lower:
            raise ValueError
        return by_lower[value.lower()]

    return Kind(read, "one of " + ", ".join(words))


def _key(value: str) -> bytes:
    return bytes_of(value)


key: Kind[bytes] = Kind(_key, "a row key; write other bytes as \\xNN")


def _key_ranges(value: str) -> tuple[KeyRange, ...]:
    ranges = []
    for part in filter(None, (piece.strip() for piece in value.split(";"))):
        start, comma, stop = part.partition(",")
        if not comma or "," in stop:
            raise ConfigError(f"range {part!r} is not START,STOP (a comma inside of a key is \\x2C, a semicolon \\x3B)")
        each = KeyRange(bytes_of(start.strip()), bytes_of(stop.strip()))
        if each.is_empty:
            raise ConfigError(f"range {part!r} is empty: its start is not before its stop, which is exclusive")
        ranges.append(each)
    if not ranges:
        raise ValueError
    return tuple(ranges)


key_ranges: Kind[tuple[KeyRange, ...]] = Kind(_key_ranges, "START,STOP;START,STOP... (either end may be empty)")


def _keys_list(value: str) -> tuple[bytes, ...]:
    found = tuple(bytes_of(part.strip()) for part in value.split(",") if part.strip())
    if not found or len(set(found)) < len(found):
        raise ValueError
    return tuple(sorted(found))


keys_list: Kind[tuple[bytes, ...]] = Kind(_keys_list, "row keys, separated by commas, each once")


def _names(value: str) -> tuple[str, ...]:
    found = tuple(part.strip() for part in value.split(","))
    if not all(found) or len(set(found)) < len(found):
        raise ValueError
    return found


names: Kind[tuple[str, ...]] = Kind(_names, "names, separated by commas, each once")


def _durability(value: str) -> Durability:
    if value.upper() not in Durability.__members__:
        raise ValueError
    return Durability[value.upper()]


durability: Kind[Durability] = Kind(_durability, "one of " + ", ".join(Durability.__members__))


def _write_timestamp(value: str) -> WriteTimestamp:
    if value.lower() == "job":
        return WriteTimestamp()
    if value.lower() == "server":
        return WriteTimestamp(is_servers=True)
    head, colon, rest = value.partition(":")
    if colon and head.lower() == "column" and rest.strip():
        return WriteTimestamp(column=rest.strip())
    number = int(value)
    if not 0 <= number < INT64_MAX:
        raise ValueError
    return WriteTimestamp(ms=number)


write_timestamp: Kind[WriteTimestamp] = Kind(_write_timestamp, "job, server, milliseconds since 1970, or column:NAME")


def _starting_timestamp(value: str) -> int | None:
    if value.lower() == "now":
        return None
    number = int(value)
    if not 0 <= number < INT64_MAX:
        raise ValueError
    return number


starting_timestamp: Kind[int | None] = Kind(_starting_timestamp, "now, or milliseconds since 1970")
