"""The settings of a Spark session that change what a condition means.

A condition as text follows Spark's parser and type rules, which depend on the session: ANSI mode, time zone, escapes
in strings. :func:`of_session` reads these settings from a session, at the time of the call. Without a session (the
option ``hbase.spark.query.where`` of a ``load()``, which a separate worker plans) the dialect is :data:`PORTABLE`: a
condition whose meaning depends on the time zone or on ANSI mode is refused.
"""

from __future__ import annotations

import datetime
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from metaclient.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["PORTABLE", "Dialect", "of_session"]

#: Settings with another value than these change the meaning of literals or of comparisons.
_NEEDED = {
    "spark.sql.legacy.exponentLiteralAsDecimal.enabled": "false",
    "spark.sql.legacy.consecutiveStringLiterals.enabled": "false",
    "spark.sql.legacy.typeCoercion.datetimeToString.enabled": "false",
    "spark.sql.legacy.literal.pickMinimumPrecision": "true",
    "spark.sql.legacy.allowNegativeScaleOfDecimal": "false",
}
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


@dataclass(frozen=True, slots=True)
class Dialect:
    """How the text and the values of a condition are interpreted."""

    is_ansi: bool | None = None  # spark.sql.ansi.enabled; None: not known
    instant: Callable[[str], datetime.datetime] | None = None  # a timestamp in the session's time zone; None: not known
    unescapes_strings: bool = True  # the opposite of spark.sql.parser.escapedStringLiterals
    quotes_names: bool = False  # spark.sql.ansi.doubleQuotedIdentifiers: "x" is a name
    timestamps_have_zones: bool = True  # spark.sql.timestampType is TIMESTAMP_LTZ: TIMESTAMP '...' is an instant
    doubled_quotes: bool | None = None  # 'it''s' has one quote; else it is two strings, joined; None: as pyspark here

    @property
    def has_doubled_quotes(self) -> bool:
        """True since Spark 4.1 (SPARK-52545)."""
        if self.doubled_quotes is not None:
            return self.doubled_quotes
        version = getattr(sys.modules.get("pyspark"), "__version__", None)
        return version is None or _has_doubled_quotes(version)


PORTABLE = Dialect()


def of_session(spark: SparkSession) -> Dialect:
    """Return the dialect of a session; raise ConfigError for a legacy setting that is not supported."""

    def setting(name: str, default: str) -> str:
        return str(spark.conf.get(name, default)).strip()

    for name, needed in _NEEDED.items():
        if setting(name, needed).lower() != needed:
            raise ConfigError(
                f"where: {name} is {setting(name, needed)}, which changes what a condition means: set it to {needed}, "
                "or put the condition into df.where(...)"
            )
    is_ansi = setting("spark.sql.ansi.enabled", "true").lower() == "true"
    return Dialect(
        is_ansi=is_ansi,
        instant=lambda text: _instant(spark, text),
        unescapes_strings=setting("spark.sql.parser.escapedStringLiterals", "false").lower() != "true",
        quotes_names=is_ansi and setting("spark.sql.ansi.doubleQuotedIdentifiers", "false").lower() == "true",
        timestamps_have_zones=setting("spark.sql.timestampType", "TIMESTAMP_LTZ").upper() != "TIMESTAMP_NTZ",
        doubled_quotes=_has_doubled_quotes(str(spark.version)),
    )


def _has_doubled_quotes(version: str) -> bool:
    return not version.startswith("4.0.")


def _instant(spark: SparkSession, text: str) -> datetime.datetime:
    """Let Spark parse a timestamp, so that time zones follow Java's rules. ``FROM VALUES`` avoids a Spark job."""
    assert "'" not in text
    assert "\\" not in text
    row = spark.sql(f"SELECT unix_micros(TIMESTAMP_LTZ '{text}') FROM VALUES (0)").collect()[0]
    return _EPOCH + datetime.timedelta(microseconds=row[0])
