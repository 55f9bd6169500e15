"""Cells as columns of Arrow: types, codecs, and the conversion between pages of cells and record batches.

Tables (``scan_arrow``, ``put_arrow``, docs/columns.md) and the Spark connector share these modules. They import
pyarrow and numpy in functions only, so that the client needs neither.
"""
