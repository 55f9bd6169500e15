r"""Codecs: encode values of a column as the bytes of a cell or of a row key, and decode them.

>>> from metaclient.columns.types import parse_type
>>> codec_named("naive").encode(7, parse_type("int"))
b'\x00\x00\x00\x07'
>>> codec_named("naiv")
Traceback (most recent call last):
metaclient.errors.ConfigError: no codec is called 'naiv'; did you mean naive?
"""

from __future__ import annotations

import difflib
import importlib
from functools import lru_cache

from metaclient.columns.codecs.base import BadValueError, Codec, Order
from metaclient.columns.codecs.json_text import JsonCodec
from metaclient.columns.codecs.naive import NaiveCodec
from metaclient.columns.codecs.orderedbytes import OrderedBytesCodec
from metaclient.columns.codecs.phoenix import PhoenixCodec, PhoenixUnsignedCodec
from metaclient.columns.codecs.spans import Span, Spans
from metaclient.columns.codecs.text import StringCodec
from metaclient.errors import ConfigError

__all__ = ["BadValueError", "Codec", "Order", "Span", "Spans", "codec_named"]

_CODECS: dict[str, Codec] = {
    codec.name: codec
    for codec in (
        NaiveCodec(),
        StringCodec(),
        OrderedBytesCodec(),
        PhoenixCodec(),
        PhoenixUnsignedCodec(),
        JsonCodec(),
    )
}
#: Names of hbase-connectors, SHC and HBase -> names of this package.
_ALIASES = {
    "bytes": "naive",
    "primitivetype": "naive",
    "org.apache.hadoop.hbase.spark.datasources.naiveencoder": "naive",
    "text": "string",
    "utf8": "string",
    "ordered": "orderedbytes",
    "ordered_bytes": "orderedbytes",
}


@lru_cache(maxsize=64)
def codec_named(name: str) -> Codec:
    """Return the codec of this name (naive, string, orderedbytes, phoenix, phoenix_unsigned, json; any case).

    A dotted name is that of a user's :class:`Codec` class or object, importable on the driver and on the executors.
    ``ConfigError`` shows the nearest name, or why the dotted name cannot be used.
    """
    lower = name.strip().lower()
    known = _CODECS.get(_ALIASES.get(lower, lower))
    if known is not None:
        return known
    if "." in name:
        return _loaded(name.strip())
    near = difflib.get_close_matches(lower, [*_CODECS, *_ALIASES], 1)
    advice = f"did you mean {near[0]}?" if near else f"known are {', '.join(_CODECS)}, or a dotted Python name"
    raise ConfigError(f"no codec is called {name!r}; {advice}")


def _loaded(name: str) -> Codec:
    module_name, _, attribute = name.rpartition(".")
    try:
        found = getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"codec {name}: cannot be imported ({error}); is it installed here and on executors?"
        ) from error
    made = found() if isinstance(found, type) and issubclass(found, Codec) else found
    if not isinstance(made, Codec):
        raise ConfigError(f"codec {name}: it is {type(made).__name__}, no metaclient.columns.codecs.Codec")
    made.name = name  # unpickling looks it up by this name
    return made
