"""Texts of HBase's filter language, good and bad: every filter, every kind of argument, every operator.

``tests/spec/data/filters-2.6.1.json`` has the answer of a real HBase to each of them (``metaclient`` by Thrift 2: the
gateway parses). ``DIFFERENCES`` are those that stand in docs/known-differences.md.
"""

from __future__ import annotations

from metaclient.model import Cell, Put

#: The families of the table, and what is in it: several versions, empty and binary names and values.
FAMILIES = {"a": {"max_versions": 3}, "b": {"max_versions": 1}}
ROWS = (
    Put(b"r1", (Cell(b"a:p", 1, b"1"), Cell(b"a:p", 2, b"2"), Cell(b"a:q", 2, b"Text"), Cell(b"b:p", 3, b"x"))),
    Put(b"r2", (Cell(b"a:", 1, b""), Cell(b"a:p", 3, b"text"), Cell(b"a:pq", 2, b"10"), Cell(b"b:", 2, b"1"))),
    Put(b"r3", (Cell(b"b:it's", 4, b"it's"), Cell(b"b:p", 4, b"\xff\x00"))),
    Put(b"s(1)", (Cell(b"a:p:q", 5, b"a,b"), Cell(b"a:q", 5, "\u00e4Z".encode()))),
)

_OPERATORS = ("<", "<=", "=", "!=", ">=", ">")
_COMPARATORS = (
    "binary:2",
    "binary:",
    "binaryprefix:te",
    "regexstring:^t.*t$",
    "regexstringnocase:^T.*T$",
    "substring:EX",
)
_COMPARED = ("RowFilter", "FamilyFilter", "QualifierFilter", "ValueFilter")
_COLUMN = "'a', 'p'"


def _compared() -> list[str]:
    """Every filter that compares, with every operator and comparator."""
    pairs = [f"{operator}, '{comparator}'" for operator in _OPERATORS for comparator in _COMPARATORS]
    return (
        [
            text
            for pair in pairs
            for text in (
                f"ValueFilter({pair})",
                f"SingleColumnValueFilter({_COLUMN}, {pair})",
                f"ColumnValueFilter({_COLUMN}, {pair})",
                f"DependentColumnFilter({_COLUMN}, false, {pair})",
            )
        ]
        + [
            f"{name}({operator}, 'binary:{value}')"
            for name, value in (("RowFilter", "r2"), ("FamilyFilter", "a"), ("QualifierFilter", "p"))
            for operator in _OPERATORS
        ]
        + [
            f"{name}({arguments})"
            for name in _COMPARED
            for arguments in (
                "",
                "=",
                "'='",
                "'=', 'binary:p'",
                "<, 'substring:p'",
                "=, 'binary'",
                "=, 'binary:p', true",
            )
        ]
    )


#: What may stand in the place of one argument.
_ARGUMENTS = (
    "",
    "''",
    "'p'",
    "p",
    "'it''s'",
    "''''",
    "'p",
    "0",
    "1",
    "-1",
    "-0",
    "+1",
    "'1'",
    "007",
    "1.0",
    "0x1",
    "1e3",
    "2147483647",
    "2147483648",
    "4294967297",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
    "true",
    "TRUE",
    "fAlse",
    "'true'",
    "yes",
    "'p', 'p'",
    "'p', 'q'",
    "1, 2",
    "2, 1, 2",
    "1, 'p'",
    "=",
)
_ONE_ARGUMENT = (
    "KeyOnlyFilter",
    "FirstKeyOnlyFilter",
    "PrefixFilter",
    "ColumnPrefixFilter",
    "MultipleColumnPrefixFilter",
    "ColumnCountGetFilter",
    "PageFilter",
    "ColumnPaginationFilter",
    "InclusiveStopFilter",
    "TimestampsFilter",
)

