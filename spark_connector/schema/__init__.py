"""How HBase's bytes are Spark's values: catalogs, types, row keys, layouts, codecs."""
