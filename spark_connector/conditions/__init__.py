"""Conditions on rows: parsed, bound to a catalog, and translated into what HBase can evaluate."""
