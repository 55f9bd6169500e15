"""HBase's RPC as bytes: what both ends of a connection say, without sockets, threads or time.

========================== =============================================================================================
``protobuf``               varints, field tables, ``encode`` and ``decode`` of dicts
``messages``, ``admin_messages``  the field tables
``names``, ``queries``, ``mutations``, ``schemas``  our values as messages and back
``filters``                the filter language as filter classes and back
``calls``                  the few calls that are made all the time, coded in a straight line
``cellblock``, ``arrow``   cells, as objects or as Arrow
``framing``                preamble, headers, frames
========================== =============================================================================================
"""
