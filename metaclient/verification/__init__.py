"""Compares a table with its copy on another cluster, as HBase's VerifyReplication does."""

from metaclient.verification.report import VerificationReport
from metaclient.verification.table_check import verify_replication

__all__ = ["VerificationReport", "verify_replication"]
