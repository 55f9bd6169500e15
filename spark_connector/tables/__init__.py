"""Tables that Spark's optimizer plans: filters, columns, limits and runtime filters of each query reach HBase."""
