"""HBase's RPC as bytes: the messages of both ends of a connection, without sockets, threads or time.

========================== =============================================================================================
``protobuf``               varints, field tables, ``encode`` and ``decode`` of dicts
``messages``, ``admin_messages``  the field tables
``names``, ``queries``, ``mutations``, ``schemas``  values of ``metaclient.model`` as messages and back
``filters``                the filter language as filter classes and back
``cellblock``              cells as objects and as bytes
``replication``, ``replication_messages``, ``replication_peers``  log entries, peers and loads; znodes of peers
``framing``                preamble, headers, frames
========================== =============================================================================================
"""
