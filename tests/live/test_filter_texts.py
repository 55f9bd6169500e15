"""Filters on a real HBase: where its gateway parses the text (Thrift 2), and where we do (HBase's own RPC).

``METACLIENT_RECORD_FILTERS=1`` writes the gateway's answers to ``tests/spec/data`` anew.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from metaclient import Connection
from metaclient_local_hbase import LocalHBase
from tests.spec import filter_answers
from tests.spec.filter_answers import answer, assert_known_differences, fill, unlike
from tests.spec.filter_texts import DIFFERENCES, TEXTS


@pytest.mark.essential
def test_filters_are_read_alike_by_the_gateway_and_by_us(
    hbase: LocalHBase, connection: Connection, native: Connection
) -> None:
    fill(connection)
    if os.environ.get("METACLIENT_RECORD_FILTERS"):
        recorded = {text: answer(connection, text) for text in (*TEXTS, *DIFFERENCES)}
        path = Path(filter_answers.__file__).parent / "data" / f"filters-{hbase.version}.json"
        path.write_text(json.dumps(recorded, indent=0) + "\n")
        pytest.skip(f"recorded {len(recorded)} answers")
    if hbase.version == "2.6.1":
        assert unlike(connection, (*TEXTS, *DIFFERENCES)) == {}
        assert_known_differences(native)
    different = {text: (answer(connection, text), answer(native, text)) for text in TEXTS}
    assert {text: pair for text, pair in different.items() if pair[0] != pair[1]} == {}
