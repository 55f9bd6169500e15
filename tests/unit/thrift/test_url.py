"""Urls of Thrift gateways."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

import metaclient
from metaclient.errors import ConfigError
from metaclient_thrift.url import Gateway, ThriftUrl


def test_all_forms() -> None:
    url = ThriftUrl.parse(
        "thrift2://a:1,b,[::1]:3?transport=framed&protocol=compact&connections=4&retries_inside_s=1.2"
    )
    assert url.gateways == (Gateway("a", 1), Gateway("b", 9090), Gateway("::1", 3))
    assert (url.is_framed, url.is_compact, url.connections, url.retries_inside_s) == (True, True, 4, 1.2)
    assert [str(one) for one in url.gateways] == ["a:1", "b:9090", "[::1]:3"]
    assert ThriftUrl.parse("thrift2+http://a/thrift").path == "/thrift"
    assert ThriftUrl.parse("thrift2+http://a").is_http
    tls = ThriftUrl.parse("thrift2+tls://a?ca=/etc/ca.pem")
    assert (tls.is_tls, tls.ca_file, tls.verifies) == (True, "/etc/ca.pem", True)
    assert not ThriftUrl.parse("thrift2+tls://a?verify=false").verifies


def test_hbase_site_gives_the_defaults() -> None:
    site = {"hbase.regionserver.thrift.framed": "true", "hbase.regionserver.thrift.compact": "TRUE"}
    assert ThriftUrl.parse("thrift1://a", site).is_framed
    assert ThriftUrl.parse("thrift1://a", site).is_compact
    assert not ThriftUrl.parse("thrift1://a?transport=buffered", site).is_framed


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("thrift3://a", "thrift2"),
        ("thrift2:a", "names no gateway"),
        ("thrift2://", "names no gateway"),
        ("thrift2://a,,b", "bad address"),
        ("thrift2://a:99999", "bad address"),
        ("thrift2://a:b", "bad address"),
        ("thrift2://user@a", "a user or a password before the @"),
        ("thrift2://a/path", "thrift2\\+http"),
        ("thrift2://a?transprt=framed", "did you mean transport"),
        ("thrift2://a?transport=fast", "buffered or framed"),
        ("thrift2://a?connections=0", "from 1 on"),
        ("thrift2://a?connections=1.5", "from 1 on"),
        ("thrift2://a?connections=nan", "from 1 on"),
        ("thrift2://a?retries_inside_s=inf", "from 0 on"),
        ("thrift2://a?connections=4&connections=5", "has connections twice"),
        ("thrift2://a?ca=/etc/ca.pem", "ca has no effect without TLS"),
        ("thrift1://a?verify=false", "verify has no effect without TLS"),
        ("thrift2+tls://a?ca=/etc/ca.pem&verify=false", "ca has no effect with verify=false"),
        ("thrift2+http://a?transport=framed", "transport has no effect over HTTP"),
        ("thrift2+http://a?protocol=compact", "protocol has no effect over HTTP"),
    ],
)
def test_wrong_url_says_what_is_wrong(url: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        ThriftUrl.parse(url)


@pytest.mark.parametrize("key", ["hbase.regionserver.thrift.framed", "hbase.regionserver.thrift.compact"])
def test_flag_of_the_site_file_that_is_none_is_not_taken_for_false(key: str) -> None:
    with pytest.raises(ConfigError, match=f"{key} must be false or true, got 'yes'"):
        ThriftUrl.parse("thrift2://a", {key: "yes"})
    assert not ThriftUrl.parse("thrift2+http://a", {key: "true"}).is_framed, "HBase's servlet ignores it, too"


@given(st.text(max_size=40))
def test_any_text_is_understood_or_refused(text: str) -> None:
    with suppress(ConfigError):
        ThriftUrl.parse("thrift2://" + text)


@pytest.mark.parametrize("scheme", ["thrift1", "thrift2", "thrift2+http", "thrift2+tls"])
def test_scheme_is_registered(scheme: str) -> None:
    """happybase's programs construct without connecting; nothing is dialled here."""
    made = metaclient.Connection(url=f"{scheme}://localhost:1", autoconnect=False)
    assert made.capabilities.meta_replicas is (scheme != "thrift1")
    made.close()
