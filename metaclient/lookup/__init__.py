"""Where is this row: the locator, its lookups in flight, and the cache of locations."""
