"""Decides how a filter's value compares with a stored one: binary, binaryprefix, regexstring, substring.

A regular expression or substring that is not found counts as greater than the stored value, as in HBase
(RegexStringComparator and SubstringComparator return 1); only DependentColumnFilter makes that visible.

DIVERGENCE: regular expressions are Python's, which agree with Java's in all that is common (no ``\\p{...}`` classes).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from metaclient import keys
from metaclient.wire import filter_arguments
from metaclient.wire.filter_language import FilterSyntaxError

__all__ = ["KINDS", "OPERATORS", "Comparator", "Comparison", "comparison"]

#: stored -> negative, zero or positive, as the stored value is less, equal or greater.
Comparator = Callable[[bytes], int]

OPERATORS: Mapping[bytes, Callable[[int], bool]] = {
    b"<": lambda sign: sign < 0,
    b"<=": lambda sign: sign <= 0,
    b"=": lambda sign: sign == 0,
    b"!=": lambda sign: sign != 0,
    b">=": lambda sign: sign >= 0,
    b">": lambda sign: sign > 0,
}


@dataclass(frozen=True, slots=True)
class Comparison:
    """The comparison *stored* OP *given*."""

    operator: bytes
    comparator: Comparator

    def holds(self, stored: bytes) -> bool:
        return OPERATORS[self.operator](self.comparator(stored))


def _sign(stored: bytes, given: bytes) -> int:
    return (stored > given) - (stored < given)


def _binary(given: bytes) -> Comparator:
    return lambda stored: _sign(stored, given)


def _binary_prefix(given: bytes) -> Comparator:
    return lambda stored: _sign(stored[: len(given)], given)


def _regex_string(given: bytes, flags: re.RegexFlag = re.NOFLAG) -> Comparator:
    """Compare as equal when the expression matches anywhere in the value; ``\\w`` and ``\\d`` are ASCII, as in Java."""
    try:
        pattern = re.compile(given.decode("utf-8", "replace"), flags | re.DOTALL | re.ASCII)
    except re.error as error:
        raise FilterSyntaxError(f"regexstring:{keys.printable(given)} is no regular expression: {error}") from error
    return lambda stored: 0 if pattern.search(stored.decode("utf-8", "replace")) else -1


def _regex_string_no_case(given: bytes) -> Comparator:
    """Do the same, ignoring the case of ASCII letters (Pattern.CASE_INSENSITIVE without UNICODE_CASE)."""
    return _regex_string(given, re.IGNORECASE)


def _substring(given: bytes) -> Comparator:
    """Compare as equal when the value contains the text; the case is ignored."""
    wanted = given.decode("utf-8", "replace").lower()
    return lambda stored: 0 if wanted in stored.decode("utf-8", "replace").lower() else -1


KINDS: Mapping[bytes, Callable[[bytes], Comparator]] = {
    b"binary": _binary,
    b"binaryprefix": _binary_prefix,
    b"regexstring": _regex_string,
    b"regexstringnocase": _regex_string_no_case,
    b"substring": _substring,
}


def comparison(given: filter_arguments.Comparison) -> Comparison:
    """Return the comparison with the comparator function of ``given``."""
    return Comparison(given.operator, KINDS[given.kind](given.value))
