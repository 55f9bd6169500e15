"""Spark on a secure HBase: only the driver logs in, and the secrets of the run are in nothing that Spark shows.

Each test runs :mod:`tests.secure.spark_program` in a process of its own, with a Spark cluster of its own.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the Spark tests need the extra 'spark'")

from metaclient import Token
from metaclient_local_hbase import LocalHBase, missing_tools
from tests.live.load import left_out, unwatched
from tests.secure.conftest import VERSION
from tests.secure.install import why_not_installed
from tests.secure.spark_program import IDENTITY
from tests.spark.releases import needs_sinks

#: It took 4 minutes on a busy machine, and 10 at a load of 25.
RUN_S_MAX = 900
#: The life of a token of the cluster whose tokens are short; a stream lasts for two of them.
LIFE_S = 40
#: HBase's name of that life (AuthenticationTokenSecretManager).
LIFE = "hbase.auth.token.max.lifetime"


def run(
    folder: Path, environment: dict[str, str], options: dict[str, str], work: str = "batch", stream_s: float = 0.0
) -> dict[str, Any]:
    """Run the program with these variables; return its result, with the tokens that its executors had."""
    job = {"folder": str(folder), "options": options, "work": work, "stream_s": stream_s}
    with unwatched():  # the program has a deadline of its own
        ran = subprocess.run(
            [sys.executable, "-m", "tests.secure.spark_program", json.dumps(job)],
            env={**{name: value for name, value in os.environ.items() if name not in IDENTITY}, **environment},
            cwd=Path(__file__).parents[2],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=RUN_S_MAX,
        )
    (folder / "shown" / "output.txt").write_text(ran.stdout, encoding="utf-8")
    assert ran.returncode == 0, ran.stdout[-3000:]
    result: dict[str, Any] = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    secrets = folder / "secrets.json"
    result["tokens"] = json.loads(secrets.read_text(encoding="utf-8"))
    secrets.unlink()
    return result


def forms_of(secret: bytes) -> set[bytes]:
    """Return the bytes by which a secret would be found: as it is, in hex, in base64, and as Python shows bytes."""
    encoded = base64.b64encode(secret)
    return {
        secret,
        secret.hex().encode(),
        secret.hex().upper().encode(),
        encoded.rstrip(b"="),
        base64.urlsafe_b64encode(secret).rstrip(b"="),
        base64.b64encode(encoded).rstrip(b"="),
        repr(secret)[2:-1].encode(),
    }


def find(folder: Path, secrets: list[bytes]) -> list[str]:
    """Return the files below a folder that have one of the secrets."""
    forms = {form for secret in secrets for form in forms_of(secret)}
    files = [file for file in folder.rglob("*") if file.is_file()]
    assert files
    return [str(file.relative_to(folder)) for file in files if any(form in file.read_bytes() for form in forms)]


def check_executors(result: dict[str, Any]) -> None:
    """Assert that the executors could not log in by themselves."""
    assert result["executors"]
    for one in result["executors"]:
        assert one["environment"] == []
        assert one["gssapi"] != "yes"


def kerberos(hbase: LocalHBase) -> dict[str, str]:
    """Return the variables of a driver that can log in."""
    return {"KRB5_CONFIG": str(hbase.krb5_conf)}


def token_file(token: Token) -> bytes:
    """Return a file of Hadoop's Credentials, version 0, with one token; no part is longer than 127 bytes."""
    parts = (b"alias", token.identifier, token.password, b"HBASE_AUTH_TOKEN", token.cluster_id.encode())
    return b"HDTS\0\1" + b"".join(bytes((len(part),)) + part for part in parts) + b"\0"


def by_keytab(hbase: LocalHBase) -> dict[str, str]:
    identity = hbase.identity("alice")
    return {
        "hbase.spark.config.location": str(hbase.client_config),
        "hbase.client.keytab.file": identity["keytab"],
        "hbase.client.keytab.principal": identity["principal"],
    }


@pytest.mark.parametrize("form", sorted(forms_of(bytes(range(200, 220)))))
def test_search_for_secrets_finds_each_form(tmp_path: Path, form: bytes) -> None:
    secret = bytes(range(200, 220))
    (tmp_path / "log").write_bytes(b"an innocent line\n")
    assert find(tmp_path, [secret]) == []
    (tmp_path / "event").write_bytes(b'{"password": "' + form + b'"}')
    assert find(tmp_path, [secret]) == ["event"]


def test_executors_read_and_write_by_token_and_no_secret_is_shown(secure_hbase: LocalHBase, tmp_path: Path) -> None:
    """The executors have neither KRB5_CONFIG nor a ticket nor the package gssapi."""
    result = run(tmp_path, kerberos(secure_hbase), by_keytab(secure_hbase))
    assert (result["source"], result["table"]) == (1000, 10)
    check_executors(result)
    assert {username for username, *_ in result["tokens"]} == {"alice@TEST.LOCAL"}
    passwords = [bytes.fromhex(password) for *_, password in result["tokens"]]
    shown = {file.name for file in tmp_path.rglob("*") if file.is_file()}
    assert {"plans.txt", "errors.txt", "reprs.txt", "driver.log", "output.txt", "stderr"} <= shown
    assert any(name.startswith("events_") for name in shown)
    assert find(tmp_path, passwords) == []


def test_driver_that_has_only_a_token_file_reads_and_writes(
    secure_hbase: LocalHBase, token: Token, tmp_path: Path
) -> None:
    """As in a container of YARN: no process of the job has KRB5_CONFIG, a ticket, a keytab or the package gssapi."""
    file = tmp_path / "container_tokens"
    file.write_bytes(token_file(token))
    options = {"hbase.spark.config.location": str(secure_hbase.client_config)}
    result = run(tmp_path, {"HADOOP_TOKEN_FILE_LOCATION": str(file)}, options)
    file.unlink()  # the one place where the password may be
    assert (result["source"], result["table"]) == (1000, 10)
    check_executors(result)
    assert [tuple(one) for one in result["tokens"]] == [
        (token.username, token.issued_ms, token.expires_ms, token.password.hex())
    ]
    assert find(tmp_path, [token.password]) == []


@needs_sinks
def test_stream_outlives_two_tokens(tmp_path: Path) -> None:
    """The driver fetches a new token at 80 % of the life of the last one, and each micro-batch takes it along."""
    missing = why_not_installed()
    if missing is not None:
        pytest.skip(missing)
    left_out(missing_tools())
    properties = {LIFE: str(LIFE_S * 1000)}
    cluster = LocalHBase(VERSION, region_servers=1, meta_replicas=1, secure=True, properties=properties)
    with unwatched():
        cluster.up()
    try:
        result = run(tmp_path, kerberos(cluster), by_keytab(cluster), "stream", 2 * LIFE_S)
    finally:
        cluster.down()
    assert result["error"] == ""
    assert result["copied"] == result["written"] > 0
    issued = sorted(issued_ms for _, issued_ms, *_ in result["tokens"])
    assert issued, "no worker had a token"
    assert issued[-1] - issued[0] >= 1.5 * LIFE_S * 1000
    check_executors(result)
    assert find(tmp_path, [bytes.fromhex(password) for *_, password in result["tokens"]]) == []
