"""Joins as they are written: products, and keys and residuals of outer joins; names and types; and what is refused."""

from __future__ import annotations

import pytest

from tests.support.bind_tables import bind, cases, refusal
from tests.support.relation_text import tree_text
from viewkeeper.algebra.relations import Join, Relation, walk_relations
from viewkeeper.errors import UnsupportedSql

TREES = r"""
SELECT a.x, z FROM a JOIN b ON a.x = b.x AND TRUE WHERE y > 3 AND z < y
π x@1 as x, z@6 as z
  σ (y@2 > 3) and (z@6 < y@2)
    σ x@1 = x@5
      ⋈ inner on () = ()
        a
        b

SELECT a.k FROM a, b CROSS JOIN c WHERE a.x = b.x OR c.x > 1
π k@0 as k
  σ (x@1 = x@5) or (x@8 > 1)
    ⋈ inner on () = () = ()
      a
      b
      c

SELECT a.k FROM a JOIN (b JOIN c ON b.x = c.x) ON a.x = c.x
π k@0 as k
  σ x@1 = x@8
    σ x@5 = x@8
      ⋈ inner on () = () = ()
        a
        b
        c

SELECT a.k, b.k AS bk FROM a RIGHT JOIN b ON a.x = b.x AND a.y < b.z AND b.z > 5 WHERE z < 9
π k@0 as k, k@4 as bk
  σ z@6 < 9
    ⋈ right on (x@1) = (x@1) if (y@2 < z@6) and (z@6 > 5)
      a
      b

SELECT a.k FROM a LEFT JOIN (b JOIN c ON b.x = c.x) ON a.x = c.x AND b.z > 1
π k@0 as k
  ⋈ left on (x@1) = (x@4) if z@6 > 1
    a
    σ x@1 = x@4
      ⋈ inner on () = ()
        b
        c

SELECT a.k FROM a SEMI JOIN b USING (k), c WHERE c.x = y
π k@0 as k
  σ x@5 = y@2
    ⋈ inner on () = ()
      ⋈ semi on (k@0) = (k@0)
        a
        b
      c
"""

REFUSALS = r"""
SELECT a.k FROM a LEFT JOIN b ON a.k > b.k
UnsupportedSql: the LEFT JOIN of a with b has no equality between its sides
a join needs a condition like a.x = b.y; else join (SELECT *, 1 AS one FROM t) for both ON a.one = b.one AND …

SELECT a.k FROM a LEFT JOIN b
UnsupportedSql: the LEFT JOIN of a with b has no equality between its sides
a join needs a condition like a.x = b.y; else join (SELECT *, 1 AS one FROM t) for both ON a.one = b.one AND …

SELECT a.k FROM a LEFT JOIN b ON a.k = b.k AND a.y / b.z > 2
UnsupportedSql: the condition (a.y / b.z) > 2 of the LEFT JOIN with b may fail
compute what may fail in a subquery of FROM on each side, and compare the results

SELECT a.k FROM a FULL JOIN b ON a.x = b.x AND 1 / b.z > 2
UnsupportedSql: the condition (1 / b.z) > 2 of the FULL JOIN with b may fail
compute what may fail in a subquery of FROM on each side, and compare the results

SELECT a.k FROM a LEFT ANTI JOIN b ON a.x = b.x AND 1 / a.y > 2
UnsupportedSql: the condition (1 / a.y) > 2 of the ANTI JOIN with b may fail
compute what may fail in a subquery of FROM on each side, and compare the results

SELECT k FROM a NATURAL JOIN b
UnsupportedSql: NATURAL JOIN is not supported
name the columns: JOIN … USING (a, b)

SELECT a.k FROM a OUTER JOIN b ON a.k = b.k
UnsupportedSql: OUTER JOIN is not supported
INNER, LEFT, RIGHT, FULL, CROSS, LEFT SEMI and LEFT ANTI JOIN are

SELECT a.k FROM a ASOF JOIN b ON a.k = b.k
UnsupportedSql: ASOF JOIN is not supported
INNER, LEFT, RIGHT, FULL, CROSS, LEFT SEMI and LEFT ANTI JOIN are

SELECT a.k FROM a RIGHT SEMI JOIN b ON a.k = b.k
UnsupportedSql: RIGHT SEMI JOIN is not supported
INNER, LEFT, RIGHT, FULL, CROSS, LEFT SEMI and LEFT ANTI JOIN are

SELECT x FROM a JOIN b ON a.k = b.k
SqlError: x is ambiguous
write a.x or b.x

SELECT a.k FROM a JOIN b ON a.x = b.x WHERE x > 1
SqlError: x is ambiguous
write a.x or b.x

SELECT a.k FROM a JOIN b USING (x) JOIN c ON c.x = x
SqlError: x is ambiguous
write a.x or c.x

SELECT k FROM a JOIN a ON a.x = a.y
SqlError: a.x is ambiguous
two tables of FROM are called a; give one another name with AS

SELECT * FROM a JOIN b ON a.k = b.k
DuplicateName: two columns of the view are called k
give one another name with AS

SELECT q FROM a JOIN b ON a.k = b.k
UnknownName: no table of FROM has a column q
the columns are a.k, a.x, a.y, a.s, b.k, b.x, b.z

SELECT a.q FROM a JOIN b ON a.k = b.k
UnknownName: table a has no column q
its columns are k, x, y, s

SELECT r.q FROM a JOIN b ON a.k = b.k
UnknownName: unknown table in r.q
FROM names a, b

SELECT z.* FROM a JOIN b ON a.k = b.k
UnsupportedSql: z.* names no table of FROM
FROM names a, b

SELECT b.z FROM a LEFT SEMI JOIN b ON a.k = b.k
UnknownName: unknown table in b.z
the table is called a here

SELECT a.k FROM a JOIN b USING (q)
UnknownName: table a has no column q
its columns are k, x, y, s

SELECT a.k FROM a JOIN b ON a.s = b.x
TypeMismatch: the comparison = mixes STRING and INT
CAST one side to the other's type

SELECT a.k FROM a JOIN b ON a.k + b.k
TypeMismatch: ON needs a BOOLEAN, not INT
write a condition such as x > 0

SELECT a.k FROM a JOIN b ON COUNT(*) = b.k
SqlError: COUNT() cannot stand in ON
aggregates belong in the select list or in HAVING
"""


