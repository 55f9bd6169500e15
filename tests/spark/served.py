"""A fake cluster over TCP, as the Spark tests see it, and the table that most of them use."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from metaclient_fake import FakeCluster


def catalog_of(table: str) -> str:
    """The catalog of a table with a column of each kind that tests need; the key is text."""
    return json.dumps(
        {
            "table": {"namespace": "default", "name": table},
            "rowkey": "key",
            "columns": {
                "id": {"cf": "rowkey", "col": "key", "type": "string"},
                "i": {"cf": "cf", "col": "i", "type": "int"},
                "name": {"cf": "cf", "col": "name", "type": "string"},
            },
        }
    )


CATALOG = catalog_of("t")


@dataclass(frozen=True)
class Served:
    """A fake cluster and where Spark's workers reach it."""

    cluster: FakeCluster
    url: str

    def connect(self, **options: Any) -> Any:
        """An in-process client of the same cluster, to prepare data and to look at it."""
        return self.cluster.connect(**options)

    def meta_reads(self) -> dict[str, int]:
        """The cluster's own count of reads of each meta replica."""
        return {str(replica): count for replica, count in self.cluster.status()["meta"]["reads_by_replica"].items()}
