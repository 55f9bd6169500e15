"""HBase's filters and the language that describes them (org.apache.hadoop.hbase.filter)."""

from metaclient.wire.filter_language import FilterSyntaxError
from metaclient_fake.storage.filters.filter import Code, Filter
from metaclient_fake.storage.filters.filtered_row import FamilyCells, RowFiltering, filtered_row
from metaclient_fake.storage.filters.parser import FILTERS, parse

__all__ = ["FILTERS", "Code", "FamilyCells", "Filter", "FilterSyntaxError", "RowFiltering", "filtered_row", "parse"]
