"""The fake over TCP: Thrift gateways, HBase's own RPC and a status page in front of a ``FakeCluster``."""
