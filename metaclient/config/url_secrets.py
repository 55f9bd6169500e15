"""Decides which parts of a url may be shown: errors, logs, reprs and documents go through :func:`masked_url`.

A url needs no password: HBase's Thrift gateways and its RPC take no password from a url. Users may write one all the
same, and error texts are logged. The masking also works on text that is not a valid url, because errors show the urls
that cannot be parsed. When in doubt it hides more than the password.
"""

from __future__ import annotations

import re
from urllib.parse import SplitResult, unquote, urlsplit

from metaclient.errors import ConfigError

__all__ = ["MASK", "address_of", "is_secret_name", "masked_url", "refuse_credentials", "split_url"]

#: Replaces a secret.
MASK = "***"
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/+")
_SECRET_NAME = re.compile(r"pass|pwd|secret|token|credential|auth(?!entication)|api.?key", re.IGNORECASE)
_OPTION = re.compile(r"(?P<name>[^?&;,=\s]{1,200})=(?P<value>[^&;\s]*)")
#: ``host``, ``host:port``, ``[address]``, ``[address]:port``, or an IPv6 address without its brackets.
_ADDRESS = re.compile(r"(?:[^\[\]:@]*|\[[^\]@]*\])(?::[0-9]*)?|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*")
_QUERY = re.compile(r"[^=&]+=[^&]*(?:&[^=&]+=[^&]*)*")


def is_secret_name(name: str) -> bool:
    """Return True if a property or an option of this name may hold a password."""
    return _SECRET_NAME.search(unquote(name)) is not None


def masked_url(url: str) -> str:
    """Return the url without user, password and the values of options that may be secret.

    >>> masked_url("thrift2://me:hunter2@gateway:9090?connections=4&password=hunter2")
    'thrift2://***@gateway:9090?connections=4&password=***'
    >>> masked_url("thrift2://me:hunter2"), masked_url("hbase://zk1,zk2:2181/hbase?user=me@REALM")
    ('thrift2://me:***', 'hbase://zk1,zk2:2181/hbase?user=me@REALM')
    """
    head, rest = _split_scheme(url)
    before, at, after = rest.rpartition("@")
    if at and not _is_in_query(before):
        rest = f"{MASK}@{after}"
    elif "/" in head:  # without slashes, what follows the colon is a name, as in fake:NAME
        rest = _without_passwords(rest)
    return head + _OPTION.sub(_shown_option, rest)


def refuse_credentials(url: str, what: str) -> None:
    """Raise ConfigError if the url has a user or a password, which ``what`` cannot use."""
    rest = _split_scheme(url)[1]
    before, at, _ = rest.rpartition("@")
    if at and not _is_in_query(before):
        raise ConfigError(
            f"{masked_url(url)!r} has a user or a password before the @, which {what} does not take: "
            "leave it out, and change a password that was written there"
        )


def split_url(url: str) -> SplitResult | None:
    """Return the parts of a url; None if it is not a url. The error of ``urlsplit`` would show parts of it."""
    try:
        return urlsplit(url)
    except ValueError:
        return None


def address_of(text: str) -> tuple[str, int | None] | None:
    """Return host and port of ``HOST[:PORT]``; None for other text. The error of ``urlsplit`` would show the port."""
    try:
        parts = urlsplit(f"//{text}")
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    return (host, port) if host and parts.username is None and not parts.path else None


def _split_scheme(url: str) -> tuple[str, str]:
    found = _SCHEME.match(url)
    end = found.end() if found else 0
    return url[:end], url[end:]


def _is_in_query(before: str) -> bool:
    """Return True if an ``@`` behind this text belongs to the value of an option, as in ``?user=me@REALM``."""
    place, mark, query = before.partition("?")
    if not mark or "@" in place or not _QUERY.fullmatch(query):
        return False
    return all(map(_ADDRESS.fullmatch, place.partition("/")[0].split(",")))


def _without_passwords(rest: str) -> str:
    """Return the rest of a url with ports that are not numbers masked: ``user:password`` without a host looks so."""
    end = next((at for at, char in enumerate(rest) if char in "/?#"), len(rest))
    shown = [one if _ADDRESS.fullmatch(one) else one.partition(":")[0] + f":{MASK}" for one in rest[:end].split(",")]
    return ",".join(shown) + rest[end:]


def _shown_option(option: re.Match[str]) -> str:
    return f"{option['name']}={MASK}" if is_secret_name(option["name"]) else option[0]
