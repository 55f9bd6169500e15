"""Identity and TLS of Thrift urls: what is used, and options without effect, which are refused."""

from __future__ import annotations

from typing import Any

import pytest

import metaclient
from metaclient import ConfigError, Token
from metaclient.config import Config
from metaclient.config.security import Protection
from metaclient.config.tokens import encode_identifier
from metaclient_thrift.security import GatewaySecurity
from metaclient_thrift.url import ThriftUrl

PRINCIPAL = {"hbase.thrift.kerberos.principal": "hbase/_HOST@R"}


def security_of(url: str, properties: dict[str, str] | None = None, **options: Any) -> GatewaySecurity:
    return GatewaySecurity.of(ThriftUrl.parse(url), Config.of(properties or {}, **options))


def test_sasl_takes_the_gateways_principal_and_any_protection_unless_one_is_named() -> None:
    for scheme in ("thrift1+sasl", "thrift2+sasl"):
        made = security_of(f"{scheme}://gw", PRINCIPAL, principal="etl@R", keytab="/k")
        assert (made.pattern, made.protections) == ("hbase/_HOST@R", tuple(Protection))
    named = security_of("thrift2+sasl://gw", {**PRINCIPAL, "hbase.thrift.security.qop": "privacy"})
    assert named.protections == (Protection.PRIVACY,)


def test_http_asks_for_no_ticket_unless_an_identity_is_given() -> None:
    assert security_of("thrift2+http://gw").login is None
    assert security_of("thrift2+https://gw", ca="/ca.pem").login is None
    for options in ({"principal": "etl@R"}, {"ccache": "/c"}, {"do_as": "bob"}):
        made = security_of("thrift2+https://gw", **options)
        assert made.login is not None
        assert made.pattern == "HTTP/_HOST"
        assert made.do_as == options.get("do_as")


@pytest.mark.parametrize(
    ("url", "options", "text"),
    [
        ("thrift2+sasl://gw", {}, "needs hbase.thrift.kerberos.principal"),
        ("thrift2+sasl://gw?transport=framed", {}, "no SASL with framed transport"),
        ("thrift2://gw", {"principal": "etl@R"}, r"principal has no effect on thrift2://: write thrift2\+sasl://"),
        ("thrift2+tls://gw", {"ccache": "/c"}, "ccache has no effect"),
        ("thrift2+sasl://gw", {"do_as": "bob"}, "HTTP requests only"),
        ("thrift2+sasl://gw", {"ca": "/ca.pem"}, "ca has no effect without TLS"),
        ("thrift2+http://gw", {"verify": False}, "verify has no effect without TLS"),
        ("thrift2+https://gw?ca=/a.pem", {"ca": "/b.pem"}, "ca is in the url and an option"),
        ("thrift2+https://gw", {"keytab": "/k"}, "needs principal"),
        ("thrift2+https://gw", {"token": None}, "take no delegation tokens"),
    ],
)
def test_option_without_effect_or_a_contradiction_is_refused(url: str, options: dict[str, Any], text: str) -> None:
    if "token" in options:
        identifier = encode_identifier("etl", issued_ms=1, expires_ms=2)
        options = {"token": Token(identifier, b"p" * 20, "c")}
    with pytest.raises(ConfigError, match=text):
        metaclient.connect(url, **options)
