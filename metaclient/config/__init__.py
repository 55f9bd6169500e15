"""The settings of a connection: one frozen value, read from HBase's properties, from site files or from keywords."""

from metaclient.config.fields import Config, fields_given, property_names
from metaclient.config.hbase_names import checked_properties
from metaclient.config.rules import MetaMode

__all__ = ["Config", "MetaMode", "checked_properties", "fields_given", "property_names"]
