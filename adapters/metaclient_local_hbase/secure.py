"""What makes a local HBase secure: a Kerberos server (Apache Kerby), keytabs, certificates, and properties for them.

Neither root nor HDFS is needed. The files are in the folder ``secure`` of the cluster, readable for this user only:
``krb5.conf``, ``NAME.keytab`` for each principal, ``ca.pem``, ``server.pem`` and ``client.pem`` (certificate and key).

All servers are on ``localhost`` and share the principal ``hbase/localhost``. The user ``alice`` is a superuser, ``bob``
has no rights. ZooKeeper authenticates HBase's servers by SASL: only they may write HBase's nodes and read the keys of
tokens. Every client may read the other nodes, without SASL.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Final

from metaclient.errors import MetaClientError, Unsupported
from metaclient_local_hbase.layout import Layout, Process, Role

__all__ = [
    "JVM_OPTIONS",
    "PRINCIPALS",
    "REALM",
    "USERS",
    "client_properties",
    "core_site",
    "gateway_properties",
    "is_kdc_ready",
    "jvm_options",
    "kdc_arguments",
    "kerberos_options",
    "login_properties",
    "make_certificates",
    "secure_folder",
    "secure_site",
    "write_krb5_conf",
]

REALM: Final = "TEST.LOCAL"
SERVERS: Final = "hbase/localhost"
ZOOKEEPER: Final = "zookeeper/localhost"
#: The users of the cluster: the first is a superuser, the others have no rights.
USERS: Final = ("alice", "bob")
#: Principal -> the file of its key.
PRINCIPALS: Final = {
    SERVERS: "hbase.keytab",
    "HTTP/localhost": "http.keytab",
    ZOOKEEPER: "zookeeper.keytab",
    **{user: f"{user}.keytab" for user in USERS},
}
_DAYS = "3650"
_COPROCESSORS = "org.apache.hadoop.hbase.security."
JVM_OPTIONS: Final = (
    "--add-exports=java.security.jgss/sun.security.krb5=ALL-UNNAMED",
    "--add-opens=java.security.jgss/sun.security.krb5=ALL-UNNAMED",
)
_KRB5_CONF = """[libdefaults]
    default_realm = {realm}
    dns_lookup_kdc = false
    dns_lookup_realm = false
    dns_canonicalize_hostname = false
    rdns = false
    udp_preference_limit = 1
[realms]
    {realm} = {{
        kdc = 127.0.0.1:{port}
    }}
"""


def secure_folder(layout: Layout) -> Path:
    return layout.folder / "secure"


def keytab(layout: Layout, principal: str) -> Path:
    return secure_folder(layout) / PRINCIPALS[principal]


def write_krb5_conf(layout: Layout) -> Path:
    """Make the folder of keys, and write the file that Java and MIT's library read."""
    folder = secure_folder(layout)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700)
    path = folder / "krb5.conf"
    path.write_text(_KRB5_CONF.format(realm=REALM, port=layout.process("kdc").port), encoding="utf-8")
    return path


def kdc_arguments(layout: Layout) -> list[str]:
    """Return the arguments of ``Kdc.java``."""
    pairs = [f"{principal}={file}" for principal, file in PRINCIPALS.items()]
    return [str(secure_folder(layout)), str(layout.process("kdc").port), REALM, *pairs]


def is_kdc_ready(layout: Layout) -> bool:
    return (secure_folder(layout) / "kdc.ready").exists()


def jvm_options(layout: Layout, process: Process) -> list[str]:
    """Return the options of a JVM that logs in by Kerberos; none if the cluster is not secure."""
    return [] if not layout.is_secure or process.role is Role.KDC else kerberos_options(layout)


def kerberos_options(layout: Layout) -> list[str]:
    """Return the options of a JVM that logs in to this cluster's Kerberos server."""
    return [f"-Djava.security.krb5.conf={secure_folder(layout) / 'krb5.conf'}", *JVM_OPTIONS]


