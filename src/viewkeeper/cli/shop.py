"""The demo's shop: a table, views over it, and changes.

In: nothing. Out: SQL and rows. Always: the same rows every time; the demo follows a few of them, and the rest are
many enough to give Spark work.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal

MANY = 30_000

TABLE = """CREATE TABLE orders (
    id STRING PRIMARY KEY, customer STRING, region STRING, amount DECIMAL(10,2), day DATE
)"""

FEW_ROWS = """INSERT INTO orders VALUES
    ('o1', 'ada',  'eu',      120.00, DATE '2026-01-05'),
    ('o2', 'bo',   'eu',       35.50, DATE '2026-01-06'),
    ('o3', 'chen', 'us',      250.00, DATE '2026-01-06'),
    ('o4', 'ada',  'us',       80.25, DATE '2026-01-07'),
    ('o5', 'dara', 'oceania',  99.99, DATE '2026-01-08')"""

VIEWS = (
    """CREATE MATERIALIZED VIEW revenue AS
    SELECT region, COUNT(*) AS n, SUM(amount) AS total, AVG(amount) AS mean FROM orders GROUP BY region""",
    """CREATE MATERIALIZED VIEW big AS
    SELECT id, customer, amount FROM orders WHERE amount >= 100""",
    "CREATE INDEX by_customer ON orders (customer)",
    """CREATE MATERIALIZED VIEW everything AS
    SELECT COUNT(*) AS n, SUM(amount) AS total FROM orders""",
)

CHANGES = (
    ("an order becomes big", "UPDATE orders SET amount = 180.50 WHERE id = 'o2'"),
    ("an order moves from us to eu", "UPDATE orders SET region = 'eu' WHERE id = 'o4'"),
    ("the only order from oceania is deleted", "DELETE FROM orders WHERE id = 'o5'"),
    ("ada orders again", "INSERT INTO orders VALUES ('o6', 'ada', 'us', 15.00, DATE '2026-01-09')"),
)

# What is shown of each view: its name, and a prefix of its key.
SHOWN: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("revenue", ()),
    ("big", ()),
    ("by_customer", ("ada",)),
    ("everything", ()),
)


def many_rows() -> Iterator[dict[str, object]]:
    """Small orders of a thousand customers in three regions."""
    first_day = dt.date(2026, 1, 1)
    for number in range(MANY):
        yield {
            "id": f"s{number:05}",
            "customer": f"c{number % 1_000:03}",
            "region": ("asia", "eu", "us")[number % 3],
            "amount": Decimal(number * 7_919 % 9_900) / 100,
            "day": first_day + dt.timedelta(days=number % 90),
        }
