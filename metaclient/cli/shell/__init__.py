"""The command ``shell``: the verbs of HBase's shell as Python functions, with completion and history."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TextIO

import click

from metaclient.cli.session import CommandSession, common
from metaclient.cli.shell.console import ShellConsole, banner
from metaclient.cli.shell.terminal import terminal
from metaclient.cli.shell.verbs import Verbs

__all__ = ["shell"]


@click.command()
@click.option("-e", "--execute", "texts", multiple=True, metavar="CODE", help="Run this and end; may be repeated.")
@click.argument("script", required=False, type=click.File())
@common
def shell(session: CommandSession, texts: Sequence[str], script: TextIO | None) -> None:
    """Start a Python shell with the verbs of HBase's shell: create, put, get, scan, ...

    The code comes from --execute, from the file SCRIPT, from standard input if that is no terminal, or from the
    keyboard. Except from the keyboard, the first error ends the shell with exit code 1.

    \b
    metaclient shell --url thrift2://gateway:9090
    metaclient shell --url fake: -e 'create "t", "cf"' -e 'put "t", "row", "cf:a", "1"' -e 'scan "t"'
    """
    with session.connect() as connection:
        console = ShellConsole(Verbs(connection), session.output)
        if texts:
            lines = [line for text in texts for line in (*text.splitlines(), "")]  # an empty line ends a block
        elif script is not None:
            lines = [*script, ""]
        elif not sys.stdin.isatty():
            lines = [*sys.stdin, ""]
        else:
            with terminal(console):
                console.interact(banner(connection), exitmsg="")
            return
        if not console.run(lines):
            raise SystemExit(1)
