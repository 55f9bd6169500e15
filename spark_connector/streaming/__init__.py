"""Structured Streaming: a source of changed cells, and a sink."""
