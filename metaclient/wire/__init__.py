"""Code that several adapters use: sockets, HBase's RPC and Thrift messages, Java's exceptions, filters, cell arrays."""
