"""HBase's own tools as Spark jobs: RowCounter, CopyTable, VerifyReplication, and a join by row key.

Each cuts the table by regions and does its work inside of the tasks: what crosses to Spark is a line for each region
(and the rows that differ). They are functions here and commands of ``metaclient spark``.
"""

from __future__ import annotations

from spark_connector.jobs.bulk_join import join
from spark_connector.jobs.replication_check import Verification, hash_table, verify_replication
from spark_connector.jobs.row_counter import UnexpectedCount, row_count
from spark_connector.jobs.table_copy import CopyReport, copy_table

__all__ = [
    "CopyReport",
    "UnexpectedCount",
    "Verification",
    "copy_table",
    "hash_table",
    "join",
    "row_count",
    "verify_replication",
]
