"""``metaclient COMMAND``: the client on the command line.

Every command takes ``--output`` (``--json`` is short for ``--output json``: one document on standard output, nothing
else there) and ``-v``. Commands of a cluster take ``--url``, ``--config``, ``--meta-mode`` and ``--timeout``, too.
Exit code 0: done, 1: failed, 2: wrong use. Packages add commands under the entry point group ``metaclient.commands``.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import entry_points
from typing import Any

import click

from metaclient import __version__
from metaclient.cli.changes import changes
from metaclient.cli.completion import completion
from metaclient.cli.data import delete, get, put, scan
from metaclient.cli.demo import demo
from metaclient.cli.doctor import doctor
from metaclient.cli.fake import fake
from metaclient.cli.hbase import hbase
from metaclient.cli.identity import whoami
from metaclient.cli.output import Output
from metaclient.cli.places import locate, meta, regions
from metaclient.cli.replication import replication
from metaclient.cli.schemas import alter, count, describe, namespaces, truncate
from metaclient.cli.session import fail
from metaclient.cli.shell import shell
from metaclient.cli.tables import create, drop, tables
from metaclient.cli.watch import watch
from metaclient.errors import ConfigError, MetaClientError

__all__ = ["main"]


class _Commands(click.Group):
    """The commands of this package, and those that other packages register by entry point."""

    def list_commands(self, context: click.Context) -> list[str]:
        brought = {point.name for point in entry_points(group="metaclient.commands")}
        return sorted({*super().list_commands(context), *brought})

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        own = super().get_command(context, name)
        if own is not None:
            return own
        found = list(entry_points(group="metaclient.commands", name=name))
        if not found:
            return None
        try:
            command = found[0].load()
        except ImportError as error:
            return _unavailable(name, error)
        return command if isinstance(command, click.Command) else None

    def invoke(self, context: click.Context) -> Any:
        """Run the command; report an error that a command of another package does not handle."""
        output = Output.JSON if "--json" in context.args else Output.TABLE
        try:
            return super().invoke(context)
        except MetaClientError as error:
            fail(error, output=output)


def _unavailable(name: str, error: ImportError) -> click.Command:
    """Return a command that reports why its package cannot be imported; the other commands keep working."""
    why = f"{type(error).__name__}: {error}"

    def refuse(arguments: Sequence[str]) -> None:
        if isinstance(error, MetaClientError):
            raise error
        raise ConfigError(f"the command {name!r} cannot be loaded: {why}; install what is missing") from error

    return click.Command(
        name,
        callback=refuse,
        params=[click.Argument(["arguments"], nargs=-1, type=click.UNPROCESSED)],
        context_settings={"ignore_unknown_options": True},
        short_help=f"(not available: {why})",
    )


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="metaclient")
def main() -> None:
    """HBase client that spreads the reads of hbase:meta over its replicas.

    \b
    First steps, without a cluster:
      metaclient demo                      compare the ways to read hbase:meta
      metaclient fake serve                start a fake HBase, and print its urls
      metaclient shell --url fake:         type put("t", "row", "cf:a", "1"), scan("t")
    With a cluster:
      metaclient doctor --url hbase://zk1:2181    what to set, by HBase's version

    \b
    Environment:
      METACLIENT_URL           the cluster, if --url is not given
      METACLIENT_HBASE_FOLDER  the folder of `metaclient hbase`, if --folder is not given

    `metaclient completion bash` prints what completes commands and options with the Tab key.
    Exit codes: 0 done, 1 failed, 2 wrong use.
    """


for _command in (
    alter,
    completion,
    count,
    create,
    delete,
    demo,
    describe,
    doctor,
    drop,
    fake,
    get,
    hbase,
    locate,
    meta,
    namespaces,
    put,
    regions,
    replication,
    changes,
    scan,
    shell,
    tables,
    truncate,
    watch,
    whoami,
):
    main.add_command(_command)
