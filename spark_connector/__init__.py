"""The HBase connector for Spark 4, in pure Python: the DataSource ``hbase``. Not built yet.

It will plan by region, carry region locations to the executors, and spread the meta lookups that remain over the meta
replicas: a catalog and its codecs, a reader, a writer, and jobs (row count, copy, verify, join). Importing this package
needs no pyspark; using it will, and ``pip install 'hbase-metaclient[spark]'`` brings it.
"""
