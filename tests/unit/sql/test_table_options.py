"""USING … OPTIONS (…) of CREATE TABLE: what is read, what is refused, and the text of it."""

from __future__ import annotations

import pytest

import viewkeeper as vk
from viewkeeper.errors import DuplicateName, SqlError, UnsupportedSql
from viewkeeper.model.schema import Cell, Foreign, TableId, TableSchema
from viewkeeper.model.syntax import CreateTable
from viewkeeper.sql.ddl import using_text
from viewkeeper.sql.statement_parser import parse_statements

COLUMNS = "CREATE TABLE orders (id STRING PRIMARY KEY, amount BIGINT, `order` INT)"


def parsed(clause: str) -> CreateTable:
    (statement,) = parse_statements(f"{COLUMNS} {clause}")
    return statement


def test_options_are_read_as_they_are_written() -> None:
    statement = parsed(
        "USING HBase OPTIONS (table 'shop:orders', family = 'd', Amount.cell 'd:it''s', `order`.encoding 'text')"
    )

    assert statement.using == "hbase"
    assert statement.options == (
        ("table", "shop:orders"),
        ("family", "d"),
        ("Amount.cell", "d:it's"),
        ("order.encoding", "text"),
    )
    assert (parsed("").using, parsed("").options) == (None, ())


@pytest.mark.parametrize(
    ("clause", "error", "text"),
    [
        ("USING", SqlError, "expected the name of a kind of store"),
        ("USING 'hbase'", SqlError, "expected the name of a kind of store"),
        ("USING hbase OPTIONS", SqlError, r"expected \("),
        ("USING hbase OPTIONS ()", SqlError, "expected the name of an option"),
        ("USING hbase OPTIONS (table)", SqlError, "option table has no value"),
        ("USING hbase OPTIONS (table 5)", SqlError, "option table has no value, found 5; write it in quotes"),
        ("USING hbase OPTIONS (a.b.c 'x')", SqlError, "option a.b has no value"),
        ("USING hbase OPTIONS (table 'a' family 'd')", SqlError, r"expected \), found family"),
        ("USING hbase OPTIONS (table 'a', TABLE 'b')", DuplicateName, "OPTIONS gives TABLE twice"),
        ("USING hbase OPTIONS (table 'a') PARTITIONED BY (id)", UnsupportedSql, "PARTITIONED is not supported"),
        ("OPTIONS (table 'a')", UnsupportedSql, "OPTIONS is not supported in CREATE TABLE"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_place(clause: str, error: type[SqlError], text: str) -> None:
    with pytest.raises(error, match=text):
        parsed(clause)


@pytest.mark.parametrize("url", ["memory:", "embedded:{folder}/store?sync=off"])
def test_a_store_that_keeps_rows_itself_maps_none(url: str, tmp_path: object) -> None:
    with vk.connect(url.format(folder=tmp_path)) as db:
        with pytest.raises(UnsupportedSql, match="USING hbase is not for tables of this store; leave it out"):
            db.execute(f"{COLUMNS} USING hbase OPTIONS (table 'orders')")
        assert db.execute("SHOW TABLES").rows == ()


def test_the_text_of_the_clause_means_the_same() -> None:
    made = parsed("")
    cells = (Cell("d", "it's \\ a 'cell'", "bytes"), Cell("e", "order", "text"))
    table = TableSchema(TableId(1), "orders", made.columns, made.key, TableId(2), Foreign("s:o", cells, "text"))
    text = using_text(table, table.foreign)
    options = dict(parsed(text).options)

    assert (options["table"], options["family"]) == ("s:o", "d")
    assert options["amount.cell"] == "d:it's \\ a 'cell'"
    assert options["order.cell"] == "e:order"
    assert options["encoding"] == "bytes"
    assert options["id.encoding"] == options["order.encoding"] == "text"