def core_site(layout: Layout) -> dict[str, str]:
    """Return Hadoop's own properties, which Hadoop does not read from hbase-site.xml."""
    if not layout.is_secure:
        return {}
    return {
        "hadoop.security.authentication": "kerberos",
        "hadoop.security.authorization": "true",
        # The gateways act for their clients, and alice for bob.
        "hadoop.proxyuser.hbase.hosts": "*",
        "hadoop.proxyuser.hbase.groups": "*",
        "hadoop.proxyuser.alice.hosts": "*",
        "hadoop.proxyuser.alice.users": "bob",
    }


def secure_site(layout: Layout) -> dict[str, str]:
    """Return the properties of hbase-site.xml for servers and gateways."""
    return {**(_kerberos(layout) if layout.is_secure else {}), **(_tls(layout) if layout.has_tls else {})}


def _kerberos(layout: Layout) -> dict[str, str]:
    server, file = f"hbase/_HOST@{REALM}", str(keytab(layout, SERVERS))
    access, tokens = f"{_COPROCESSORS}access.AccessController", f"{_COPROCESSORS}token.TokenProvider"
    return {
        "hbase.security.authentication": "kerberos",
        "hbase.security.authorization": "true",
        "hbase.master.kerberos.principal": server,
        "hbase.regionserver.kerberos.principal": server,
        "hbase.master.keytab.file": file,
        "hbase.regionserver.keytab.file": file,
        "hbase.thrift.kerberos.principal": server,
        "hbase.thrift.keytab.file": file,
        "hbase.thrift.spnego.principal": f"HTTP/_HOST@{REALM}",
        "hbase.thrift.spnego.keytab.file": str(keytab(layout, "HTTP/localhost")),
        "hbase.superuser": f"hbase,{USERS[0]}",
        "hbase.rpc.protection": "authentication,integrity,privacy",
        "hbase.coprocessor.region.classes": f"{tokens},{access}",
        "hbase.coprocessor.master.classes": access,
        "hbase.coprocessor.regionserver.classes": access,
        **_zookeeper(layout),
    }


def _zookeeper(layout: Layout) -> dict[str, str]:
    """Return the properties with which ZooKeeper authenticates HBase's servers; "hbase" is then the owner of nodes."""
    prefix = "hbase.zookeeper.property"
    return {
        f"{prefix}.authProvider.1": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
        f"{prefix}.kerberos.removeHostFromPrincipal": "true",
        f"{prefix}.kerberos.removeRealmFromPrincipal": "true",
        "hbase.zookeeper.server.keytab.file": str(keytab(layout, ZOOKEEPER)),
        "hbase.zookeeper.server.kerberos.principal": f"{ZOOKEEPER}@{REALM}",
        "hbase.zookeeper.client.keytab.file": str(keytab(layout, SERVERS)),
        "hbase.zookeeper.client.kerberos.principal": f"{SERVERS}@{REALM}",
    }


def _tls(layout: Layout) -> dict[str, str]:
    """Return the properties of servers: TLS with a client certificate, or plaintext, which the servers use."""
    folder = secure_folder(layout)
    return {
        "hbase.server.netty.tls.enabled": "true",
        "hbase.server.netty.tls.supportplaintext": "true",
        "hbase.rpc.tls.keystore.location": str(folder / "server.pem"),
        "hbase.rpc.tls.keystore.type": "PEM",
        "hbase.rpc.tls.keystore.password": "",
        "hbase.rpc.tls.truststore.location": str(folder / "ca.pem"),
        "hbase.rpc.tls.truststore.type": "PEM",
        "hbase.rpc.tls.truststore.password": "",
    }


#: The password of the gateways' key store, which holds a key for tests only.
_STORE_PASSWORD = "changeit"


