"""HBase's filters and the language that describes them (org.apache.hadoop.hbase.filter)."""

from adapters.fake.storage.filters.filter import Code, Filter
from adapters.fake.storage.filters.filtered_row import filtered_row
from adapters.fake.storage.filters.parser import FILTERS, parse
from metaclient.filter_language import FilterSyntaxError

__all__ = ["FILTERS", "Code", "Filter", "FilterSyntaxError", "filtered_row", "parse"]