_SPECIAL = [
    # values in the right place, and what is beside them
    *(f"PrefixFilter('{row}')" for row in ("r", "r2", "r22", "s(", "s(1)", "z")),
    *(f"InclusiveStopFilter('{row}')" for row in ("r2", "r2x", "a", "z")),
    "QualifierFilter(=, 'binary:it''s')",
    "QualifierFilter(=, 'binary:p:q')",
    "ValueFilter(=, 'binary:a,b')",
    "RowFilter(=, 'binary:s(1)')",
    "RowFilter(=, 'substring:S(1')",
    "RowFilter(=, 'regexstring:\\(')",
    "RowFilter(=, 'regexstring:(')",
    "RowFilter(=, 'regexstring:[')",
    "ValueFilter(=, 'regexstring:\\w\\w')",
    "ValueFilter(=, 'regexstringnocase:\u00c4z')",
    "ValueFilter(=, 'substring:\u00c4')",
    "ColumnPaginationFilter(1, 0)",
    "ColumnPaginationFilter(0, 0)",
    "ColumnPaginationFilter(2, 1)",
    "ColumnPaginationFilter(1, -1)",
    "ColumnPaginationFilter(1, 2147483647)",
    "ColumnPaginationFilter(1)",
    "ColumnPaginationFilter(1, 2, 3)",
    "ColumnRangeFilter('', true, '', true)",
    "ColumnRangeFilter('', false, 'p', false)",
    "ColumnRangeFilter('p', false, '', true)",
    "ColumnRangeFilter('p', true, 'q', true)",
    "ColumnRangeFilter('q', true, 'p', true)",
    "ColumnRangeFilter('p', 1, 'q', true)",
    "ColumnRangeFilter('p', 'true', 'q', true)",
    "ColumnRangeFilter(p, true, 'q', true)",
    "ColumnRangeFilter('p', true, 'q')",
    "SingleColumnValueFilter('a', 'p', =, 'binary:2', true, true)",
    "SingleColumnValueFilter('a', 'p', =, 'binary:1', true, false)",
    "SingleColumnValueFilter('a', 'p', =, 'binary:1', false, true)",
    "SingleColumnValueFilter('a', 'p', =, 'binary:2', true)",
    "SingleColumnValueFilter('a', 'p', =, 'binary:2', true, maybe)",
    "SingleColumnValueFilter('a', 'p', '=', 'binary:2')",
    "SingleColumnValueFilter('a', p, =, 'binary:2')",
    "SingleColumnValueFilter('a:p', 'q', =, 'binary:a,b', true, true)",
    "SingleColumnValueFilter('a', 'p:q', =, 'binary:a,b', true, true)",
    "SingleColumnValueFilter('nope', 'p', =, 'binary:2', true, true)",
    "SingleColumnValueFilter('', '', =, 'binary:2')",
    "SingleColumnValueExcludeFilter('a', 'p', =, 'binary:2')",
    "SingleColumnValueExcludeFilter('a', 'p', =, 'binary:2', true, true)",
    "SingleColumnValueExcludeFilter('a', 'p', <, 'substring:2')",
    "ColumnValueFilter('a:p', 'q', =, 'binary:a,b')",
    "ColumnValueFilter('a', 'p:q', =, 'binary:a,b')",
    "ColumnValueFilter('a', 'p', =, 'binary:1', true)",
    "DependentColumnFilter('a', 'p')",
    "DependentColumnFilter('a', 'p', true)",
    "DependentColumnFilter('a', 'p', TRUE, =, 'binary:2')",
    "DependentColumnFilter('a', 'p', true, =)",
    "DependentColumnFilter('a:p', 'q')",
    "DependentColumnFilter('a')",
    # comparisons that are none
    "RowFilter(=, 'r2')",
    "RowFilter(=, 'Binary:r2')",
    "RowFilter(=, 'null:r2')",
    "RowFilter(=, binary:r2)",
    "RowFilter(==, 'binary:r2')",
    "RowFilter(=>, 'binary:r2')",
    "RowFilter(<>, 'binary:r2')",
    "RowFilter(<, 'substring:r2')",
    "RowFilter(>=, 'regexstring:r2')",
    "RowFilter(>=, 'regexstringnocase:r2')",
    "RowFilter('=', 'binary:r2')",
    "RowFilter('binary:r2', =)",
    "RowFilter(=)",
    "RowFilter(='binary:r2')",
    "RowFilter(=,'binary:r2')",
    "RowFilter(= 'binary:r2')",
    # separators and spaces
    "PrefixFilter( 'r2' )",
    "PrefixFilter ('r2')",
    "PrefixFilter  ('r2')",
    "PrefixFilter\t('r2')",
    "PrefixFilter(\t'r2')",
    "PageFilter(1\t)",
    "PrefixFilter(\n'r2')",
    "PrefixFilter('r2')\n",
    " \t PrefixFilter('r2') \t ",
    "MultipleColumnPrefixFilter('p' 'q')",
    "MultipleColumnPrefixFilter('p','q')",
    "MultipleColumnPrefixFilter('p',,'q')",
    "MultipleColumnPrefixFilter(,'p')",
    "MultipleColumnPrefixFilter('p',)",
    "MultipleColumnPrefixFilter('p''q')",
    "MultipleColumnPrefixFilter('p', '')",
    # quotes
    "QualifierFilter(=, 'binary:it's')",
    'PrefixFilter("r2")',
    "PrefixFilter('''')",
    "PrefixFilter(''')",
    "PrefixFilter('')",
    "ValueFilter(=, 'substring:)')",
    "ValueFilter(=, 'substring:''')",
    "ValueFilter(=, 'substring:'')",
    "QualifierFilter(=, 'binary:it''s') OR PrefixFilter('s')",
    # names
    "",
    " ",
    "()",
    "PrefixFilter",
    "PrefixFilter(",
    "prefixfilter('r2')",
    "PREFIXFILTER('r2')",
    "NoSuchFilter()",
    "FuzzyRowFilter('r')",
    "org.apache.hadoop.hbase.filter.PrefixFilter('r2')",
    "1PrefixFilter('r2')",
    "FilterList(PrefixFilter('r2'))",
    "SkipFilter(PrefixFilter('r2'))",
    # operators
    "PrefixFilter('r') AND PageFilter(1)",
    "PrefixFilter('r')AND PageFilter(1)",
    "PrefixFilter('r') AND(PageFilter(1))",
    "PrefixFilter('r') ANDPageFilter(1)",
    "PrefixFilter('r')\tAND PageFilter(1)",
    "PrefixFilter('r') AND\tPageFilter(1)",
    "PrefixFilter('r') and PageFilter(1)",
    "PrefixFilter('r') && PageFilter(1)",
    "PrefixFilter('r') PageFilter(1)",
    "PrefixFilter('r'), PageFilter(1)",
    "PrefixFilter('r') AND",
    "PrefixFilter('r') AND ",
    "PrefixFilter('r') OR ",
    "AND PrefixFilter('r')",
    "PrefixFilter('r') AND AND PageFilter(1)",
    "PrefixFilter('r1') OR PrefixFilter('r2') OR PrefixFilter('s')",
    "PrefixFilter('r1') OR PrefixFilter('r2') AND QualifierFilter(=, 'binary:p')",
    "QualifierFilter(=, 'binary:p') AND PrefixFilter('r2') OR PrefixFilter('r1')",
    "(PrefixFilter('r1') OR PrefixFilter('r2')) AND QualifierFilter(=, 'binary:p')",
    "QualifierFilter(=, 'binary:p') AND (PrefixFilter('r1') OR PrefixFilter('r2'))",
    "PrefixFilter('r1') AND PageFilter(1) OR PrefixFilter('r2') AND QualifierFilter(=, 'binary:p')",
    "((PrefixFilter('r1')))",
    "( PrefixFilter('r1') )",
    "SKIP ValueFilter(!=, 'binary:x')",
    "SKIP(ValueFilter(!=, 'binary:x'))",
    "SKIPValueFilter(!=, 'binary:x')",
    "SKIP\tValueFilter(!=, 'binary:x')",
    "skip ValueFilter(!=, 'binary:x')",
    "SKIP SKIP ValueFilter(!=, 'binary:x')",
    "SKIP WHILE ValueFilter(!=, 'binary:x')",
    "WHILE ValueFilter(!=, 'binary:x')",
    "WHILE RowFilter(!=, 'binary:r3')",
    "WHILE(RowFilter(!=, 'binary:r3'))",
    "SKIP",
    "SKIP ",
    "WHILE SKIP ",
    "SKIP ValueFilter(!=, 'binary:x') AND PrefixFilter('r')",
    "PrefixFilter('r') AND SKIP ValueFilter(!=, 'binary:x')",
    "PrefixFilter('r') OR SKIP ValueFilter(!=, 'binary:x')",
    "SKIP ValueFilter(!=, 'binary:x') OR PrefixFilter('r1') AND QualifierFilter(=, 'binary:q')",
    "SKIP (ValueFilter(!=, 'binary:x') AND ValueFilter(!=, 'binary:it''s'))",
    "SKIP (QualifierFilter(=, 'binary:p') OR FamilyFilter(=, 'binary:a'))",
    "WHILE (PrefixFilter('r1') OR PrefixFilter('r2'))",
    "(SKIP ValueFilter(!=, 'binary:x'))",
    "(SKIP ValueFilter(!=, 'binary:x') AND PrefixFilter('r'))",
    "(PrefixFilter('r1') AND PageFilter(1) OR PrefixFilter('r2'))",
    "(PrefixFilter('r') AND (SKIP ValueFilter(!=, 'binary:x')))",
    # brackets
    ")",
    "PrefixFilter('r'))",
    "(PrefixFilter('r') AND PageFilter(1)))",
    "PrefixFilter('r') AND PageFilter(1))",
    "PrefixFilter('r') AND ()",
    "( )",
]

