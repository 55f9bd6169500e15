"""Writes DataFrames as puts, deletes and increments."""
