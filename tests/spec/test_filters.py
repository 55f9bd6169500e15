"""Every text of the filter language is read alike by the fake, by its gateway, and by our own RPC client, and as HBase
2.6.1 reads it (``data/filters-2.6.1.json``, recorded by ``tests/live/test_filter_texts.py``)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

import metaclient
from metaclient import Connection
from metaclient.wire.filter_arguments import SIGNATURES
from metaclient.wire.filter_language import FilterSyntaxError, parse, write
from metaclient_fake import FakeCluster
from tests.spec.filter_answers import RECORDED, REFUSED, assert_known_differences, fill, unlike
from tests.spec.filter_texts import DIFFERENCES, TEXTS


@pytest.fixture(scope="module")
def connections() -> Iterator[Mapping[str, Connection]]:
    with FakeCluster(servers=1) as cluster:
        cluster.serve(thrift1_port=None, thrift2_port=0, rpc_port=0)
        with (
            cluster.connect() as fake,
            metaclient.connect(f"thrift2://127.0.0.1:{cluster.thrift2_port}") as gateway,
            metaclient.connect(f"hbase+rpc://127.0.0.1:{cluster.rpc_port}") as native,
        ):
            fill(fake)
            yield {"fake": fake, "thrift2": gateway, "native": native}


@pytest.mark.parametrize("name", ["fake", "thrift2", "native"])
def test_filter_that_one_parser_refuses_and_another_one_changes(
    connections: Mapping[str, Connection], name: str
) -> None:
    """``MultipleColumnPrefixFilter('a','a')`` was refused by the fake and changed by the native backend."""
    assert unlike(connections[name], TEXTS) == {}


@pytest.mark.parametrize("name", ["fake", "thrift2", "native"])
def test_differences_to_hbases_parser_are_the_documented_ones(connections: Mapping[str, Connection], name: str) -> None:
    assert_known_differences(connections[name])


def test_every_filter_is_recorded_with_good_and_bad_arguments() -> None:
    assert set(RECORDED) == {*TEXTS, *DIFFERENCES}
    for name in SIGNATURES:
        answers = [RECORDED[text] for text in TEXTS if text.startswith(f"{name}(")]
        assert REFUSED in answers, name
        assert any(one != REFUSED for one in answers), name


@pytest.mark.parametrize("text", TEXTS)
def test_text_that_is_written_is_read_again(text: str) -> None:
    try:
        tree = parse(text.encode())
    except FilterSyntaxError:
        return
    assert parse(write(tree)) == tree
