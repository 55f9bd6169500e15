"""HBase's Thrift protocols: the interface files, and conversions of their structs from and to ``metaclient.model``."""
