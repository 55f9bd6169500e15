"""HBase's filter language (ParseFilter): decides how a filter's text is read. What becomes of it, a builder says.

::

    filter     = either
    either     = both { "OR" both }
    both       = single { "AND" single }
    single     = ("SKIP" | "WHILE") single | "(" either ")" | Name "(" [argument { "," argument }] ")"
    argument   = 'quoted, a quote is doubled' | a bare word, number or operator

SKIP and WHILE bind tightest, then AND, then OR. Keywords are upper case. Names are exact.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from metaclient import keys
from metaclient.errors import RequestRefused

__all__ = ["ONLY_EQUALITY", "OPERATORS", "Argument", "Arguments", "FilterBuilder", "FilterSyntaxError", "parse"]

F = TypeVar("F")

#: Brackets and prefix words inside each other; a text that goes deeper is a mistake or an attack.
DEPTH_MAX = 100
#: Comparison operators, as people write them.
OPERATORS = (b"<", b"<=", b"=", b"!=", b">=", b">")
#: Comparators that know only equal and not equal.
ONLY_EQUALITY = (b"regexstring", b"substring")

_WORD = re.compile(rb"[A-Za-z]+")
_SPACE = re.compile(rb"[ \t]*")
_QUOTED = re.compile(rb"'((?:[^']|'')*)'")
_BARE = re.compile(rb"[^ \t,()']+")


class FilterSyntaxError(RequestRefused, ValueError):
    """A filter's text is wrong; the message says where."""


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument as it was written, without its quotes."""

    value: bytes
    is_quoted: bool


class Arguments:
    """A filter's arguments, taken one by one and by kind."""

    def __init__(self, name: str, values: Sequence[Argument]) -> None:
        self._name = name
        self._values = list(values)

    def __len__(self) -> int:
        return len(self._values)

    def expect(self, *counts: int) -> None:
        if len(self._values) not in counts:
            wanted = " or ".join(str(count) for count in counts)
            raise FilterSyntaxError(f"{self._name} takes {wanted} arguments, got {len(self._values)}")

    def text(self) -> bytes:
        argument = self._values.pop(0)
        if not argument.is_quoted:
            raise FilterSyntaxError(f"{self._name}: {keys.printable(argument.value)} must be in single quotes")
        return argument.value

    def word(self) -> bytes:
        return self._values.pop(0).value

    def number(self) -> int:
        value = self.word()
        if not re.fullmatch(rb"-?[0-9]+", value):
            raise FilterSyntaxError(f"{self._name}: {keys.printable(value)} is not a number")
        return int(value)

    def count(self) -> int:
        value = self.number()
        if value < 0:
            raise FilterSyntaxError(f"{self._name}: {value} must not be negative")
        return value

    def boolean(self) -> bool:
        value = self.word().lower()
        if value not in (b"true", b"false"):
            raise FilterSyntaxError(f"{self._name}: {keys.printable(value)} is neither true nor false")
        return value == b"true"

    def column(self) -> bytes:
        family = self.text()
        return family + b":" + self.text()

    def comparison(self, kinds: Sequence[bytes]) -> tuple[bytes, bytes, bytes]:
        """Operator, kind and value of ``OP, 'kind:value'``; the kind is one of ``kinds``."""
        operator, text = self.word(), self.text()
        if operator not in OPERATORS:
            known = " ".join(name.decode() for name in OPERATORS)
            raise FilterSyntaxError(f"{keys.printable(operator)} is no comparison operator: use one of {known}")
        kind, colon, value = text.partition(b":")
        if not colon or kind not in kinds:
            known = ", ".join(name.decode() for name in kinds)
            raise FilterSyntaxError(f"{keys.printable(text)} is no comparator: write kind:value with one of {known}")
        if kind in ONLY_EQUALITY and operator not in (b"=", b"!="):
            raise FilterSyntaxError(f"{keys.printable(text)} can be compared with = and != only")
        return operator, kind, value


