"""Benchmarks: each scenario prints its figures (ratios or counts of one run) and their goals."""
