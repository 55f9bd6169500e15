"""Carry out what tables ask for: one row, many rows, a range of rows, a page of puts."""
