"""IN and EXISTS are semi and anti joins; NOT IN follows SQL's rules for NULL; other subqueries are refused."""

from __future__ import annotations

import pytest

from tests.support.bind_tables import bind, cases, refusal
from tests.support.relation_text import tree_text
from viewkeeper.errors import UnsupportedSql

TREES = r"""
SELECT x FROM a WHERE k IN (SELECT x FROM b)
π x@1 as x
  ⋈ semi on (k@0) = (x@1)
    a
    b

SELECT x FROM a WHERE k IN (SELECT x FROM b WHERE b.z = a.y AND b.k > a.x AND b.z > 3) AND y > 3
π x@1 as x
  ⋈ semi on (y@2, k@0) = (z@2, x@1) if k@4 > x@1
    σ y@2 > 3
      a
    σ z@2 > 3
      b

SELECT x FROM a WHERE (x, y) IN (SELECT x, z FROM b) AND NOT ((k) NOT IN (SELECT k FROM c))
π x@1 as x
  ⋈ semi on (k@0) = (k@0)
    ⋈ semi on (x@1, y@2) = (x@1, z@2)
      a
      b
    c

SELECT x FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.k = a.k AND b.x = 3) AND NOT EXISTS (SELECT * FROM c)
π x@1 as x
  ⋈ anti on () = ()
    ⋈ semi on (k@0) = (k@0)
      a
      σ x@1 = 3
        b
    c

SELECT x FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.x = a.x ORDER BY z LIMIT 1)
π x@1 as x
  ⋈ semi on (x@1) = (x@1)
    a
    b

SELECT x FROM a WHERE k NOT IN (SELECT k FROM b WHERE b.z > a.y)
π x@1 as x
  ⋈ anti on (k@0) = (k@0) if z@6 > y@2
    a
    b

SELECT x FROM a WHERE y NOT IN (SELECT x FROM b)
π x@1 as x
  σ is_empty@4 or ((not (y@2 is null)) and (not has_null@5))
    ⋈ left on () = ()
      ⋈ anti on (y@2) = (x@1)
        a
        b
      π [count(*)] = 0l as is_empty, [count(*)] > [count(x)] as has_null
        γ by () of (count(*), count(x))
          b

SELECT x FROM a WHERE k NOT IN (SELECT x FROM b WHERE b.z = a.y)
π x@1 as x
  σ (has_null@5 is null) or (not has_null@5)
    ⋈ left on (y@2) = (z@0)
      ⋈ anti on (y@2, k@0) = (z@2, x@1)
        a
        b
      π [z] as z, [count(*)] > [count(x)] as has_null
        γ by (z@2) of (count(*), count(x))
          b

SELECT x FROM a WHERE x IN (SELECT MAX(x) FROM b)
π x@1 as x
  ⋈ semi on (x@1) = (max(x)@0)
    a
    π [max(x)] as max(x)
      γ by () of (max(x))
        b

SELECT x FROM a WHERE x IN (SELECT DISTINCT x FROM b WHERE b.k = a.k)
π x@1 as x
  ⋈ semi on (k@0, x@1) = (k@0, x@1)
    a
    b

SELECT x FROM a WHERE x IN (SELECT x FROM b UNION SELECT k FROM c)
π x@1 as x
  ⋈ semi on (x@1) = (x@0)
    a
    π [x] as x
      γ by (x@0) of ()
        ∪
          π x@1 as x
            b
          π k@0 as k
            c

SELECT x FROM a WHERE x IN ((SELECT x FROM b) ORDER BY x LIMIT 1)
π x@1 as x
  ⋈ semi on (x@1) = (x@0)
    a
    top 1 by x@0
      π x@1 as x
        b

SELECT a.x FROM a JOIN c ON a.k = c.k WHERE w IN (SELECT 'r' FROM b WHERE b.x = c.x AND b.k IN (SELECT k FROM d))
π x@1 as x
  ⋈ semi on (x@5, w@6) = (x@1, 'r')
    σ k@0 = k@4
      ⋈ inner on () = ()
        a
        c
    ⋈ semi on (k@0) = (k@0)
      b
      d
"""

