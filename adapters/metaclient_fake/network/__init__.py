"""How a call reaches a server: latency, partitions, lost messages, a bounded number of handlers."""
