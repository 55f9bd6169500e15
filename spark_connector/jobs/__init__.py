"""HBase's tools as Spark jobs: RowCounter, CopyTable, VerifyReplication, bulk loads, snapshots; and a join by row key.

Each job runs one task per split and does its work inside of the tasks. The tasks return to Spark one line per region
(and the keys of rows that differ). The jobs are functions here and commands of ``metaclient spark``.
"""

from __future__ import annotations

from spark_connector.jobs.bulk_join import join
from spark_connector.jobs.bulk_loads import BulkLoadReport, bulk_load
from spark_connector.jobs.region_partitions import repartition
from spark_connector.jobs.replication_check import Verification, hash_table, verify_replication
from spark_connector.jobs.row_counter import UnexpectedCount, row_count
from spark_connector.jobs.snapshots import snapshot
from spark_connector.jobs.table_copy import CopyReport, copy_table

__all__ = [
    "BulkLoadReport",
    "CopyReport",
    "UnexpectedCount",
    "Verification",
    "bulk_load",
    "copy_table",
    "hash_table",
    "join",
    "repartition",
    "row_count",
    "snapshot",
    "verify_replication",
]
