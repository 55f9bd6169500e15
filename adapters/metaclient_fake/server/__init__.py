"""A region server: its online regions, scanners, nonces and batches."""
