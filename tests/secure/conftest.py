"""A real HBase with Kerberos and TLS for the tests in this folder (`make secure`).

``METACLIENT_SECURE_VERSION`` is the version of HBase (2.6.1); `make secure` runs the tests on 2.6.1 and 3.0.0-alpha-4.
``METACLIENT_SECURE_FOLDER`` names the folder of a cluster that already runs (``metaclient hbase up --secure --tls
--folder``) and is left running. `make essential` and `make secure` install the package gssapi first where that is
possible (:mod:`tests.secure.install`); elsewhere the tests are skipped, in CI too.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import metaclient
from metaclient import Connection, Token
from metaclient_local_hbase import LocalHBase, missing_tools
from tests.live.load import left_out, unwatched
from tests.secure.install import why_not_installed

HERE = Path(__file__).parent
FOLDER = os.environ.get("METACLIENT_SECURE_FOLDER")
VERSION = os.environ.get("METACLIENT_SECURE_VERSION", "2.6.1")
#: Servers with AES enabled must also accept clients that do not ask for it.
AES = "hbase.rpc.crypto.encryption.aes.enabled"
SESSION_S = 60.0
#: Of the contract, `make essential` takes every so-many-th test; each makes a table.
EVERY = 12


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    seen: dict[str, list[str]] = {}
    for item in items:
        if HERE not in item.path.parents:
            continue
        item.add_marker(pytest.mark.live)
        suite, test = getattr(getattr(item, "cls", None), "__name__", ""), getattr(item, "originalname", item.name)
        tests = seen.setdefault(suite, [])
        if suite and test not in tests:
            tests.append(test)
            if (len(tests) - 1) % EVERY == 0:
                item.add_marker(pytest.mark.essential)


@pytest.fixture(scope="session")
def secure_hbase() -> Iterator[LocalHBase]:
    missing = why_not_installed()
    if missing is not None:
        pytest.skip(missing)
    if FOLDER:
        cluster = LocalHBase.at(FOLDER)
        os.environ["KRB5_CONFIG"] = str(cluster.krb5_conf)  # read by the library at its first use
        yield cluster
        return
    left_out(missing_tools())
    cluster = LocalHBase(VERSION, secure=True, tls=True, session_s=SESSION_S, properties={AES: "true"})
    with unwatched():
        cluster.up()
    os.environ["KRB5_CONFIG"] = str(cluster.krb5_conf)
    try:
        yield cluster
    finally:
        cluster.down()


@contextmanager
def gateway_of(hbase: LocalHBase, scheme: str, **options: str) -> Iterator[str]:
    """Start a Thrift gateway whose clients need Kerberos; yield its url."""
    url = hbase.start_gateway(scheme, **options)
    try:
        yield url
    finally:
        hbase.stop_gateway(url)


@pytest.fixture(scope="session")
def sasl_url(secure_hbase: LocalHBase) -> Iterator[str]:
    with gateway_of(secure_hbase, "thrift2+sasl") as url:
        yield url


@pytest.fixture
def alice(secure_hbase: LocalHBase) -> Iterator[Connection]:
    """A superuser, by a keytab, with privacy."""
    with metaclient.connect(config=secure_hbase.client_config, **secure_hbase.identity("alice")) as made:
        yield made


@pytest.fixture
def bob(secure_hbase: LocalHBase) -> Iterator[Connection]:
    """A user without rights."""
    with metaclient.connect(config=secure_hbase.client_config, **secure_hbase.identity("bob")) as made:
        yield made


@pytest.fixture(scope="session")
def token(secure_hbase: LocalHBase) -> Token:
    with metaclient.connect(config=secure_hbase.client_config, **secure_hbase.identity("alice")) as made:
        return made.delegation_token()
