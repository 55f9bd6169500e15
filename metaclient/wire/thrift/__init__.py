"""HBase's Thrift protocols: the interface files, and the conversion between their structs and our values."""
