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

from metaclient_local_hbase import LocalHBase
from tests.live.load import unwatched

pytest.importorskip("pyspark", reason="the Spark tests need the extra 'spark'")

#: It took 4 minutes on a busy machine, and 10 at a load of 25.
RUN_S_MAX = 900


def run(folder: Path, hbase: LocalHBase, options: dict[str, str]) -> dict[str, Any]:
    """Run the program; return its result, with the passwords of the tokens that its executors had."""
    job = {"folder": str(folder), "options": options}
    with unwatched():  # the program has a deadline of its own
        ran = subprocess.run(
            [sys.executable, "-m", "tests.secure.spark_program", json.dumps(job)],
            env={**os.environ, "KRB5_CONFIG": str(hbase.krb5_conf)},
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
    result = run(tmp_path, secure_hbase, by_keytab(secure_hbase))
    assert (result["source"], result["table"]) == (1000, 10)
    check_executors(result)
    assert {username for username, *_ in result["tokens"]} == {"alice@TEST.LOCAL"}
    passwords = [bytes.fromhex(password) for *_, password in result["tokens"]]
    shown = {file.name for file in tmp_path.rglob("*") if file.is_file()}
    assert {"plans.txt", "errors.txt", "reprs.txt", "driver.log", "output.txt", "stderr"} <= shown
    assert any(name.startswith("events_") for name in shown)
    assert find(tmp_path, passwords) == []
