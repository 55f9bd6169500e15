"""Types of columns as types of pyspark, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from metaclient.columns.types import DataType, parse_type

if TYPE_CHECKING:
    from pyspark.sql import types as spark_types

__all__ = ["from_spark", "to_spark"]

_SPARK_CLASSES = {
    "boolean": "BooleanType",
    "tinyint": "ByteType",
    "smallint": "ShortType",
    "int": "IntegerType",
    "bigint": "LongType",
    "float": "FloatType",
    "double": "DoubleType",
    "string": "StringType",
    "binary": "BinaryType",
    "date": "DateType",
    "timestamp": "TimestampType",
    "timestamp_ntz": "TimestampNTZType",
}


def to_spark(type: DataType) -> spark_types.DataType:
    """Return the same type of pyspark."""
    from pyspark.sql import types as spark

    if type.name == "decimal":
        return spark.DecimalType(type.precision, type.scale)
    if type.name == "array":
        assert type.element is not None
        return spark.ArrayType(to_spark(type.element), True)
    if type.name == "map":
        assert type.key is not None
        assert type.element is not None
        return spark.MapType(to_spark(type.key), to_spark(type.element), True)
    if type.name == "struct":
        return spark.StructType([spark.StructField(name, to_spark(each), True) for name, each in type.fields])
    made: spark_types.DataType = getattr(spark, _SPARK_CLASSES[type.name])()
    return made


def from_spark(type: spark_types.DataType) -> DataType:
    """Return the type of a pyspark type.

    >>> from pyspark.sql.types import ArrayType, LongType
    >>> from_spark(ArrayType(LongType()))
    DataType('array<bigint>')
    """
    return parse_type(type.simpleString())
