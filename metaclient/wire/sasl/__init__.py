"""SASL as HBase's RPC uses it (HBaseSaslRpcClient, HBaseSaslRpcServer of 2.6): messages, mechanisms, wrapped streams.

::

    messages   the messages of a handshake, for both ends
    mechanism  the protocols: a mechanism makes tokens; a layer wraps and unwraps data after the handshake
    digest_md5 DIGEST-MD5 (RFC 2831) with a delegation token, for both ends; digest_layers wraps its data
    gssapi     GSSAPI (RFC 4752) on a security context; kerberos makes that context with the package `gssapi`
    handshake  runs a mechanism on a stream, for the client
    stream     a stream whose data is wrapped

Nothing here decides which mechanism is used; the adapters do.
"""
