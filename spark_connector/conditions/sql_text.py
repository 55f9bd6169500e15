"""SQL text of a condition -> an expression; an error points at the character.

::

    condition = both { OR both }
    both      = single { AND single }
    single    = NOT single | "(" condition ")" | TRUE | FALSE | NULL | column | test
    test      = column ("=" | "==" | "<>" | "!=" | "<" | "<=" | ">" | ">=" | "<=>") literal, or the other way round
              | column [NOT] BETWEEN literal AND literal
              | column [NOT] IN "(" literal { "," literal } ")"
              | column [NOT] LIKE text [ESCAPE text]
              | column IS [NOT] NULL
    literal   = 42 | 4.2 (a decimal) | 4e2 (a double) | 1Y 1S 1L 1BD 4.2F 4.2D | 'text' | X'hex' | TRUE | FALSE | NULL
              | DATE 'Y-M-D' | TIMESTAMP 'Y-M-D H:M:S[zone]' (also TIMESTAMP_LTZ, TIMESTAMP_NTZ)
              | DOUBLE('NaN' | 'Infinity' | '-Infinity'), FLOAT(...)

Keywords in any case; names bare or in backticks. All of it is Spark SQL, and literals are read as the session's parser
reads them (:mod:`spark_connector.conditions.literals`). Other Spark SQL is refused here: it belongs into ``df.where``.
"""

from __future__ import annotations

import datetime
import re
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TypeVar

from metaclient.errors import ConfigError
from spark_connector.conditions import literals
from spark_connector.conditions.condition import (
    And,
    Comparison,
    Constant,
    Expression,
    In,
    IsNull,
    Like,
    Not,
    Or,
    Single,
)
from spark_connector.conditions.dialect import PORTABLE, Dialect

__all__ = ["parse_where"]

T = TypeVar("T")

#: Brackets and NOTs inside each other; text that goes deeper is a mistake.
DEPTH_MAX = 100
#: Spark's decimals have 38 digits, a double's smallest value written out 1,100; int() refuses 4,300.
NUMBER_CHARS_MAX = 2_000
#: An IN with 50,000 keys of 17 characters fits; the expression of a longer text would take hundreds of megabytes.
TEXT_CHARS_MAX = 1_000_000

# A number's quantifiers are possessive: otherwise 16,000 digits and a letter take seconds, because the engine tries
# every division of the digits between the two quantifiers.
_TOKEN = re.compile(
    r"""(?P<space>\s+)
      | (?P<binary>[xX]'[^']*')
      | (?P<text>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")
      | (?P<number>(?:[0-9]++\.?+[0-9]*+|\.[0-9]++)(?:[eE][+-]?[0-9]++)?+(?:BD|bd|[LlSsYyDdFf])?+(?![A-Za-z0-9_]))
      | (?P<name>[A-Za-z_][A-Za-z0-9_]*|`(?:[^`]|``)+`)
      | (?P<symbol><=>|<=|>=|<>|!=|==|[=<>(),+-])
    """,
    re.VERBOSE | re.DOTALL,
)
_KEYWORDS = frozenset({"AND", "OR", "NOT", "IN", "IS", "NULL", "LIKE", "BETWEEN", "ESCAPE", "TRUE", "FALSE"})
_COMPARISONS = {"=": "=", "==": "=", "<>": "<>", "!=": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">=", "<=>": "<=>"}
_FLIPPED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<=", "<=>": "<=>"}
#: WORD 'text' is a literal, and what the text must be.
_TYPED = {
    "DATE": "'YYYY-MM-DD'",
    "TIMESTAMP": "'YYYY-MM-DD HH:MM:SS', with or without a zone",
    "TIMESTAMP_LTZ": "'YYYY-MM-DD HH:MM:SS', with or without a zone",
    "TIMESTAMP_NTZ": "'YYYY-MM-DD HH:MM:SS' without a zone",
}
#: WORD('text') is a literal.
_FLOAT_WORDS = frozenset({"DOUBLE", "FLOAT"})


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str  # binary, text, number, name, keyword, symbol, end
    text: str
    at: int


@dataclass(frozen=True, slots=True)
class _Name:
    name: str
    at: int


@dataclass(frozen=True, slots=True)
class _Literal:
    value: object


def parse_where(text: str, dialect: Dialect = PORTABLE) -> Expression:
    """Return the condition that ``text`` states, not yet bound to a catalog (``expressions.bind``).

    >>> parse_where("a >= 3 AND b NOT IN ('x', 'y')")  # doctest: +NORMALIZE_WHITESPACE
    And(parts=(Comparison(column='a', operator='>=', value=3), Not(part=In(column='b', values=('x', 'y')))))
    >>> parse_where("a >= AND b")
    Traceback (most recent call last):
    metaclient.errors.ConfigError: where: at character 6, a >= <here>AND b: a literal or a column should be here
    """
    return _Parser(text, dialect).whole()