def gateway_properties(layout: Layout, scheme: str, protection: str) -> dict[str, str]:
    """Return the properties of a gateway whose clients are authenticated, for the scheme of its url."""
    transport = scheme.partition("+")[2]
    if transport == "sasl":
        return {"hbase.thrift.security.qop": protection}
    made = {"hbase.regionserver.thrift.http": "true", "hbase.thrift.support.proxyuser": "true"}
    if transport == "https":
        folder = secure_folder(layout)
        _openssl(
            folder, "pkcs12", "-export", "-in", "server.crt", "-inkey", "server.key", "-out", "gateway.p12",
            "-passout", f"pass:{_STORE_PASSWORD}",
        )  # fmt: skip
        made |= {
            "hbase.thrift.ssl.enabled": "true",
            "hbase.thrift.ssl.keystore.store": str(folder / "gateway.p12"),
            "hbase.thrift.ssl.keystore.type": "PKCS12",
            "hbase.thrift.ssl.keystore.password": _STORE_PASSWORD,
            "hbase.thrift.ssl.keystore.keypassword": _STORE_PASSWORD,
        }
    return made


def client_properties(layout: Layout) -> dict[str, str]:
    """Return the hbase-site.xml of clients: where the cluster is, and how its servers are called."""
    zookeeper = layout.process("zookeeper")
    made = {
        "hbase.zookeeper.quorum": "127.0.0.1",
        "hbase.zookeeper.property.clientPort": str(zookeeper.port),
        "hbase.masters": f"localhost:{layout.process('master').port}",
    }
    if layout.is_secure:
        server = f"hbase/_HOST@{REALM}"
        made |= {
            "hbase.security.authentication": "kerberos",
            "hbase.master.kerberos.principal": server,
            "hbase.regionserver.kerberos.principal": server,
            "hbase.rpc.protection": "privacy",
            "hbase.thrift.kerberos.principal": server,
            "hbase.thrift.spnego.principal": f"HTTP/_HOST@{REALM}",
        }
    return made


def login_properties(layout: Layout) -> dict[str, str]:
    """Return the properties with which HBase's Java client logs in as the superuser."""
    user = USERS[0]
    return {
        "hbase.client.keytab.file": str(keytab(layout, user)),
        "hbase.client.keytab.principal": f"{user}@{REALM}",
    }


# -- certificates ----------------------------------------------------------------------------------------------------


def make_certificates(layout: Layout) -> None:
    """Make an authority, and a certificate each for the servers and for clients; Unsupported without openssl."""
    if shutil.which("openssl") is None:
        raise Unsupported("certificates need 'openssl': install it (Debian, Ubuntu, Fedora, Homebrew: openssl)")
    folder = secure_folder(layout)
    folder.mkdir(mode=0o700, exist_ok=True)
    _openssl(
        folder, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "ca.key", "-out", "ca.pem", "-days", _DAYS,
        "-subj", "/CN=metaclient test authority",
    )  # fmt: skip
    for name in ("server", "client"):
        _sign(folder, name)


def _sign(folder: Path, name: str) -> None:
    """Make ``NAME.pem`` with a certificate for localhost and its key. HBase checks the host of clients, too."""
    (folder / f"{name}.ext").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n", encoding="utf-8")
    _openssl(
        folder, "req", "-newkey", "rsa:2048", "-nodes", "-keyout", f"{name}.key", "-out", f"{name}.csr",
        "-subj", f"/CN={name}",
    )  # fmt: skip
    _openssl(
        folder, "x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial",
        "-out", f"{name}.crt", "-days", _DAYS, "-extfile", f"{name}.ext",
    )  # fmt: skip
    parts = [(folder / f"{name}.{kind}").read_text(encoding="ascii") for kind in ("crt", "key")]
    path = folder / f"{name}.pem"
    path.touch(mode=0o600)
    path.write_text("".join(parts), encoding="ascii")


def _openssl(folder: Path, *arguments: str) -> None:
    ran = subprocess.run(
        ["openssl", *arguments], cwd=folder, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False
    )
    if ran.returncode != 0:
        raise MetaClientError(f"openssl {arguments[0]} failed: {ran.stderr.strip()[-300:]}", detail=ran.stderr)
