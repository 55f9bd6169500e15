"""Benchmarks: each scenario prints its figures, as ratios or counts taken in that one run, beside their goals."""
