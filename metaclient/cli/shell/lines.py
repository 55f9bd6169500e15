"""Translates a line of HBase's shell, ``get 't', 'row'``, to a call in Python, ``get('t', 'row')``."""

from __future__ import annotations

import re
from collections.abc import Container

from metaclient.cli.shell.hashes import HASH_VERBS, call_with_hashes

__all__ = ["translated"]

_CALL = re.compile(r"^\s*(?P<verb>[a-z_]+)\s*(?P<rest>.*?)\s*$", re.DOTALL)
#: The beginning of a first argument: all verbs with arguments begin with a name, which is a string.
_ARGUMENT = re.compile(r"[bBrR]{0,2}['\"]")
_STRING = re.compile(r"'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\"")
#: Text up to a semicolon that is in no string.
_STATEMENT = re.compile(rf"(?:{_STRING.pattern}|[^;'\"]|['\"])*")


def translated(line: str, verbs: Container[str]) -> str:
    """Return the line in Python; a line that is no verb with arguments, or a verb alone, is returned as it is.

    >>> translated("get 't', 'row'", {"get"}), translated("list", {"list"}), translated("rows = 3", {"get"})
    ("get('t', 'row')", 'list()', 'rows = 3')

    Semicolons separate statements:

    >>> translated("put 't', 'a;b', 'd:x', '1'; list", {"put", "list"})
    "put('t', 'a;b', 'd:x', '1'); list()"

    Options of HBase's shell become arguments:

    >>> translated("scan 't', {LIMIT => 3}", {"scan"})
    "scan('t', limit=3)"

    SyntaxError for options of a verb that has none in this form:

    >>> translated("put 't', 'r', 'd:x', '1', {TTL => 3}", {"put"})
    Traceback (most recent call last):
    SyntaxError: put() takes no options with =>: help(put) lists its arguments
    """
    statements = [text for text in _STATEMENT.findall(line) if text.strip()]
    if len(statements) < 2:
        return _one(line, verbs)
    indent = line[: len(line) - len(line.lstrip())]
    return indent + "; ".join(_one(text.strip(), verbs) for text in statements)


def _one(line: str, verbs: Container[str]) -> str:
    """Translate one statement."""
    match = _CALL.match(line)
    if match is None or match["verb"] not in verbs:
        return line
    verb, rest = match["verb"], match["rest"]
    if not rest:
        return f"{verb}()"
    if not _ARGUMENT.match(rest):
        return line
    if "=>" in _STRING.sub("''", rest):
        if verb not in HASH_VERBS:
            raise SyntaxError(f"{verb}() takes no options with =>: help({verb}) lists its arguments")
        return call_with_hashes(verb, rest)
    return f"{verb}({rest})"
