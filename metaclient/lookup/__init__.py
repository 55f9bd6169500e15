"""Finds the region of a row: the locator, its lookups in flight, pages of hbase:meta, and the cache of locations."""
