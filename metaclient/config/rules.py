"""Defines the allowed values of a field: a number within bounds and in a unit, or one of a few words."""

from __future__ import annotations

import enum
import numbers
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

from metaclient.config.refusals import refusal

__all__ = [
    "BUDGET",
    "BYTES",
    "COUNT",
    "DEADLINE",
    "FLAG",
    "INT_MAX",
    "MODE",
    "MS",
    "PLAIN",
    "QUANTILE",
    "SELECTOR",
    "SHARE",
    "SIZE",
    "SPAN",
    "TIME",
    "UNLIMITED_S",
    "US",
    "FieldRule",
    "FieldSpec",
    "MetaMode",
    "NotAllowedError",
    "Text",
    "Unit",
    "Word",
    "checked",
    "one_of",
]


class MetaMode(enum.Enum):
    """How lookups use the replicas of hbase:meta; the values of ``hbase.locator.meta.replicas.mode``."""

    NONE = "None"  # read the primary only
    HEDGED_READ = "HedgedRead"  # read the primary, and after a delay the secondaries as well
    LOAD_BALANCE = "LoadBalance"  # read one replica per lookup, chosen by a selector

    @classmethod
    def of(cls, word: str | MetaMode) -> MetaMode:
        """Return the mode of this name, in any case; ``ConfigError`` for any other word.

        >>> MetaMode.of("loadbalance")
        <MetaMode.LOAD_BALANCE: 'LoadBalance'>
        """
        mode = checked("meta_mode", MODE, word)
        assert isinstance(mode, MetaMode)
        return mode


class Unit(NamedTuple):
    """A unit of numbers, relative to the unit of the field (seconds, bytes, plain numbers)."""

    name: str
    per_own: int  # the number of these units in one unit of the field


PLAIN: Final = Unit("", 1)
S: Final = Unit("s", 1)
MS: Final = Unit("ms", 1_000)
US: Final = Unit("us", 1_000_000)

SECONDS_MAX = 30 * 86_400  # 30 days: above 2^31-1 ms (24.9 days), the maximum of HBase's int properties
UNLIMITED_S = 86_400.0  # replaces HBase's "unlimited": longer than any operation, and still bounded
INT_MAX = 2**31 - 1  # Java's Integer.MAX_VALUE, which site files use for "no limit"
LONG_MAX = 2**63 - 1


class NotAllowedError(Exception):
    """The reason why a value is refused. The caller, which knows the name and the source, raises a ConfigError."""


class FieldRule(Protocol):
    """The allowed values of a field, and how they are parsed."""

    @property
    def own(self) -> Unit:
        """The unit of the field itself."""

    def parse(self, text: str) -> object:
        """Return the value of a property's text, in the property's unit; NotAllowedError if it is malformed."""

    def check(self, value: object, unit: Unit) -> object:
        """Return ``value`` in the field's unit; NotAllowedError if its type is wrong or it is out of range."""

    def allowed(self, unit: Unit) -> str:
        """Describe the allowed values, for an error message."""


_WHOLE_TEXT = re.compile(r"[+-]?[0-9]{1,30}")
_NUMBER_TEXT = re.compile(r"[+-]?[0-9]{1,30}(\.[0-9]{0,30})?([eE][+-]?[0-9]{1,3})?")


@dataclass(frozen=True, slots=True)
class Number:
    """A number from ``low`` to ``high``; an open end is not part of the range.

    >>> TIME.check(250_000, US)
    0.25
    """

    low: int
    high: int
    own: Unit = PLAIN
    whole: bool = False
    open_low: bool = False
    open_high: bool = False

    def parse(self, text: str) -> float:
        if _WHOLE_TEXT.fullmatch(text):
            return int(text)
        if self.whole or not _NUMBER_TEXT.fullmatch(text):
            raise NotAllowedError(f"not {self._kind()}")
        return float(text)

    def check(self, value: object, unit: Unit) -> float:
        if isinstance(value, bool) or not isinstance(value, numbers.Integral if self.whole else numbers.Real):
            raise NotAllowedError(f"not {self._kind()}")
        number: Any = value
        if not self._contains(number, unit.per_own):
            raise NotAllowedError(self._out_of_range(number))
        return int(number) if self.whole else float(number) / unit.per_own

    def _contains(self, number: float, scale: int) -> bool:
        # Compared before any conversion, so that huge ints do not overflow; NaN compares false everywhere.
        low, high = self.low * scale, self.high * scale
        above = number > low if self.open_low else number >= low
        below = number < high if self.open_high else number <= high
        return above and below

    def _out_of_range(self, number: float) -> str:
        return "out of range"

    def allowed(self, unit: Unit) -> str:
        low = f"{'more than' if self.open_low else 'at least'} {self.low * unit.per_own}"
        high = f"{'less than' if self.open_high else 'at most'} {self.high * unit.per_own}"
        return f"{self._kind()}{' of ' + unit.name if unit.name else ''}, {low} and {high}"

    def _kind(self) -> str:
        return "a whole number" if self.whole else "a number"


