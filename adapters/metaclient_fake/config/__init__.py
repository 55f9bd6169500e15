"""Every size, limit and delay of a fake cluster, under our names and under HBase's."""
