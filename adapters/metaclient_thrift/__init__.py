"""Real HBase through its Thrift gateways: Thrift 2 on thriftpy2, Thrift 1 through happybase.

For data calls, the gateway's own Java client locates the regions. metaclient's own lookups are those of ``locate``,
``regions``, ``warm_up``, TIMELINE reads and Spark's planning; they go to the meta replica that the policy chose.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from metaclient.config import Config
from metaclient.runtime import Runtime
from metaclient_thrift.thrift1 import Thrift1Backend
from metaclient_thrift.thrift2 import Thrift2Backend

# Without a handler Python prints their warnings, which metaclient's errors contain already. Handlers of the application
# still get them.
for _name in ("happybase", "thriftpy2"):
    logging.getLogger(_name).addHandler(logging.NullHandler())

__all__ = ["Thrift1Backend", "Thrift2Backend", "thrift1_factory", "thrift2_factory"]


def thrift1_factory(
    url: str, *, runtime: Runtime, properties: Mapping[str, str], config: Config | None = None
) -> Thrift1Backend:
    """Return the backend of a URL ``thrift1://host:port``, ``thrift1+sasl://`` or ``thrift1+tls://``."""
    return Thrift1Backend(url, runtime=runtime, properties=properties, config=config)


def thrift2_factory(
    url: str, *, runtime: Runtime, properties: Mapping[str, str], config: Config | None = None
) -> Thrift2Backend:
    """Return the backend of a URL ``thrift2://host:port,...``, also with +sasl, +http, +https or +tls."""
    return Thrift2Backend(url, runtime=runtime, properties=properties, config=config)
