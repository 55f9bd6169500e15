"""The keyboard of the shell: completion with Tab, and a history that outlives the shell."""

from __future__ import annotations

import contextlib
import os
import re
import rlcompleter
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import click

from metaclient.cli.shell.console import PROMPTS, ShellConsole
from metaclient.errors import MetaClientError

__all__ = ["Completer", "history_file", "terminal"]

#: The lines that the history keeps.
HISTORY_LINES = 10_000
#: A name of a table may contain a colon, a dot and a dash: they are no ends of words.
_DELIMITERS = " \t\n'\"(,=[{"
_IN_FIRST_STRING = re.compile(r"^\s*(?P<verb>\w+)\s*\(?\s*b?['\"](?P<begun>[^'\"]*)$")


class Completer:
    """Completes verbs, names and attributes of Python, and in the first string of a verb the names of tables."""

    def __init__(self, namespace: dict[str, Any], tables: Callable[[], list[bytes]]) -> None:
        self._python = rlcompleter.Completer(namespace)
        self._verbs = namespace
        self._tables = tables

    def matches(self, line: str, text: str) -> list[str]:
        """Return the completions of ``text``, the last word of ``line``."""
        begun = _IN_FIRST_STRING.match(line)
        if begun is not None and begun["verb"] in self._verbs:
            return [name for name in self._table_names() if name.startswith(text)]
        found: list[str] = []
        while (match := self._python.complete(text, len(found))) is not None:
            found.append(match)
        return found

    def _table_names(self) -> list[str]:
        try:
            return [name.decode() for name in self._tables()]
        except MetaClientError:  # a completion has no place for an error; the statement itself will report it
            return []


def history_file() -> Path:
    """Return the file of the history: ``$XDG_STATE_HOME/metaclient/shell_history``."""
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "metaclient" / "shell_history"


@contextlib.contextmanager
def terminal(console: ShellConsole) -> Iterator[None]:
    """Set the prompts, completion and history; without Python's readline there is no completion and no history."""
    saved = getattr(sys, "ps1", None), getattr(sys, "ps2", None)
    sys.ps1, sys.ps2 = PROMPTS
    readline = _readline()
    file = history_file()
    try:
        if readline is not None:
            _complete_with(readline, console)
            _read_history(readline, file)
        yield
    finally:
        if readline is not None:
            _write_history(readline, file)
        sys.ps1, sys.ps2 = saved[0] or ">>> ", saved[1] or "... "


def _readline() -> ModuleType | None:
    try:
        import readline
    except ImportError:  # Windows has none
        return None
    return readline


def _complete_with(readline: Any, console: ShellConsole) -> None:
    completer = Completer(console.verbs.namespace(), console.verbs.namespace()["connection"].tables)

    def complete(text: str, state: int) -> str | None:
        found = completer.matches(readline.get_line_buffer()[: readline.get_endidx()], text)
        return found[state] if state < len(found) else None

    readline.set_completer_delims(_DELIMITERS)
    readline.set_completer(complete)
    readline.parse_and_bind("bind ^I rl_complete" if "libedit" in (readline.__doc__ or "") else "tab: complete")


def _read_history(readline: Any, file: Path) -> None:
    readline.set_history_length(HISTORY_LINES)
    with contextlib.suppress(FileNotFoundError):  # the first shell
        try:
            readline.read_history_file(file)
        except PermissionError as error:
            click.echo(f"note: the history cannot be read: {error}", err=True)


def _write_history(readline: Any, file: Path) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch(mode=0o600)  # lines may hold data: for their owner only
        readline.write_history_file(file)
    except OSError as error:
        click.echo(f"note: the history cannot be written: {error}", err=True)