class DeadlineNumber(Number):
    """A timeout. HBase takes 0 or less as "unlimited" (RpcConnection, the retrying callers); here it is refused."""

    __slots__ = ()

    def _out_of_range(self, number: float) -> str:
        if number <= 0:
            return "every wait has a deadline here, so there is no 'unlimited'; write a long time, a day is 86400 s"
        return super()._out_of_range(number)


@dataclass(frozen=True, slots=True)
class Word:
    """One of a few words, in any case; each stands for a value."""

    meanings: Mapping[str, object]

    @property
    def own(self) -> Unit:
        return PLAIN

    def parse(self, text: str) -> str:
        return text

    def check(self, value: object, unit: Unit) -> object:
        for word, meaning in self.meanings.items():
            if value is meaning or (isinstance(value, str) and value.lower() == word.lower()):
                return meaning
        raise NotAllowedError("not one of the words")

    def allowed(self, unit: Unit) -> str:
        return ", ".join(self.meanings)


class SelectorName(Word):
    """The name of a selector, the Java class of the same selector, or (only as a keyword) a selector object."""

    __slots__ = ()

    def check(self, value: object, unit: Unit) -> object:
        if callable(value) or callable(getattr(value, "select", None)):
            return value
        if isinstance(value, str) and value.endswith("CatalogReplicaLoadBalanceSimpleSelector"):
            return "simple"
        return super().check(value, unit)

    def allowed(self, unit: Unit) -> str:
        ours = "by keyword a Python function or an object with select()"
        return f"{super().allowed(unit)}, or {ours} (Java classes cannot be loaded)"


@dataclass(frozen=True, slots=True)
class Text:
    """Any text without control characters; ``kind`` says what it names."""

    kind: str

    @property
    def own(self) -> Unit:
        return PLAIN

    def parse(self, text: str) -> str:
        return text

    def check(self, value: object, unit: Unit) -> object:
        text = os.fspath(value) if isinstance(value, os.PathLike) else value
        if not isinstance(text, str) or not text.strip():
            raise NotAllowedError("no text")
        if any(character < " " or character == "\x7f" for character in text):
            raise NotAllowedError("it has a control character")
        return text.strip()

    def allowed(self, unit: Unit) -> str:
        return self.kind


def one_of(*words: str) -> Word:
    """Return the rule that allows these words, each standing for itself."""
    return Word({word: word for word in words})


TIME = Number(0, SECONDS_MAX, S)  # zero is allowed: it means "immediately" or "off"
SPAN = Number(0, SECONDS_MAX, S, open_low=True)  # zero would cause a busy loop, or a timeout that always expires
DEADLINE = DeadlineNumber(0, SECONDS_MAX, S, open_low=True)
COUNT = Number(0, INT_MAX, whole=True)
SIZE = Number(1, INT_MAX, whole=True)
BYTES = Number(1, LONG_MAX, whole=True)
SHARE = Number(0, 1)
QUANTILE = Number(0, 1, open_low=True, open_high=True)
BUDGET = Number(0, 1_000)  # per call; above 1 a call may be repeated more than once, so 1000 is no limit
MODE = Word({mode.value: mode for mode in MetaMode})
FLAG = Word({"true": True, "false": False})
SELECTOR = SelectorName({"round_robin": "round_robin", "simple": "simple"})


@dataclass(frozen=True, slots=True)
class FieldSpec:
    """The declaration of a field, besides its name and default."""

    rule: FieldRule
    key: str = ""  # the HBase property, if there is one
    unit: Unit = PLAIN  # the unit of that property
    hbase: object = None  # HBase's default, in ``unit``, if there is one
    old_key: str = ""  # the deprecated name of that property, same unit
    parent: str = ""  # the field whose value is used when this one is None
    optional: bool = False  # True: None is a valid value


def checked(name: str, rule: FieldRule, value: object) -> object:
    """Return the value of a keyword, converted; ConfigError if the rule refuses it."""
    try:
        return rule.check(value, rule.own)
    except NotAllowedError as error:
        raise refusal(name, value, "keyword", error, rule.allowed(rule.own)) from None
