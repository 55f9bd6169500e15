"""Text of site files, for tests."""

from __future__ import annotations


def site(*properties: tuple[str, str]) -> str:
    """Return an hbase-site.xml with these properties, one per line from line 3 on."""
    inner = "".join(f"<property><name>{n}</name><value>{v}</value></property>\n" for n, v in properties)
    return f'<?xml version="1.0"?>\n<configuration>\n{inner}</configuration>\n'
