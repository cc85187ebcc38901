"""What golden tests share: the tables they refer to. `GOLDEN=write` records the files anew."""

from __future__ import annotations

import os

import pytest

from viewkeeper.catalog.catalog import Catalog
from viewkeeper.model.schema import TableId, TableSchema
from viewkeeper.model.syntax import CreateTable
from viewkeeper.sql.statement_parser import parse_statements

TABLES = """
CREATE TABLE orders (
  id BIGINT PRIMARY KEY, region STRING, amount INT, price DECIMAL(10,2), huge DECIMAL(38,10), weight DOUBLE,
  paid BOOLEAN, day DATE);
CREATE TABLE users (id BIGINT PRIMARY KEY, name STRING);
CREATE TABLE shops (id BIGINT PRIMARY KEY, region STRING, name STRING);
CREATE TABLE items (order_id BIGINT, line INT, product STRING, pieces INT, PRIMARY KEY (order_id, line));
CREATE TABLE payments (order_id BIGINT PRIMARY KEY, method STRING, paid_on DATE);
CREATE TABLE archive (id BIGINT PRIMARY KEY, region STRING, amount INT)
"""


@pytest.fixture(scope="session")
def catalog() -> Catalog:
    catalog = Catalog()
    for statement in parse_statements(TABLES):
        assert isinstance(statement, CreateTable)
        schema = TableSchema(TableId(catalog.next_id), statement.name, statement.columns, statement.key)
        catalog = catalog.with_table(schema)
    return catalog


@pytest.fixture(scope="session")
def recording() -> bool:
    return os.environ.get("GOLDEN") == "write"
