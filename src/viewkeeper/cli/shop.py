"""The demo's shop: its tables, its views, and two rounds of changes.

In: nothing. Out: SQL. Always: small enough to check by hand.
"""

from __future__ import annotations

TABLES = (
    """CREATE TABLE orders (
    id STRING PRIMARY KEY, customer STRING, region STRING, amount DECIMAL(10,2), day DATE
)""",
)

VIEWS = (
    """CREATE MATERIALIZED VIEW revenue AS
    SELECT region, COUNT(*) AS n, SUM(amount) AS total, AVG(amount) AS mean FROM orders GROUP BY region""",
    """CREATE MATERIALIZED VIEW big AS
    SELECT id, customer, amount FROM orders WHERE amount >= 100""",
    "CREATE INDEX by_customer ON orders (customer)",
    """CREATE MATERIALIZED VIEW everything AS
    SELECT COUNT(*) AS n, SUM(amount) AS total FROM orders""",
)

FIRST_ROWS = (
    """INSERT INTO orders VALUES
    ('o1', 'ada',   'eu', 120.00, DATE '2026-01-05'),
    ('o2', 'bo',    'eu',  35.50, DATE '2026-01-06'),
    ('o3', 'chen',  'us', 250.00, DATE '2026-01-06'),
    ('o4', 'ada',   'us',  80.25, DATE '2026-01-07'),
    ('o5', 'dara',  'asia', 99.99, DATE '2026-01-08')""",
)

CHANGES = (
    ("an order becomes big", "UPDATE orders SET amount = 180.50 WHERE id = 'o2'"),
    ("an order moves from us to eu", "UPDATE orders SET region = 'eu' WHERE id = 'o4'"),
    ("the last order of asia is deleted", "DELETE FROM orders WHERE id = 'o5'"),
    ("a new order comes in", "INSERT INTO orders VALUES ('o6', 'bo', 'us', 15.00, DATE '2026-01-09')"),
)

NAMES = ("revenue", "big", "by_customer", "everything")
