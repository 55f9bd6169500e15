"""The command ``watch``: a live view of a cluster, in the terminal or served as a page."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import click
from rich.console import Console
from rich.live import Live

from metaclient.cli.session import CommandSession, common, until_signal
from metaclient.cli.watch_screen import screen_of
from metaclient.connection import Connection, connect
from metaclient.errors import DeadlineExceeded
from metaclient.runtime import Runtime
from metaclient.watch import Watcher, WatchServer, collector_for
from metaclient.watch.collecting import WatchOptions
from metaclient.watch.server import checked_token
from metaclient.wire.exposure import is_loopback

__all__ = ["watch"]

#: For the first figures, which need the master, the registry and the servers to answer.
FIRST_FIGURES_S = 30.0
#: Rates need two collections, and the figures of a real cluster some seconds: for one document or one screen.
SETTLING_S = 3.0
PORT_MAX = 65_535
#: The widest table fits, so that no column is cut in a pipe.
PIPE_WIDTH = 160


def _address(context: click.Context, option: click.Parameter, value: str | None) -> tuple[str, int] | None:
    if value is None:
        return None
    host, colon, port = value.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > PORT_MAX or not host:
        raise click.BadParameter(f"{value!r} is not HOST:PORT, for example 127.0.0.1:8090 (port 0: any free port)")
    return host.removeprefix("[").removesuffix("]"), int(port)


@click.command()
@click.argument("cluster", metavar="[URL]", required=False)
@click.option("--serve", metavar="HOST:PORT", callback=_address, help="Serve a page for browsers, and /metrics.")
@click.option("--allow-remote", is_flag=True, help="Let other machines open the page, with a token.")
@click.option(
    "--token", envvar="METACLIENT_WATCH_TOKEN", show_envvar=True, help="The token of the page.  [default: a random one]"
)
@click.option(
    "--lookups-per-second",
    type=click.FloatRange(min=0.0, max=1000.0),
    default=1.0,
    show_default=True,
    help="Lookups of this program, which measure the meta replicas; 0: none. A fake has a load of its own.",
)
@click.option("--compare", is_flag=True, help="Also look up rows as HBase's Java client does (a fake always does).")
@click.option("--jmx-port", type=click.IntRange(1, PORT_MAX), help="Of the region servers' info pages.")
@click.option("--for", "seconds", type=click.FloatRange(min=0.0), help="End after so many seconds.")
@common
def watch(
    session: CommandSession,
    *,
    cluster: str | None,
    serve: tuple[str, int] | None,
    allow_remote: bool,
    token: str | None,
    lookups_per_second: float,
    compare: bool,
    jmx_port: int | None,
    seconds: float | None,
) -> None:
    """Show a cluster live: servers, meta replicas, lookups, hot regions, replicas, peers, events.

    \b
    metaclient watch hbase://zk1,zk2:2181
    metaclient watch hbase://zk1,zk2:2181 --serve 127.0.0.1:8090
    metaclient watch fake: --serve 127.0.0.1:8090     # with buttons that break it

    URL is the cluster, as --url is. Without a terminal, one screen is printed; --json prints one document. Ctrl-C ends.
    """
    if cluster is not None:
        _refuse_two_urls()
        session = replace(session, url=cluster)
    if serve is None and (allow_remote or token):
        raise click.UsageError("--allow-remote and --token are about the page: add --serve HOST:PORT")
    if serve is not None and not allow_remote and not is_loopback(serve[0]):
        raise click.UsageError(
            f"{serve[0]} is reached from other machines, which could see all figures: serve at 127.0.0.1, or add "
            "--allow-remote (a token is then needed to open the page)"
        )
    if token is not None:
        checked_token(token)
    connection = connect(session.url, config=session.config, meta_mode=session.meta_mode)
    options = WatchOptions(
        lookups_per_s=lookups_per_second,
        connect_java=_java_like(session, connection) if compare else None,
        jmx_port=jmx_port,
    )
    with connection, _watching(connection, options) as watcher:
        if serve is not None:
            _serve(session, watcher, serve, token=token, allows_remote=allow_remote, seconds=seconds)
        elif session.as_json or not sys.stdout.isatty():
            watcher.runtime.sleep(SETTLING_S if seconds is None else seconds)
            session.document(watcher.document)
            if not session.as_json:
                Console(highlight=False, width=PIPE_WIDTH).print(screen_of(watcher.document))
        else:
            _show_live(watcher, seconds)


def _refuse_two_urls() -> None:
    from click.core import ParameterSource

    context = click.get_current_context()
    if context.get_parameter_source("url") is ParameterSource.COMMANDLINE:
        raise click.UsageError("the cluster is given twice: as an argument and with --url")


def _java_like(session: CommandSession, connection: Connection) -> Any:
    def open_connection() -> Connection:
        return connect(
            session.url,
            config=session.config,
            meta_mode="LoadBalance",
            selector="simple",
            runtime=connection.engine.runtime,
        )

    return open_connection


@contextlib.contextmanager
def _watching(connection: Connection, options: WatchOptions) -> Iterator[Watcher]:
    """Open the connection, which fails now if there is no cluster, and collect figures until the end."""
    connection.open()
    watcher = Watcher(connection.engine.runtime, collector_for(connection, options))
    with watcher:
        version, _ = watcher.wait_newer(0, watcher.runtime.now() + FIRST_FIGURES_S)
        if not version:
            raise DeadlineExceeded(f"no figures of the cluster within {FIRST_FIGURES_S:g} s: run `metaclient doctor`")
        yield watcher


def _serve(
    session: CommandSession,
    watcher: Watcher,
    address: tuple[str, int],
    *,
    token: str | None,
    allows_remote: bool,
    seconds: float | None,
) -> None:
    with (
        WatchServer(watcher, *address, token=token, allows_remote=allows_remote) as server,
        until_signal(watcher.runtime) as ended,
    ):
        session.document({"url": server.url, "host": server.host, "port": server.port, "token": server.token})
        session.say(f"open {server.url} in a browser; Ctrl-C ends it")
        _wait(watcher.runtime, ended, seconds)
    session.say("ended")


def _wait(runtime: Runtime, ended: Any, seconds: float | None) -> None:
    runtime.wait_first((ended,), None if seconds is None else runtime.now() + seconds)


def _show_live(watcher: Watcher, seconds: float | None) -> None:
    """Draw the view at each collection, until Ctrl-C or for so many seconds."""
    runtime, version = watcher.runtime, 0
    end = None if seconds is None else runtime.now() + seconds
    with (
        until_signal(runtime) as ended,
        Live(screen_of(watcher.document), auto_refresh=False, screen=True, vertical_overflow="crop") as live,
    ):
        while not ended.is_done and (end is None or runtime.now() < end):
            version, _ = watcher.wait_newer(version, runtime.now() + 1.0)
            live.update(screen_of(watcher.document), refresh=True)
