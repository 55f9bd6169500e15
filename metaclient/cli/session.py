"""The common parts of all commands: options, connection, output as text or JSON, and errors."""

from __future__ import annotations

import functools
import json
import logging
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeVar, cast

import click
from click.core import ParameterSource
from rich.console import Console
from rich.table import Table as RichTable

from metaclient.config.cluster_url import ENVIRONMENT, NoClusterNamed
from metaclient.config.url_secrets import masked_url
from metaclient.connection import Connection, connect
from metaclient.errors import MetaClientError

__all__ = ["CommandSession", "F", "common", "fail", "from_text", "refuse_options", "to_text"]

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class CommandSession:
    """The common options of one run of a command, and its output."""

    url: str | None = field(repr=False)  # may hold a password; None: the cluster comes from the configuration
    config: str | None
    meta_mode: str | None
    as_json: bool

    def connect(self, **options: Any) -> Connection:
        connection = connect(self.url, config=self.config, meta_mode=self.meta_mode, **options)
        if connection.url.startswith("fake:") and not self.as_json:
            click.echo(
                f"note: {masked_url(connection.url)} is a cluster in memory that ends with this command; "
                "`metaclient fake serve` starts one that stays",
                err=True,
            )
        return connection

    def say(self, text: str) -> None:
        """Print a line of text; nothing with ``--json``."""
        if not self.as_json:
            Console(highlight=False, soft_wrap=True).print(text, markup=False)

    def document(self, value: Mapping[str, Any]) -> None:
        """Print the JSON document; nothing without ``--json``."""
        if self.as_json:
            click.echo(json.dumps(value, indent=2))

    def table(self, title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        """Print a table; nothing with ``--json``."""
        if self.as_json:
            return
        made = RichTable(title=title, title_justify="left", show_edge=False, pad_edge=False)
        for column in columns:
            made.add_column(column, overflow="fold")
        for row in rows:
            made.add_row(*("" if cell is None else str(cell) for cell in row))
        Console(highlight=False).print(made)


def common(command: F) -> F:
    """Add the common options to a command, pass it a CommandSession first, and report its errors by :func:`fail`."""

    @click.option("--json", "as_json", is_flag=True, help="One JSON document on standard output.")
    @click.option(
        "--url",
        envvar=ENVIRONMENT,
        show_envvar=True,
        help="The cluster: thrift2://gateway:9090, hbase://zk1,zk2:2181, ...  [default: the quorum of --config]",
    )
    @click.option("--config", type=click.Path(exists=True), help="hbase-site.xml, or its folder.")
    @click.option("--meta-mode", help="None, HedgedRead or LoadBalance.")
    @click.option("-v", "--verbose", count=True, help="Log to standard error; twice for DEBUG.")
    @functools.wraps(command)
    def wrapper(
        as_json: bool, url: str | None, config: str | None, meta_mode: str | None, verbose: int, **arguments: Any
    ) -> None:
        _log_to_stderr(verbose)
        session = CommandSession(url, config, meta_mode, as_json)
        try:
            command(session, **arguments)
        except MetaClientError as error:
            fail(error, as_json=as_json)
        except ValueError as error:
            raise click.UsageError(str(error)) from error

    return cast(F, wrapper)


def refuse_options(*names: str) -> None:
    """Raise UsageError if the command line has one of these common options, which have no effect on the command."""
    context = click.get_current_context()
    for name in names:
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"--{name.replace('_', '-')} has no effect on `{context.command_path}`: remove it")


def _log_to_stderr(verbose: int) -> None:
    if verbose:
        level = logging.INFO if verbose == 1 else logging.DEBUG
        logging.basicConfig(level=level, stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s")


def fail(error: MetaClientError, *, as_json: bool) -> NoReturn:
    """Print the error as one line on standard error, with ``--json`` also as a document, and exit.

    The exit code is 2 if no cluster was named, which is wrong use of the command, and 1 for every other failure.
    """
    if as_json:
        document = {
            "error": type(error).__name__,
            "message": str(error),
            "disposition": error.disposition.value,
            "may_have_applied": error.may_have_applied,
            "attempts": [str(attempt) for attempt in error.attempts],
        }
        click.echo(json.dumps(document, indent=2))
    click.echo(f"{type(error).__name__}: {error}", err=True)
    raise SystemExit(2 if isinstance(error, NoClusterNamed) else 1)


def to_text(data: bytes) -> str:
    """Return bytes as text, with HBase's ``\\xNN`` for bytes that are not printable; reversed by :func:`from_text`.

    >>> to_text(b"a\\x00b\\\\"), to_text("é".encode())
    ('a\\\\x00b\\\\x5C', 'é')
    """
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return "".join(chr(byte) if 32 <= byte < 127 and byte != 92 else f"\\x{byte:02X}" for byte in data)
    return "".join(
        char if char.isprintable() and char != "\\" else "".join(f"\\x{byte:02X}" for byte in char.encode())
        for char in text
    )


def from_text(text: str) -> bytes:
    """Return the bytes of a text that may contain ``\\xNN``, as :func:`to_text` writes it.

    >>> from_text("a\\\\x00b"), from_text("é")
    (b'a\\x00b', b'\\xc3\\xa9')
    """
    parts = text.split("\\x")
    made = [parts[0].encode()]
    for part in parts[1:]:
        try:
            made.append(bytes.fromhex(part[:2]) + part[2:].encode())
        except ValueError:
            raise click.UsageError(
                f"\\x must be followed by two hexadecimal digits, got {part[:2]!r} in {text!r}"
            ) from None
    return b"".join(made)
