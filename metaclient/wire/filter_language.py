"""HBase's filter language (ParseFilter of HBase 2.6.1): reads a filter's text into a tree, and writes a tree as text.

::

    filter     = either
    either     = both { "OR" both }
    both       = single { "AND" single }
    single     = ("SKIP" | "WHILE") single | "(" either ")" | Name "(" { argument | " " | "," } ")"
    argument   = 'quoted, a quote is doubled' | a bare word, number or operator

SKIP and WHILE bind tightest, then AND, then OR. Keywords are upper case, and have a space or a bracket on both sides.
Names are exact. Spaces and tabs may stand between filters, only spaces inside of them. Which arguments a filter takes
is in :mod:`metaclient.wire.filter_arguments`.

DIVERGENCES (docs/known-differences.md has them for users): brackets may hold operators of different precedence, which
``ParseFilter`` parses wrongly. Text that is not of this grammar is refused, also where ``ParseFilter`` accepts it: a
bracket that is never closed, operators behind their operands, a character right behind a closing quote, words between a
name and its bracket. Levels are limited.
"""

from __future__ import annotations

import difflib
import enum
import re
from dataclasses import dataclass
from typing import TypeAlias

from metaclient import keys
from metaclient.wire.filter_arguments import (
    SIGNATURES,
    Argument,
    Comparison,
    FilterCall,
    FilterSyntaxError,
    Kind,
    Value,
)

__all__ = ["DEPTH_MAX", "Combined", "FilterSyntaxError", "FilterTree", "Operator", "parse", "write"]

#: The depth of nested brackets and prefix words; a deeper text is a mistake or an attack.
DEPTH_MAX = 100

_NAME = re.compile(rb"[A-Za-z]+")
_SPACE = re.compile(rb"[ \t]*")
_SEPARATORS = re.compile(rb"[ ,]*")
_QUOTED = re.compile(rb"'((?:[^']|'')*)'(?!')")
_BARE = re.compile(rb"[^ ,)]+")


class Operator(enum.Enum):
    """The operators before and between filters. The value is the keyword of ParseFilter."""

    AND = re.compile(rb"(?<=[ )])AND(?=[ (])")
    OR = re.compile(rb"(?<=[ )])OR(?=[ (])")
    SKIP = re.compile(rb"(?:(?<=[ ()])|\A)SKIP(?=[ (])")
    WHILE = re.compile(rb"(?:(?<=[ ()])|\A)WHILE(?=[ (])")


@dataclass(frozen=True, slots=True)
class Combined:
    """Filters under an operator: two or more for AND and OR, one for SKIP and WHILE."""

    operator: Operator
    parts: tuple[FilterTree, ...]


FilterTree: TypeAlias = FilterCall | Combined


def parse(text: bytes) -> FilterTree:
    """Return the filters that ``text`` describes; :class:`FilterSyntaxError`, with the position, if it is wrong.

    >>> parse(b"PrefixFilter('a') AND PageFilter(2)").parts[1]
    FilterCall(name='PageFilter', values={'page_size': 2})
    """
    parser = _Parser(text)
    made = parser.either()
    parser.expect_end()
    return made


def write(tree: FilterTree) -> bytes:
    """Return the text of ``tree``, such that :func:`parse` returns ``tree`` again.

    >>> write(parse(b"SKIP ValueFilter(=,'binary:x') OR KeyOnlyFilter()"))
    b"(SKIP ValueFilter(=, 'binary:x') OR KeyOnlyFilter(false))"
    """
    if isinstance(tree, FilterCall):
        return tree.name.encode() + b"(" + b", ".join(_words(tree)) + b")"
    parts, operator = [write(part) for part in tree.parts], tree.operator.name.encode()
    if tree.operator in (Operator.SKIP, Operator.WHILE):
        return operator + b" " + parts[0]
    return b"(" + (b" " + operator + b" ").join(parts) + b")"


def _words(call: FilterCall) -> list[bytes]:
    """Return the arguments as text; those after a comparison that is left out are defaults, too."""
    words: list[bytes] = []
    for parameter in SIGNATURES[call.name].parameters:
        value = call.values[parameter.name]
        words += [b"''"] if value is None and parameter.kind is Kind.BOUND else _words_of(value)
    return words


