"""Runs the code of the shell; needs no terminal. Errors of the client are one line, without a traceback."""

from __future__ import annotations

import code
import contextlib
import sys
import types
from collections.abc import Iterable, Iterator

from metaclient.cli.output import Output
from metaclient.cli.shell.display import show
from metaclient.cli.shell.lines import translated
from metaclient.cli.shell.verbs import Verbs
from metaclient.config.url_secrets import masked_url
from metaclient.connection import Connection
from metaclient.errors import MetaClientError

__all__ = ["ShellConsole", "banner"]

#: The prompts, which Python reads from ``sys`` while it reads from the keyboard.
PROMPTS = ("hbase> ", "...... ")


def banner(connection: Connection) -> str:
    """Return the lines above the first prompt."""
    return (
        f"{masked_url(connection.url)}: Python with the verbs of HBase's shell. help lists them, help(scan) shows one, "
        "Ctrl-D ends the shell."
    )


class ShellConsole(code.InteractiveConsole):
    """A Python console whose names are the verbs. ``has_failed`` is True after a statement that raised an error."""

    def __init__(self, verbs: Verbs, output: Output = Output.TABLE) -> None:
        super().__init__(verbs.namespace())
        self.verbs = verbs
        self.has_failed = False
        self._output = output

    def run(self, lines: Iterable[str]) -> bool:
        """Run lines until the first error; return True if there was none."""
        for line in lines:
            self.push(line.rstrip("\n"))
            if self.has_failed:
                return False
        return True

    def runsource(self, source: str, filename: str = "<input>", symbol: str = "single") -> bool:
        """Run source in which a line may have the form of HBase's shell; return True if more lines are needed."""
        try:
            if "\n" not in source:
                source = translated(source, self.verbs.by_name())
        except SyntaxError as error:
            self._fail(f"SyntaxError: {error}")
            return False
        return super().runsource(source, filename, symbol)

    def runcode(self, code: types.CodeType) -> None:
        with self._displayed():
            try:
                exec(code, self.locals)
            except MetaClientError as error:
                self._fail(f"{type(error).__name__}: {error}")
            except (TypeError, ValueError) as error:
                text = str(error).removeprefix(f"{Verbs.__name__}.")
                self._fail(f"{type(error).__name__}: {text}; help() lists the verbs, help(scan) shows one")
            except KeyboardInterrupt:
                self._fail("interrupted")
            except Exception:  # of the user's own code, which may raise any; the console goes on
                self.has_failed = True
                self.showtraceback()

    def showsyntaxerror(self, filename: str | None = None, **options: object) -> None:
        self.has_failed = True
        super().showsyntaxerror(filename)

    def _fail(self, text: str) -> None:
        self.has_failed = True
        self.write(f"{text}\n")

    @contextlib.contextmanager
    def _displayed(self) -> Iterator[None]:
        saved = sys.displayhook
        sys.displayhook = self._display
        try:
            yield
        finally:
            sys.displayhook = saved

    def _display(self, value: object) -> None:
        if value is not None:
            self.locals["_"] = value
        show(value, self._output)
