"""The command line under test: called in this process, on a small shop."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from viewkeeper.cli.main import app

Run = Callable[..., Result]

SHOP = """
CREATE TABLE orders (id STRING PRIMARY KEY, region STRING, amount BIGINT);
CREATE MATERIALIZED VIEW revenue AS
    SELECT region, COUNT(*) AS n, SUM(amount) AS total FROM orders GROUP BY region;
INSERT INTO orders VALUES ('o1', 'eu', 30), ('o2', 'us', -5), ('o3', NULL, 7)
"""


@pytest.fixture
def run() -> Run:
    """`viewkeeper …`, with the input if one is given; an error that is not told in a line fails the test."""

    def invoke(*arguments: str, input: str = "") -> Result:
        return CliRunner().invoke(app, list(arguments), input=input, catch_exceptions=False, prog_name="viewkeeper")

    return invoke


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A store that does not exist yet."""
    return f"embedded:{tmp_path}/shop"


@pytest.fixture
def shop(run: Run, url: str) -> str:
    """A store with a table of three rows and a view that is not filled."""
    assert run("sql", url, SHOP).exit_code == 0
    return url


@pytest.fixture
def fresh_shop(shop: str) -> str:
    """The shop with its view filled, without a JVM."""
    from tests.support.running import keep_up
    from viewkeeper.client.database import connect

    keep_up(connect(shop))
    return shop
