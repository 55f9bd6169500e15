"""Replication between clusters: peers, queues of logs, sources that ship them, and sinks that apply what arrives."""