REFUSALS = r"""
SELECT k FROM a WHERE x IN (SELECT x FROM b) OR y = 1
UnsupportedSql: IN over a subquery under OR is not supported
it may stand in WHERE, beside other conditions joined by AND; for OR, UNION two SELECTs that show the key

SELECT CASE WHEN EXISTS (SELECT 1 FROM b) THEN 1 ELSE 2 END AS q FROM a
UnsupportedSql: EXISTS over a subquery in CASE is not supported
it may stand in WHERE, beside other conditions joined by AND; for OR, UNION two SELECTs that show the key

SELECT IF(x IN (SELECT x FROM b), 1, 2) AS q FROM a
UnsupportedSql: IN over a subquery in IF is not supported
it may stand in WHERE, beside other conditions joined by AND; for OR, UNION two SELECTs that show the key

SELECT k FROM a WHERE NOT (y = 1 AND EXISTS (SELECT 1 FROM b))
UnsupportedSql: EXISTS over a subquery under NOT is not supported
it may stand in WHERE, beside other conditions joined by AND; for OR, UNION two SELECTs that show the key

SELECT k FROM a WHERE (x IN (SELECT x FROM b)) IS TRUE
UnsupportedSql: IN over a subquery inside of an expression in WHERE is not supported
it may stand in WHERE, beside other conditions joined by AND; for OR, UNION two SELECTs that show the key

SELECT x, COUNT(*) AS n FROM a GROUP BY x HAVING COUNT(*) IN (SELECT x FROM b)
UnsupportedSql: IN over a subquery in HAVING is not supported
it may stand in WHERE, beside other conditions joined by AND; for OR, UNION two SELECTs that show the key

SELECT a.k FROM a JOIN b ON a.k = b.k AND a.x IN (SELECT x FROM c)
UnsupportedSql: IN over a subquery in ON is not supported
it may stand in WHERE, beside other conditions joined by AND; for OR, UNION two SELECTs that show the key

SELECT (SELECT MAX(x) FROM b) AS m FROM a
UnsupportedSql: a subquery as a value (in the select list) is not supported
LEFT JOIN a subquery of FROM, where a COUNT of nothing is NULL; without groups join on a constant: 1 AS one

SELECT k FROM a WHERE x = (SELECT MAX(x) FROM b)
UnsupportedSql: a subquery as a value (inside of an expression in WHERE) is not supported
write IN (SELECT …), or join with a subquery in FROM

SELECT k FROM a WHERE x = ANY (SELECT x FROM b)
UnsupportedSql: ANY over a subquery is not supported
= ANY is IN, and <> ALL is NOT IN; for > ANY join with a subquery that gives the MIN, for > ALL the MAX

SELECT k FROM a WHERE x > ALL (SELECT x FROM b)
UnsupportedSql: ALL over a subquery is not supported
= ANY is IN, and <> ALL is NOT IN; for > ANY join with a subquery that gives the MIN, for > ALL the MAX

SELECT k FROM a WHERE x IN (SELECT x, k FROM b)
SqlError: IN compares 1 values with 2 columns
write (a, b) IN (SELECT c, d …)

SELECT k FROM a WHERE (x, y) IN (SELECT x FROM b)
SqlError: IN compares 2 values with 1 columns
write (a, b) IN (SELECT c, d …)

SELECT k FROM a WHERE x IN (SELECT MAX(x) FROM b WHERE b.k = a.k)
UnsupportedSql: a.k belongs to the query around the subquery, which has an aggregate
a subquery may name it in its own WHERE, not deeper, and not below GROUP BY, LIMIT or a set operation

SELECT k FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.k = a.k GROUP BY x)
UnsupportedSql: a.k belongs to the query around the subquery, which has GROUP BY
a subquery may name it in its own WHERE, not deeper, and not below GROUP BY, LIMIT or a set operation

SELECT k FROM a WHERE x IN (SELECT x FROM b WHERE b.k = a.k ORDER BY z LIMIT 1)
UnsupportedSql: a.k belongs to the query around the subquery, which has LIMIT
a subquery may name it in its own WHERE, not deeper, and not below GROUP BY, LIMIT or a set operation

SELECT k FROM a WHERE EXISTS (SELECT a.x FROM b)
UnsupportedSql: a.x belongs to the query around the subquery
a subquery may name it in its own WHERE, not deeper, and not below GROUP BY, LIMIT or a set operation

SELECT k FROM a WHERE EXISTS (SELECT 1 FROM (SELECT x FROM b WHERE b.k = a.k) t)
UnsupportedSql: a.k belongs to the query around the subquery
a subquery may name it in its own WHERE, not deeper, and not below GROUP BY, LIMIT or a set operation

SELECT k FROM a WHERE EXISTS (SELECT 1 FROM b JOIN c ON b.k = c.k AND b.x = a.x)
UnsupportedSql: a.x belongs to the query around the subquery
a subquery may name it in its own WHERE, not deeper, and not below GROUP BY, LIMIT or a set operation

SELECT k FROM a WHERE EXISTS (SELECT 1 FROM b WHERE EXISTS (SELECT 1 FROM c WHERE c.k = a.k AND c.x = b.x))
UnsupportedSql: a.k belongs to the query around the subquery
a subquery may name it in its own WHERE, not deeper, and not below GROUP BY, LIMIT or a set operation

SELECT k FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.z > a.y)
UnsupportedSql: the subquery of EXISTS is tied to the query around without an equality
it needs a condition like b.y = a.x in its WHERE

SELECT k FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.x = a.x AND b.z / a.y > 1)
UnsupportedSql: the condition (z / y) > 1 of the subquery of EXISTS may fail
compute what may fail in a subquery of FROM on each side, and compare the results

SELECT k FROM a WHERE EXISTS (SELECT nope FROM b WHERE b.x = a.x)
UnknownName: table b has no column nope
its columns are k, x, z

SELECT k FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.x = a.nope)
UnknownName: table a has no column nope
its columns are k, x, y, s

SELECT k FROM a WHERE (x, y) NOT IN (SELECT x, z FROM b)
UnsupportedSql: NOT IN of several columns that may be NULL is not supported
use NOT EXISTS

SELECT k FROM a WHERE x NOT IN (SELECT x FROM b WHERE b.z > a.y)
UnsupportedSql: NOT IN tied by more than equalities is not supported
use NOT EXISTS

SELECT k FROM a WHERE s IN (SELECT x FROM b)
TypeMismatch: the comparison = mixes STRING and INT
CAST one side to the other's type

SELECT k FROM a WHERE x IN (SELECT x FROM b LIMIT 2)
UnsupportedSql: LIMIT without ORDER BY is not deterministic
say with ORDER BY which rows come first
"""


@pytest.mark.parametrize(("query", "tree"), cases(TREES))
def test_the_tree_of_subqueries(query: str, tree: str) -> None:
    assert tree_text(bind(query)) == tree


@pytest.mark.parametrize(("query", "message"), cases(REFUSALS))
def test_what_is_refused_of_subqueries(query: str, message: str) -> None:
    assert refusal(query) == message


def test_a_long_chain_of_conditions_is_refused_and_not_a_recursion_error() -> None:
    with pytest.raises(UnsupportedSql, match="more than 100 conditions are joined by AND"):
        bind(f"SELECT k FROM a WHERE {' AND '.join(['x > 1'] * 1000)} AND EXISTS (SELECT 1 FROM b)")
    with pytest.raises(UnsupportedSql, match="deep"):
        bind(f"SELECT k FROM a WHERE {' AND '.join(['x > 1'] * 1000)}")
    with pytest.raises(UnsupportedSql, match="WHERE has more than 50 subqueries"):
        bind(f"SELECT k FROM a WHERE {' AND '.join(['EXISTS (SELECT 1 FROM b)'] * 51)}")