#: Text -> why HBase and we read it differently; docs/known-differences.md says the same in its words.
DIFFERENCES = {
    "(PrefixFilter('r') AND SKIP ValueFilter(!=, 'binary:x'))": "operators of two precedences in brackets",
    "(PrefixFilter('r1') OR PrefixFilter('r2') AND QualifierFilter(=, 'binary:p'))": "operators of two precedences",
    "(SKIP WHILE ValueFilter(!=, 'binary:x'))": "operators of two precedences in brackets",
    "(PrefixFilter('r2')": "a bracket that is never closed",
    "() PrefixFilter('r2')": "brackets around nothing",
    "PrefixFilter('r2') ()": "brackets around nothing",
    "PrefixFilter('r') PageFilter(1) AND ": "an operator behind its operands",
    " AND PrefixFilter('r') PageFilter(1)": "an operator before its operands",
    "PrefixFilter('r2'x)": "a character behind a closing quote",
    "MultipleColumnPrefixFilter('p'1)": "a character behind a closing quote",
    "PrefixFilter x ('r2')": "words between a name and its bracket",
    "PageFilter(-)": "a minus sign alone",
    "PageFilter(18446744073709551617)": "a number beyond 64 bits",
}

TEXTS = tuple(
    dict.fromkeys(
        [
            *_compared(),
            *(f"{name}({argument})" for name in _ONE_ARGUMENT for argument in _ARGUMENTS),
            *_SPECIAL,
        ]
    )
)
