"""Ticket caches, as `kinit -k` makes them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from metaclient_local_hbase import LocalHBase

_PROGRAM = """import gssapi, sys
principal, keytab, cache, life_s = sys.argv[1:]
name = gssapi.Name(principal, gssapi.NameType.kerberos_principal)
made = gssapi.Credentials(
    name=name, usage="initiate", lifetime=int(life_s) or None, store={"client_keytab": keytab, "ccache": "MEMORY:made"}
)
made.lifetime  # looks the ticket up
made.store({"ccache": "FILE:" + cache}, usage="initiate", overwrite=True, set_default=True)
"""


def make_cache(hbase: LocalHBase, cache: Path, user: str = "alice", *, life_s: int = 0) -> None:
    """Make the ticket cache of a user, whose ticket ends after ``life_s``.

    In a process of its own, because the library reads krb5.conf once.
    """
    identity = hbase.identity(user)
    text = hbase.krb5_conf.read_text(encoding="utf-8")
    if life_s:
        text = text.replace("[libdefaults]", f"[libdefaults]\n    ticket_lifetime = {life_s}s")
    krb5_conf = cache.with_name("krb5.conf")
    krb5_conf.write_text(text, encoding="utf-8")
    subprocess.run(
        [sys.executable, "-c", _PROGRAM, identity["principal"], identity["keytab"], str(cache), str(life_s)],
        env={**os.environ, "KRB5_CONFIG": str(krb5_conf)},
        check=True,
    )
    assert cache.exists()
