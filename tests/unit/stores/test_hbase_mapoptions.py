"""What the options of CREATE TABLE … USING hbase mean, and what is refused before HBase is asked to write anything."""

from __future__ import annotations

import pytest

from viewkeeper.errors import DuplicateName, InputError, UnknownName, UnsupportedSql
from viewkeeper.model.schema import Cell, Foreign, TableId, TableSchema
from viewkeeper.sql.statement_parser import parse_statements
from viewkeeper.stores.hbase.mapping import foreign_of_options, named_table

COLUMNS = "(id STRING PRIMARY KEY, amount BIGINT, day DATE)"


def mapped(clause: str, families: tuple[str, ...] = ("d",), columns: str = COLUMNS) -> Foreign:
    (statement,) = parse_statements(f"CREATE TABLE orders {columns} {clause}")
    schema = TableSchema(TableId(1), "orders", statement.columns, statement.key, TableId(2))
    options = dict(statement.options)
    return foreign_of_options(schema, named_table(schema, statement.using, options), options, families)


def test_without_options_columns_are_text_under_their_own_names_in_the_one_family() -> None:
    assert mapped("USING hbase OPTIONS (table 'shop:orders')") == Foreign(
        "shop:orders", (Cell("d", "amount", "text"), Cell("d", "day", "text")), "text"
    )


def test_options_of_a_column_come_before_those_of_the_table() -> None:
    clause = "USING hbase OPTIONS (table 'o', family 'e', encoding 'bytes', AMOUNT.CELL 'd:amt', day.encoding 'text')"

    assert mapped(clause, ("d", "e")) == Foreign("o", (Cell("d", "amt", "bytes"), Cell("e", "day", "text")), "bytes")


def test_a_table_is_named_as_the_log_names_it() -> None:
    assert mapped("USING hbase OPTIONS (table 'default:orders')").table == "orders"


@pytest.mark.parametrize(
    ("clause", "error", "text"),
    [
        ("", UnsupportedSql, "orders has no table in HBase; write USING hbase OPTIONS"),
        ("USING cassandra OPTIONS (table 'o')", UnsupportedSql, "USING cassandra is not for a store in HBase"),
        ("USING hbase", InputError, "names no table of HBase"),
        ("USING hbase OPTIONS (family 'd')", InputError, "names no table of HBase"),
        ("USING hbase OPTIONS (table '')", InputError, "names no table of HBase"),
        ("USING hbase OPTIONS (table 'o', famly 'd')", InputError, "no option famly; did you mean family"),
        ("USING hbase OPTIONS (table 'o', amount.cel 'd:a')", InputError, "no option amount.cel; did you mean cell"),
        ("USING hbase OPTIONS (table 'o', total.cell 'd:a')", UnknownName, "orders has no column total"),
        ("USING hbase OPTIONS (table 'o', id.cell 'd:a')", InputError, "the key is the row key of HBase"),
        ("USING hbase OPTIONS (table 'o', amount.cell 'amt')", InputError, "write 'family:qualifier'"),
        ("USING hbase OPTIONS (table 'o', amount.cell 'd:')", InputError, "write 'family:qualifier'"),
        (
            "USING hbase OPTIONS (table 'o', amount.cell 'x:a')",
            UnknownName,
            "o has no family x; table o has the families d",
        ),
        ("USING hbase OPTIONS (table 'o', family 'x')", UnknownName, "table o has no family x"),
        ("USING hbase OPTIONS (table 'o', encoding 'avro')", InputError, "no encoding 'avro'; use 'text' or 'bytes'"),
        ("USING hbase OPTIONS (table 'o', amount.encoding 'x')", InputError, "no encoding 'x'"),
        (
            "USING hbase OPTIONS (table 'o', encoding 'bytes')",
            InputError,
            "column day: a DATE has no encoding as bytes; add day.encoding 'text'",
        ),
        (
            "USING hbase OPTIONS (table 'o', amount.cell 'd:day')",
            DuplicateName,
            "amount and day are both in the cell d:day",
        ),
    ],
)
def test_what_does_not_fit_is_refused(clause: str, error: type[InputError], text: str) -> None:
    with pytest.raises(error, match=text):
        mapped(clause)


def test_which_family_is_meant_must_be_said_where_there_are_several() -> None:
    with pytest.raises(InputError, match="o has the families d, e, and nothing says which has column day"):
        mapped("USING hbase OPTIONS (table 'o', amount.cell 'd:a')", ("d", "e"))


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ("(a STRING, b STRING, c INT, PRIMARY KEY (a, b))", "the key of orders has 2 columns.*make it one column"),
        ("(a STRING PRIMARY KEY)", "no column but its key"),
    ],
)
def test_a_row_is_one_key_and_at_least_one_cell(columns: str, text: str) -> None:
    with pytest.raises(UnsupportedSql, match=text):
        mapped("USING hbase OPTIONS (table 'o')", columns=columns)