@pytest.mark.parametrize(("query", "tree"), cases(TREES))
def test_the_tree_of_joins(query: str, tree: str) -> None:
    assert tree_text(bind(query)) == tree


@pytest.mark.parametrize(("query", "message"), cases(REFUSALS))
def test_what_is_refused_of_joins(query: str, message: str) -> None:
    assert refusal(query) == message


def joins(relation: Relation) -> list[Join]:
    return [node for node in walk_relations(relation) if isinstance(node, Join)]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT a.k FROM a JOIN b ON a.y = b.z",
        "SELECT a.k FROM a LEFT JOIN d ON a.y = d.p",
        "SELECT a.k FROM a, b, d WHERE a.y = b.z AND b.z = d.p",
        "SELECT k FROM a WHERE x IN (SELECT p FROM d)",
        "SELECT k FROM a WHERE x NOT IN (SELECT p FROM d)",
    ],
)
def test_keys_have_the_same_types_on_all_sides(query: str) -> None:
    for join in joins(bind(query)):
        types = [[key.type for key in side] for side in join.keys]
        assert all(side == types[0] for side in types)


@pytest.mark.parametrize(
    ("join", "nullable"),
    [
        ("JOIN", [False, False]),
        ("LEFT JOIN", [False, True]),
        ("RIGHT JOIN", [True, False]),
        ("FULL JOIN", [True, True]),
    ],
)
def test_the_columns_of_a_side_that_may_be_absent_are_nullable(join: str, nullable: list[bool]) -> None:
    columns = bind(f"SELECT a.k, b.k AS bk FROM a {join} b ON a.x = b.x").columns
    assert [column.nullable for column in columns] == nullable


def test_the_key_of_using_is_nullable_only_where_both_sides_may_be_absent() -> None:
    for join, nullable in (("JOIN", False), ("LEFT JOIN", False), ("RIGHT JOIN", False), ("FULL JOIN", True)):
        assert bind(f"SELECT k FROM a {join} b USING (k)").columns[0].nullable is nullable


def test_a_long_chain_of_joins_is_refused_and_not_a_recursion_error() -> None:
    with pytest.raises(UnsupportedSql, match="FROM has more than 50 joins"):
        bind(f"SELECT a.k FROM a {' '.join(f'LEFT JOIN b b{n} ON a.k = b{n}.k' for n in range(51))}")
