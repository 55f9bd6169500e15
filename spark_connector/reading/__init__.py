"""Splits into Arrow record batches: runs in Spark's workers."""
