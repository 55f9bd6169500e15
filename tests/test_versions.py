"""docs/versions.md is true: its tables are those of the live tests and of the backends' capabilities.

``python -m tests.test_versions`` writes the tables into the page.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from metaclient.backend import Capabilities
from metaclient.backends import backend_for
from metaclient.config import Config
from metaclient.runtime import ThreadRuntime
from metaclient_local_hbase import VERSIONS
from metaclient_local_hbase.jars import GATEWAY_VERSION
from tests.live.conftest import EVERY

PAGE = Path(__file__).resolve().parents[1] / "docs" / "versions.md"

#: Column -> a url of the backend. None of these connects.
BACKENDS = {
    "`hbase://`": "hbase+rpc://127.0.0.1:1",
    "`thrift2://`": "thrift2://127.0.0.1:1",
    "`thrift1://`": "thrift1://127.0.0.1:1",
    "`fake:`": "fake:",
}
#: Backend -> the class of live tests that is its contract.
CONTRACTS = {"`hbase://`": "TestNative", "`thrift2://`": "TestThrift2", "`thrift1://`": "TestThrift1"}
#: Capability -> its name on the page.
FEATURES = {
    "meta_replicas": "lookups spread over the copies of `hbase:meta`",
    "region_replicas": "TIMELINE reads of region replicas, stale flags",
    "replica_lag": "the backend reports the lag of replicas",
    "filters": "filters",
    "reversed_scan": "reversed scans",
    "check_and_mutate": "check and put, check and delete",
    "row_mutations": "several mutations of a row as one",
    "append": "append",
    "nonces": "increments and appends at most once",
    "cell_ttl": "time to live per cell",
    "create_with_splits": "create tables with splits",
    "region_replication": "create tables with region replicas",
    "family_scopes": "replication scope of families",
    "schema": "alter, truncate, namespaces",
    "replication": "replication peers, change feed",
    "cell_pages": "scans as Arrow pages (Spark)",
    "put_pages": "puts as Arrow pages (Spark)",
    "bulk_load": "bulk loads of store files (Spark)",
    "is_pipelined": "many calls in flight on one connection",
    "can_cancel": "calls that lost a race are cancelled",
    "honours_deadline": "one call ends at its deadline",
}
#: Capabilities that are no features but manners, with no row on the page.
NOT_SHOWN = {"addressing", "batch", "retries_inside_s", "direct", "is_remote"}


def capabilities() -> Mapping[str, Capabilities]:
    found = {}
    with ThreadRuntime() as runtime:
        for column, url in BACKENDS.items():
            backend = backend_for(url, runtime, Config())
            found[column] = backend.capabilities
            backend.close()
    return found


def _table(header: list[str], rows: list[list[str]]) -> str:
    return "\n".join("| " + " | ".join(line) + " |" for line in [header, ["---"] * len(header), *rows]) + "\n"


def version_table() -> str:
    """Return the versions that the live tests start, and through which servers or gateways each backend is tested."""
    rows = []
    for version in VERSIONS:
        assert set(CONTRACTS.values()) <= EVERY[version].keys(), "a contract is not run on this version"
        by_gateway = f"tested, gateways of {GATEWAY_VERSION}"
        rows.append([version, "tested", by_gateway, by_gateway])
    return _table(["HBase", *CONTRACTS], rows)


def feature_table() -> str:
    """Return the features that the backends declare."""
    found = capabilities()
    rows = [
        [text, *("yes" if getattr(one, name) else "-" for one in found.values())] for name, text in FEATURES.items()
    ]
    return _table(["", *found], rows)


def written(page: str) -> str:
    """Return the page with the tables of today."""
    for name, table in {"versions": version_table(), "features": feature_table()}.items():
        pattern = rf"(<!-- {name}: begin -->\n).*?(<!-- {name}: end -->)"
        page, count = re.subn(
            pattern, lambda match, table=table: match[1] + "\n" + table + "\n" + match[2], page, flags=re.DOTALL
        )
        assert count == 1, f"the page has no place for the table {name!r}"
    return page


def test_page_of_versions_is_what_the_live_tests_and_the_backends_say() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == written(page), "run: python -m tests.test_versions"


def test_every_capability_is_on_the_page_or_left_out_on_purpose() -> None:
    assert set(Capabilities.__dataclass_fields__) == FEATURES.keys() | NOT_SHOWN


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
