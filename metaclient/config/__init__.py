"""The settings: one frozen value, read from HBase's properties, from site files or from keywords."""

from metaclient.config.fields import Config, MetaMode, checked_properties, fields_given, property_names

__all__ = ["Config", "MetaMode", "checked_properties", "fields_given", "property_names"]
