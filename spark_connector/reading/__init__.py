"""Reads splits as Arrow record batches, in Spark's workers."""
