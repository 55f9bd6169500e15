"""Compares a table with its copy on another cluster, as HBase's VerifyReplication does."""
