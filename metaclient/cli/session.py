"""The common parts of all commands: options, connection, output, and errors."""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeVar, cast

import click
from click.core import ParameterSource
from rich.console import Console

from metaclient.cli.output import Output, print_jsonl, print_table, print_tsv
from metaclient.config.cluster_url import ENVIRONMENT, NoClusterNamed
from metaclient.config.url_secrets import masked_url
from metaclient.connection import Connection, connect
from metaclient.errors import MetaClientError

__all__ = [
    "CommandSession",
    "F",
    "clusterless",
    "clusters_named",
    "common",
    "configured",
    "connect_to_url",
    "fail",
    "from_text",
    "to_text",
    "until_signal",
]

F = TypeVar("F", bound=Callable[..., Any])
_ENDING = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True, slots=True)
class CommandSession:
    """The common options of one run of a command, and its output."""

    url: str | None = field(repr=False, default=None)  # may hold a password; None: the configuration has the cluster
    config: str | None = None
    meta_mode: str | None = None
    output: Output = Output.TABLE
    timeout_s: float | None = None

    @property
    def as_json(self) -> bool:
        """True if standard output is JSON: one document, or one per line."""
        return self.output in (Output.JSON, Output.JSONL)

    @property
    def is_for_people(self) -> bool:
        """True if standard output is text, and not a format for programs."""
        return self.output is Output.TABLE

    def connect(self, **options: Any) -> Connection:
        """Connect to the cluster of the options; ``--timeout`` overrides timeouts among ``options``."""
        connection = connect_to_url(self, self.url, **options)
        if connection.url.startswith("fake:") and self.is_for_people:
            click.echo(
                f"note: {masked_url(connection.url)} is a cluster in memory that ends with this command; "
                "`metaclient fake serve` starts one that stays",
                err=True,
            )
        return connection

    def say(self, text: str) -> None:
        """Print a line of text for people; nothing in the formats for programs."""
        if self.is_for_people:
            Console(highlight=False, soft_wrap=True).print(text, markup=False)

    def done(self, document: Mapping[str, Any], text: str) -> None:
        """Print the outcome of a command that has no table: the document, or the text for people."""
        self.document(document)
        if self.output is Output.TSV:
            print_tsv([list(document), list(document.values())])
        self.say(text)

    def document(self, value: Mapping[str, Any], *, rows: str | None = None) -> None:
        """Print a document with ``--output json``, and with ``jsonl`` one line per element of ``value[rows]``.

        Without ``rows``, ``jsonl`` prints the whole document as one line. The other formats print nothing here.
        """
        if self.output is Output.JSON:
            click.echo(json.dumps(value, indent=2))
        elif self.output is Output.JSONL:
            print_jsonl([value] if rows is None else map(_as_document(rows), value[rows]))

    def table(self, title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        """Print a table with ``--output table`` and ``tsv``; nothing with JSON."""
        if self.output is Output.TABLE:
            print_table(title, columns, rows)
        elif self.output is Output.TSV:
            print_tsv([columns, *rows])

    def confirm(self, yes: bool, command: str, question: str) -> None:
        """Ask before data is deleted, unless ``--yes`` was given; the formats for programs have no prompt."""
        if yes:
            return
        if not self.is_for_people:
            name = "--json" if self.output is Output.JSON else f"--output {self.output}"
            raise click.UsageError(f"{command} {name} needs --yes: with {name} there is no prompt")
        click.confirm(question, abort=True, err=True)


def connect_to_url(session: CommandSession, url: str | None, **options: Any) -> Connection:
    """Connect to ``url`` with the configuration, meta mode and timeout of the command."""
    if session.timeout_s is not None:
        # A page of a scan, and a lookup, have timeouts of their own.
        options |= {"operation_timeout_s": session.timeout_s, "scanner_timeout_s": session.timeout_s}
    return connect(url, config=session.config, meta_mode=session.meta_mode, **options)


def _as_document(name: str) -> Callable[[Any], Mapping[str, Any]]:
    """Return a function that makes an object of an element: a list of names has none."""
    return lambda element: element if isinstance(element, Mapping) else {name: element}


_config = click.option("--config", type=click.Path(exists=True), help="hbase-site.xml, or its folder.")
_OUTPUT = (
    click.option(
        "-o",
        "--output",
        type=click.Choice([one.value for one in Output], case_sensitive=False),
        default=Output.TABLE.value,
        show_default=True,
        help="json is one document, jsonl one per line.",
    ),
    click.option("--json", "as_json", is_flag=True, help="The same as --output json."),
    click.option("-v", "--verbose", count=True, help="Log to standard error; twice for DEBUG."),
)
_CLIENT = (
    _config,
    click.option("--meta-mode", help="None, HedgedRead or LoadBalance."),
    click.option(
        "--timeout",
        "timeout_s",
        type=click.FloatRange(min=0, min_open=True),
        metavar="SECONDS",
        help="Of each operation, with its retries.  [default: hbase.client.operation.timeout of --config, else 120]",
    ),
)
_CLUSTER = (
    click.option(
        "--url",
        envvar=ENVIRONMENT,
        show_envvar=True,
        help="The cluster: thrift2://gateway:9090, hbase://zk1,zk2:2181, ...  [default: the quorum of --config]",
    ),
    *_CLIENT,
)


def common(command: F) -> F:
    """Add the options of a command of one cluster, pass it a CommandSession first, and report its errors."""
    return _with_session(command, (*_CLUSTER, *_OUTPUT))


def clusters_named(command: F) -> F:
    """As :func:`common`, without ``--url``: the arguments of the command are urls."""
    return _with_session(command, (*_CLIENT, *_OUTPUT))


def configured(command: F) -> F:
    """As :func:`common`, with ``--config`` and without the options of a client: the command starts a cluster."""
    return _with_session(command, (_config, *_OUTPUT))


def clusterless(command: F) -> F:
    """As :func:`common`, without the options that name a cluster: the command connects to none, or to its own."""
    return _with_session(command, _OUTPUT)


def _with_session(command: F, options: Sequence[Callable[[F], F]]) -> F:
    @functools.wraps(command)
    def wrapper(
        *,
        output: str,
        as_json: bool,
        verbose: int,
        url: str | None = None,
        config: str | None = None,
        meta_mode: str | None = None,
        timeout_s: float | None = None,
        **arguments: Any,
    ) -> None:
        _log_to_stderr(verbose)
        session = CommandSession(url, config, meta_mode, _output(output, as_json), timeout_s)
        try:
            command(session, **arguments)
        except MetaClientError as error:
            fail(error, output=session.output)
        except ValueError as error:
            raise click.UsageError(str(error)) from error

    made = cast(F, wrapper)
    for option in reversed(options):
        made = option(made)
    return made


def _output(output: str, as_json: bool) -> Output:
    source = click.get_current_context().get_parameter_source("output")
    if as_json and source is ParameterSource.COMMANDLINE and output != Output.JSON:
        raise click.UsageError(f"--json contradicts --output {output}: give one")
    return Output.JSON if as_json else Output(output)


def _log_to_stderr(verbose: int) -> None:
    if verbose:
        level = logging.INFO if verbose == 1 else logging.DEBUG
        logging.basicConfig(level=level, stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s")


def fail(error: MetaClientError, *, output: Output) -> NoReturn:
    """Print the error as one line on standard error, in the formats of JSON also as a document, and exit.

    The exit code is 2 if no cluster was named, which is wrong use of the command, and 1 for every other failure.
    """
    if output in (Output.JSON, Output.JSONL):
        document = {
            "error": type(error).__name__,
            "message": str(error),
            "disposition": error.disposition.value,
            "may_have_applied": error.may_have_applied,
            "attempts": [str(attempt) for attempt in error.attempts],
        }
        click.echo(json.dumps(document, indent=2 if output is Output.JSON else None))
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


@contextlib.contextmanager
def until_signal(runtime: Any) -> Iterator[Any]:
    """Yield a task that SIGINT or SIGTERM completes; restore the old signal handlers afterwards."""
    ended = runtime.pending(name="until Ctrl-C")
    old: dict[signal.Signals, Any] = {}
    with contextlib.suppress(ValueError):  # only the main thread can handle signals
        for one in _ENDING:
            old[one] = signal.signal(one, lambda number, frame: ended.complete(None))
    try:
        yield ended
    finally:
        for one, handler in old.items():
            signal.signal(one, handler)