def _words_of(value: Value) -> list[bytes]:
    match value:
        case bool():
            return [b"true" if value else b"false"]
        case int():
            return [b"%d" % value]
        case bytes():
            return [_quoted(value)]
        case Comparison(operator, kind, compared):
            return [operator, _quoted(kind + b":" + compared)]
        case tuple():
            return [word for one in value for word in _words_of(one)]
        case None:
            return []


def _quoted(value: bytes) -> bytes:
    return b"'" + value.replace(b"'", b"''") + b"'"


class _Parser:
    """One pass over the text, from left to right."""

    def __init__(self, text: bytes) -> None:
        self._text = text
        self._at = 0
        self._depth = 0

    def either(self) -> FilterTree:
        parts = [self._both()]
        while self._takes_operator(Operator.OR):
            parts.append(self._both())
        return parts[0] if len(parts) == 1 else Combined(Operator.OR, tuple(parts))

    def _both(self) -> FilterTree:
        parts = [self._single()]
        while self._takes_operator(Operator.AND):
            parts.append(self._single())
        return parts[0] if len(parts) == 1 else Combined(Operator.AND, tuple(parts))

    def _single(self) -> FilterTree:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise self._fault(f"more than {DEPTH_MAX} levels")
        try:
            for prefix in (Operator.SKIP, Operator.WHILE):
                if self._takes_operator(prefix):
                    return Combined(prefix, (self._single(),))
            if self._takes(b"("):
                inner = self.either()
                self._expect(b")")
                return inner
            return self._call()
        finally:
            self._depth -= 1

    def _call(self) -> FilterCall:
        match = _NAME.match(self._text, self._at)
        if match is None:
            raise self._fault("a filter's name should be here")
        name = match[0].decode()
        signature = SIGNATURES.get(name)
        if signature is None:
            near = difflib.get_close_matches(name, SIGNATURES, 1)
            raise self._fault(f"there is no filter {name}" + (f"; did you mean {near[0]}?" if near else ""))
        self._at = match.end()
        while self._text.startswith(b" ", self._at):
            self._at += 1
        if not self._text.startswith(b"(", self._at):
            raise self._fault("'(' should be here")
        self._at += 1
        return signature.read(name, self._arguments())

    def _arguments(self) -> list[Argument]:
        found: list[Argument] = []
        while True:
            start = self._at
            self._skip(_SEPARATORS)
            if self._text.startswith(b")", self._at):
                self._at += 1
                return found
            if found and found[-1].is_quoted and self._at == start:
                raise self._fault("',' or ')' should be here, behind the closing quote")
            found.append(self._argument())

    def _argument(self) -> Argument:
        is_quoted = self._text.startswith(b"'", self._at)
        match = (_QUOTED if is_quoted else _BARE).match(self._text, self._at)
        if match is None:
            raise self._fault("an argument or ')' should be here; a quote may be open")
        self._at = match.end()
        return Argument(match[1].replace(b"''", b"'"), True) if is_quoted else Argument(match[0], False)

    def _takes(self, token: bytes) -> bool:
        self._skip(_SPACE)
        if not self._text.startswith(token, self._at):
            return False
        self._at += len(token)
        return True

    def _takes_operator(self, operator: Operator) -> bool:
        self._skip(_SPACE)
        match = operator.value.match(self._text, self._at)
        if match is None:
            return False
        self._at = match.end()
        return True

    def _expect(self, token: bytes) -> None:
        if not self._takes(token):
            raise self._fault(f"{token.decode()!r} should be here")

    def expect_end(self) -> None:
        self._skip(_SPACE)
        if self._at < len(self._text):
            raise self._fault(
                "the filter should end here, or go on with AND or OR, with a space or bracket on both sides of the word"
            )

    def _skip(self, pattern: re.Pattern[bytes]) -> None:
        match = pattern.match(self._text, self._at)
        assert match is not None
        self._at = match.end()

    def _fault(self, what: str) -> FilterSyntaxError:
        before = keys.printable(self._text[max(0, self._at - 20) : self._at])
        rest = keys.printable(self._text[self._at : self._at + 20])
        return FilterSyntaxError(f"at byte {self._at} of the filter, {before}<here>{rest}: {what}")