@dataclass(frozen=True, slots=True)
class FilterBuilder(Generic[F]):
    """What becomes of what was read: one function a filter, and four for what is around filters."""

    filters: Mapping[str, Callable[[Arguments], F]]
    both: Callable[[list[F]], F]
    either: Callable[[list[F]], F]
    skip: Callable[[F], F]
    while_match: Callable[[F], F]


def parse(text: bytes, builder: FilterBuilder[F]) -> F:
    """What the builder makes of ``text``; :class:`FilterSyntaxError` says where it cannot be read."""
    parser = _Parser(text, builder)
    made = parser.either()
    parser.expect_end()
    return made


class _Parser(Generic[F]):
    """One pass over the text, from left to right."""

    def __init__(self, text: bytes, builder: FilterBuilder[F]) -> None:
        self._text = text
        self._builder = builder
        self._at = 0
        self._depth = 0

    def either(self) -> F:
        parts = [self._both()]
        while self._takes_word(b"OR"):
            parts.append(self._both())
        return parts[0] if len(parts) == 1 else self._builder.either(parts)

    def _both(self) -> F:
        parts = [self._single()]
        while self._takes_word(b"AND"):
            parts.append(self._single())
        return parts[0] if len(parts) == 1 else self._builder.both(parts)

    def _single(self) -> F:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise self._fault(f"more than {DEPTH_MAX} levels")
        try:
            if self._takes_word(b"SKIP"):
                return self._builder.skip(self._single())
            if self._takes_word(b"WHILE"):
                return self._builder.while_match(self._single())
            if self._takes(b"("):
                inner = self.either()
                self._expect(b")")
                return inner
            return self._simple()
        finally:
            self._depth -= 1

    def _simple(self) -> F:
        match = _WORD.match(self._text, self._at)
        if match is None:
            raise self._fault("a filter's name should be here")
        name, known = match[0].decode(), self._builder.filters
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            raise self._fault(f"there is no filter {name}" + (f"; did you mean {near[0]}?" if near else ""))
        self._at = match.end()
        self._expect(b"(")
        return known[name](Arguments(name, self._arguments()))

    def _arguments(self) -> list[Argument]:
        found: list[Argument] = []
        while not self._takes(b")"):
            if found:
                self._takes(b",")  # HBase takes a space for a comma, too
            found.append(self._argument())
        return found

    def _argument(self) -> Argument:
        self._skip_space()
        quoted = _QUOTED.match(self._text, self._at)
        if quoted is not None:
            self._at = quoted.end()
            return Argument(quoted[1].replace(b"''", b"'"), True)
        bare = _BARE.match(self._text, self._at)
        if bare is None:
            raise self._fault("an argument or ')' should be here; a quote may be open")
        self._at = bare.end()
        return Argument(bare[0], False)

    def _takes(self, token: bytes) -> bool:
        self._skip_space()
        if not self._text.startswith(token, self._at):
            return False
        self._at += len(token)
        return True

    def _takes_word(self, word: bytes) -> bool:
        self._skip_space()
        match = _WORD.match(self._text, self._at)
        if match is None or match[0] != word:
            return False
        self._at = match.end()
        return True

    def _expect(self, token: bytes) -> None:
        if not self._takes(token):
            raise self._fault(f"{token.decode()!r} should be here")

    def expect_end(self) -> None:
        self._skip_space()
        if self._at < len(self._text):
            raise self._fault("the filter should end here, or go on with AND or OR")

    def _skip_space(self) -> None:
        match = _SPACE.match(self._text, self._at)
        assert match is not None
        self._at = match.end()

    def _fault(self, what: str) -> FilterSyntaxError:
        before = keys.printable(self._text[max(0, self._at - 20) : self._at])
        rest = keys.printable(self._text[self._at : self._at + 20])
        return FilterSyntaxError(f"at byte {self._at} of the filter, {before}<here>{rest}: {what}")
