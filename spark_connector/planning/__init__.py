"""The query of one read, and its division into splits."""
