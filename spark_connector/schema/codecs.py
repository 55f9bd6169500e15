"""The names that the codecs of users import: a codec of a user is a subclass of :class:`Codec`, see its module."""

from metaclient.columns.codecs import BadValueError, Codec, Order, Span, Spans, codec_named

__all__ = ["BadValueError", "Codec", "Order", "Span", "Spans", "codec_named"]
