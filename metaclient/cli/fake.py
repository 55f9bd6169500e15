"""The command ``fake serve``: starts a fake HBase that listens on TCP ports.

The cluster comes from the entry point ``fake`` of the group ``metaclient.clusters``: this package imports no adapter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from metaclient.cli.session import CommandSession, configured, until_signal
from metaclient.config import Config
from metaclient.testing.clusters import cluster_class
from metaclient.wording import counted

__all__ = ["fake"]

F = TypeVar("F", bound=Callable[..., Any])
PORT_MAX = 65_535


def _port_of(context: click.Context, option: click.Parameter, value: str) -> int | None:
    if value.lower() == "none":
        return None
    if not value.isdecimal() or int(value) > PORT_MAX:
        raise click.BadParameter(f"{value!r} is not a port: use a number from 0 (any free port) to {PORT_MAX}, or none")
    return int(value)


def _port(name: str, default: str, what: str) -> Callable[[F], F]:
    text = f"{what}; 0: any free port, none: not served."
    return click.option(name, metavar="PORT", callback=_port_of, default=default, show_default=True, help=text)


@click.group()
def fake() -> None:
    """Serve a fake HBase in memory to clients that speak HBase's protocols."""


@fake.command()
@click.option("--servers", type=click.IntRange(min=1), default=5, show_default=True, help="Region servers.")
@click.option(
    "--meta-replicas",
    type=click.IntRange(min=1),
    default=None,
    help="Copies of hbase:meta.  [default: hbase.meta.replica.count of --config, else 3]",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@_port("--thrift1-port", "0", "HBase's Thrift 1 (happybase)")
@_port("--thrift2-port", "0", "HBase's Thrift 2")
@_port("--rpc-port", "none", "HBase's own RPC")
@_port("--status-port", "0", "The status page")
@click.option("--cert", default=None, help="Serve with TLS: a PEM file with certificate and key.")
@click.option("--key", default=None, help="The PEM file of the key, if --cert has none.")
@click.option("--client-ca", default=None, help="Clients need a certificate of this authority (PEM).")
@click.option("--allow-insecure", is_flag=True, help="Allow a --host other than loopback without TLS or certificates.")
@configured
def serve(session: CommandSession, servers: int, meta_replicas: int | None, host: str, **fronts: Any) -> None:
    """Serve a new cluster until Ctrl-C or SIGTERM; its data is not kept."""
    properties = _properties(session.config)
    with cluster_class("fake")(servers=servers, meta_replicas=meta_replicas, config=properties) as cluster:
        front = cluster.serve(host, **fronts, gateway=properties)
        with until_signal(cluster.runtime) as ended:
            _show(session, front, servers, cluster.config.meta_replicas)
            ended.result()
    session.say("ended")


def _properties(path: str | None) -> Mapping[str, object]:
    return {} if path is None else Config.of(path).properties


def _show(session: CommandSession, front: Any, servers: int, meta_replicas: int) -> None:
    text = f"a fake HBase of {counted(servers, 'server')} and {counted(meta_replicas, 'meta replica')}; Ctrl-C ends it"
    addresses: dict[str, str] = front.addresses()
    urls = {f"{name}_url": url for name, url in addresses.items()}
    ports = {f"{name}_port": getattr(front, f"{name}_port") for name in ("thrift1", "thrift2", "rpc", "status")}
    session.done({"host": front.host, **ports, **urls, "servers": servers, "meta_replicas": meta_replicas}, text)
    for name, url in addresses.items():
        session.say(f"{name:<8} {url}")
    if "thrift2" in addresses:
        session.say(f"try: metaclient tables --url {addresses['thrift2']}")
