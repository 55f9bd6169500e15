"""Carries out the operations of tables: one row, many rows, a range of rows, a page of puts."""
