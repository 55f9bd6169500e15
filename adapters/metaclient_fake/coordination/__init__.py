"""What ZooKeeper does for HBase: the registry of hbase:meta's replicas and of the master."""