class _Parser:
    """One pass over the text: tokens are read when they are needed, so that nothing behind a mistake is read."""

    def __init__(self, text: str, dialect: Dialect) -> None:
        if len(text) > TEXT_CHARS_MAX:
            raise ConfigError(
                f"where: the condition has {len(text):,} characters, {TEXT_CHARS_MAX:,} are allowed: "
                "join with a table of the values instead, or write the condition into df.where(...)"
            )
        self._text = text
        self._dialect = dialect
        self._read_to = 0  # where the next token begins
        self._ahead: deque[_Token] = deque()  # read and not yet taken: three at most
        self._depth = 0

    def whole(self) -> Expression:
        made = self._either()
        token = self._peek()
        if token.kind != "end":
            raise self._fault(token.at, f"the condition should end here, or go on with AND or OR; {_ELSEWHERE}")
        return made

    # -- tokens

    def _read_token(self) -> _Token:
        while self._read_to < len(self._text):
            at = self._read_to
            match = _TOKEN.match(self._text, at)
            if match is None:
                what = "a quote is open" if self._text[at] in "'\"`" else "this character has no meaning here"
                raise self._fault(at, what)
            self._read_to = match.end()
            kind, text = str(match.lastgroup), match[0]
            if kind == "name" and text.upper() in _KEYWORDS:
                kind, text = "keyword", text.upper()
            if kind == "text" and text[0] == '"' and self._dialect.quotes_names:
                raise self._fault(at, "spark.sql.ansi.doubleQuotedIdentifiers is on: write names in backticks")
            if kind != "space":
                return _Token(kind, text, at)
        return _Token("end", "", len(self._text))

    def _peek(self, ahead: int = 0) -> _Token:
        while len(self._ahead) <= ahead:
            self._ahead.append(self._read_token())
        return self._ahead[ahead]

    def _next(self) -> _Token:
        token = self._peek()
        self._ahead.popleft()
        return token

    def _takes(self, *words: str) -> bool:
        for ahead, word in enumerate(words):
            token = self._peek(ahead)
            if token.text != word or token.kind not in ("keyword", "symbol"):
                return False
        for _ in words:
            self._next()
        return True

    def _expect(self, word: str) -> None:
        if not self._takes(word):
            raise self._fault(self._peek().at, f"{word} should be here; {_ELSEWHERE}")

    def _fault(self, at: int, what: str) -> ConfigError:
        before, after = self._text[max(0, at - 20) : at], self._text[at : at + 20]
        return ConfigError(f"where: at character {at + 1}, {before}<here>{after}: {what}")

    # -- conditions

    def _either(self) -> Expression:
        parts = [self._both()]
        while self._takes("OR"):
            parts.append(self._both())
        return parts[0] if len(parts) == 1 else Or(tuple(parts))

    def _both(self) -> Expression:
        parts = [self._single()]
        while self._takes("AND"):
            parts.append(self._single())
        return parts[0] if len(parts) == 1 else And(tuple(parts))

    def _single(self) -> Expression:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise self._fault(self._peek().at, f"more than {DEPTH_MAX} brackets and NOTs inside each other")
        try:
            if self._takes("NOT"):
                return Not(self._single())
            if self._takes("("):
                inner = self._either()
                self._expect(")")
                return inner
            return self._test()
        finally:
            self._depth -= 1

    def _test(self) -> Expression:
        start = self._peek()
        left = self._operand()
        token = self._peek()
        if token.kind == "symbol" and token.text in _COMPARISONS:
            return self._comparison(start, left)
        if isinstance(left, _Literal):
            if left.value is None or isinstance(left.value, bool):
                return Constant(left.value)
            raise self._fault(token.at, "a comparison should follow the literal")
        if self._takes("IS", "NOT", "NULL"):
            return Not(IsNull(left.name))
        if self._takes("IS", "NULL"):
            return IsNull(left.name)
        is_not = self._peek().text == "NOT" and self._takes("NOT")
        found = self._list_test(left)
        if found is None:
            if is_not or self._peek().kind in ("name", "text", "number", "binary") or self._peek().text in ("(", "IS"):
                raise self._fault(
                    self._peek().at, f"a comparison, IN, BETWEEN, LIKE or IS NULL should be here; {_ELSEWHERE}"
                )
            return Comparison(left.name, "=", True)  # a boolean column by itself
        return Not(found) if is_not else found

    def _comparison(self, start: _Token, left: _Name | _Literal) -> Expression:
        operator = _COMPARISONS[self._next().text]
        right = self._operand()
        if isinstance(left, _Name) and isinstance(right, _Literal):
            return Comparison(left.name, operator, right.value)
        if isinstance(left, _Literal) and isinstance(right, _Name):
            return Comparison(right.name, _FLIPPED[operator], left.value)
        what = "two columns" if isinstance(left, _Name) else "two literals"
        raise self._fault(start.at, f"{what} are compared: compare a column with a literal; {_ELSEWHERE}")

    def _list_test(self, left: _Name) -> Expression | None:
        if self._takes("BETWEEN"):
            low = self._literal()
            self._expect("AND")
            high = self._literal()
            return And((Comparison(left.name, ">=", low), Comparison(left.name, "<=", high)))
        if self._takes("IN"):
            self._expect("(")
            values = [self._literal()]
            while self._takes(","):
                values.append(self._literal())
            self._expect(")")
            return In(left.name, tuple(values))
        if self._takes("LIKE"):
            pattern = self._string(self._quoted("a pattern in quotes"))
            escape = self._unescaped(self._quoted("one character in quotes")) if self._takes("ESCAPE") else "\\"
            return Like(left.name, pattern, escape)
        return None

    # -- names and literals

    def _operand(self) -> _Name | _Literal:
        token = self._peek()
        if token.kind == "name" and not self._is_typed():
            self._next()
            if self._peek().text == "(":
                raise self._fault(token.at, f"functions cannot be pushed down; {_ELSEWHERE}")
            quoted = token.text.startswith("`")
            return _Name(token.text[1:-1].replace("``", "`") if quoted else token.text, token.at)
        return _Literal(self._literal())

    def _is_typed(self) -> bool:
        """Return True if the next tokens are a literal that begins with a word."""
        word, following = self._peek().text.upper(), self._peek(1)
        if following.kind == "text" and word in ("DOUBLE", "FLOAT", "DECIMAL"):
            raise self._fault(self._peek().at, f"Spark has no literal {word} 'text': write 1.5D, 1.5F or 1.5BD")
        if following.kind == "text":
            return word in _TYPED
        return word in _FLOAT_WORDS and following.text == "(" and self._peek(2).kind == "text"

    def _literal(self) -> object:
        token = self._peek()
        if token.text == "+":
            raise self._fault(token.at, "write the number without +")
        is_negative = self._takes("-")
        if is_negative and self._peek().kind != "number":
            raise self._fault(self._peek().at, "a number should follow the sign")
        token = self._peek()
        if token.kind == "name" and self._is_typed():
            return self._typed()
        self._next()
        if token.kind == "number":
            return self._number(token, "-" if is_negative else "")
        if token.kind == "text":
            return self._string(token)
        if token.kind == "binary":
            return self._read(
                token, "X takes an even number of hex digits", lambda: literals.hex_bytes(token.text[2:-1])
            )
        if token.kind == "keyword" and token.text in ("TRUE", "FALSE", "NULL"):
            return None if token.text == "NULL" else token.text == "TRUE"
        raise self._fault(token.at, "a literal or a column should be here")

    def _typed(self) -> datetime.date | float:
        token = self._next()
        word = token.text.upper()
        if word in _FLOAT_WORDS:
            self._expect("(")
            text = self._unescaped(self._next())
            self._expect(")")
            value = self._read(
                token, f"{word}(...) takes NaN, Infinity or -Infinity", lambda: literals.float_word(text)
            )
            return Single(value) if word == "FLOAT" else value
        text = self._unescaped(self._next())
        form = f"{word} takes {_TYPED[word]}"
        if word == "DATE":
            return self._read(token, form, lambda: literals.date(text))
        if word == "TIMESTAMP_NTZ" or (word == "TIMESTAMP" and not self._dialect.timestamps_have_zones):
            return self._read(token, form, lambda: literals.local_time(text))
        return self._read(token, form, lambda: literals.instant(text, self._dialect))

    def _read(self, token: _Token, form: str, read: Callable[[], T]) -> T:
        try:
            return read()
        except ValueError as error:
            raise self._fault(token.at, f"{form}: {error}" if str(error) else form) from None

    def _number(self, token: _Token, sign: str) -> int | float | Decimal:
        if len(token.text) > NUMBER_CHARS_MAX:
            raise self._fault(token.at, f"a number of more than {NUMBER_CHARS_MAX} characters")
        return self._read(token, "no number", lambda: literals.number(sign + token.text))

    def _quoted(self, wanted: str) -> _Token:
        token = self._next()
        if token.kind != "text":
            raise self._fault(token.at, f"{wanted} should be here")
        return token

    def _string(self, token: _Token) -> str:
        """Return a string literal's text, as the session's parser reads it."""
        if not self._dialect.has_doubled_quotes:
            token = replace(token, text=literals.joined(token.text))
        return self._unescaped(token) if self._dialect.unescapes_strings else token.text[1:-1]

    def _unescaped(self, token: _Token) -> str:
        return self._read(
            token, "the text has characters that Unicode does not have", lambda: literals.unescaped(token.text)
        )


_ELSEWHERE = "what is beyond this small language belongs into df.where(...)"
