"""Joins: which conditions become keys, which go into a side, and which stay above; and what is refused."""

from __future__ import annotations

import pytest

from tests.support.bind_tables import bind, cases, refusal
from tests.support.relation_text import tree_text
from viewkeeper.errors import UnsupportedSql
from viewkeeper.sql.relations import Join, Relation, walk_relations

TREES = r"""
SELECT a.x, z FROM a JOIN b ON a.x = b.x WHERE y > 3 AND z < y AND a.s = 'q'
π x@1 as x, z@6 as z
  σ z@6 < y@2
    ⋈ inner on (x@1) = (x@1)
      σ (y@2 > 3) and (s@3 = 'q')
        a
      b

SELECT a.k FROM a, b WHERE a.x / a.y > 2 AND b.z > 1 AND a.x = b.x
π k@0 as k
  σ (x@1 / y@2) > 2
    ⋈ inner on (x@1) = (x@1)
      a
      σ z@2 > 1
        b

SELECT a.k FROM a, b WHERE (a.x = b.x AND a.s = 'q' AND y > 1 + 1) OR (y < 2 AND a.x = b.x AND a.s = 'q' AND z > 2)
π k@0 as k
  σ (((x@1 = x@5) and (s@3 = 'q')) and (y@2 > (1 + 1))) or ((((y@2 < 2) and (x@1 = x@5)) and (s@3 = 'q')) and (z@6 > 2))
    ⋈ inner on (x@1) = (x@1)
      σ s@3 = 'q'
        a
      b

SELECT a.k FROM a, b WHERE a.x = b.x AND ((a.y = b.z AND a.x / a.y > 1) OR (a.y = b.z AND b.z > 3))
π k@0 as k
  σ ((y@2 = z@6) and ((x@1 / y@2) > 1)) or ((y@2 = z@6) and (z@6 > 3))
    ⋈ inner on (x@1) = (x@1)
      a
      b

SELECT a.k FROM a CROSS JOIN b WHERE b.x = a.x + 1
π k@0 as k
  ⋈ inner on (x@1 + 1) = (x@1)
    a
    b

SELECT a.k FROM a JOIN d ON a.y = d.p
π k@0 as k
  ⋈ inner on (y@2) = (p@2)
    a
    d

SELECT a.k FROM a JOIN b ON a.x = b.x AND TRUE WHERE 1 = 0
π k@0 as k
  σ 1 = 0
    ⋈ inner on (x@1) = (x@1)
      a
      b

SELECT a.k FROM a JOIN b ON a.x = b.x JOIN c ON b.x = c.x
π k@0 as k
  ⋈ inner on (x@1) = (x@1) = (x@1)
    a
    b
    c

SELECT a.k FROM a, b, c WHERE a.x = b.x AND c.x = a.x AND a.k = b.k AND b.k = c.k AND c.w = 'r'
π k@0 as k
  ⋈ inner on (x@1, k@0) = (x@1, k@0) = (x@1, k@0)
    a
    b
    σ w@2 = 'r'
      c

SELECT a.k FROM a, b, c WHERE a.x = b.x AND b.x = c.x AND a.y = b.z
π k@0 as k
  ⋈ inner on (x@5) = (x@1)
    ⋈ inner on (x@1, y@2) = (x@1, z@2)
      a
      b
    c

SELECT a.k FROM a, b, d WHERE a.y = b.z AND b.z = d.p
π k@0 as k
  ⋈ inner on (z@6) = (p@2)
    ⋈ inner on (y@2) = (z@2)
      a
      b
    d

SELECT a.k, z, w FROM a, b, c WHERE a.k = c.k AND c.x = b.x AND a.y < b.z
π k@0 as k, z@9 as z, w@6 as w
  σ y@2 < z@9
    ⋈ inner on (x@5) = (x@1)
      ⋈ inner on (k@0) = (k@0)
        a
        c
      b

SELECT a.k FROM a LEFT JOIN b ON a.x = b.x AND b.z > 3 AND a.y > 2 AND b.z > a.y WHERE a.s = 'x' AND b.z IS NULL
π k@0 as k
  σ z@6 is null
    ⋈ left on (x@1) = (x@1) if (y@2 > 2) and (z@6 > y@2)
      σ s@3 = 'x'
        a
      σ z@2 > 3
        b

SELECT a.k FROM a LEFT JOIN b ON a.x = b.x AND 1 / b.z > 2
π k@0 as k
  ⋈ left on (x@1) = (x@1)
    a
    σ (1 / z@2) > 2
      b

SELECT a.k, b.k AS bk FROM a RIGHT JOIN b ON a.x = b.x AND a.y < b.z AND b.z > 5 AND a.s = 'r' WHERE z < 9
π k@3 as k, k@0 as bk
  ⋈ left on (x@1) = (x@1) if (y@5 < z@2) and (z@2 > 5)
    σ z@2 < 9
      b
    σ s@3 = 'r'
      a

SELECT a.k FROM a FULL JOIN b ON a.x = b.x AND b.z > 2 WHERE a.k > 1
π k@0 as k
  σ k@0 > 1
    ⋈ full on (x@1) = (x@1) if z@6 > 2
      a
      b

SELECT a.k FROM a SEMI JOIN b ON a.k = b.k AND b.z > 2 AND a.y > 1 LEFT ANTI JOIN c ON a.x = c.x AND a.y > 2 WHERE s = 'x'
π k@0 as k
  ⋈ anti on (x@1) = (x@1) if y@2 > 2
    ⋈ semi on (k@0) = (k@0)
      σ (s@3 = 'x') and (y@2 > 1)
        a
      σ z@2 > 2
        b
    c

SELECT a.k FROM a, b LEFT JOIN c ON b.x = c.x WHERE a.x + 1 = b.x AND a.y > 1
π k@0 as k
  ⋈ left on (x@5) = (x@1)
    ⋈ inner on (x@1 + 1) = (x@1)
      σ y@2 > 1
        a
      b
    c

SELECT a.k FROM a LEFT JOIN b ON a.k = b.k, c, d WHERE c.k + 1 = d.k AND d.x = a.x
π k@0 as k
  ⋈ inner on (k@7) = (k@0 + 1)
    ⋈ inner on (x@1) = (x@1)
      ⋈ left on (k@0) = (k@0)
        a
        b
      d
    c

SELECT a.k FROM a JOIN b JOIN c ON b.x = c.x ON a.k = b.k
π k@0 as k
  ⋈ inner on (x@5) = (x@1)
    ⋈ inner on (k@0) = (k@0)
      a
      b
    c

SELECT a.k FROM a LEFT JOIN (b JOIN c ON b.x = c.x) ON a.x = c.x
π k@0 as k
  ⋈ left on (x@1) = (x@4)
    a
    ⋈ inner on (x@1) = (x@1)
      b
      c

SELECT * FROM a RIGHT JOIN (SELECT k, z FROM b) t USING (k)
π k@0 as k, x@3 as x, y@4 as y, s@5 as s, z@1 as z
  ⋈ left on (k@0) = (k@0)
    π k@0 as k, z@2 as z
      b
    a

SELECT * FROM a FULL JOIN b USING (k, x)
π coalesce(k@0, k@4) as k, coalesce(x@1, x@5) as x, y@2 as y, s@3 as s, z@6 as z
  ⋈ full on (k@0, x@1) = (k@0, x@1)
    a
    b

SELECT k, b.k AS bk, y, z FROM a LEFT JOIN b USING (k)
π k@0 as k, k@4 as bk, y@2 as y, z@6 as z
  ⋈ left on (k@0) = (k@0)
    a
    b

SELECT k, y, z, w FROM a FULL JOIN b USING (k) FULL JOIN c USING (k)
π coalesce(coalesce(k@0, k@4), k@7) as k, y@2 as y, z@6 as z, w@9 as w
  ⋈ full on (coalesce(k@0, k@4)) = (k@0)
    ⋈ full on (k@0) = (k@0)
      a
      b
    c

SELECT b.* FROM (SELECT k, y FROM a) AS a JOIN (SELECT z, k FROM b) AS b USING (k)
π k@3 as k, z@2 as z
  ⋈ inner on (k@0) = (k@1)
    π k@0 as k, y@2 as y
      a
    π z@2 as z, k@0 as k
      b
"""

REFUSALS = r"""
SELECT a.k FROM a JOIN b ON a.k > b.k
UnsupportedSql: the JOIN of a with b has no equality between its sides
a join needs a condition like a.x = b.y

SELECT a.k FROM a, b, c WHERE a.k = b.k AND c.x > a.x
UnsupportedSql: the JOIN of a, b with c has no equality between its sides
a join needs a condition like a.x = b.y

SELECT a.k FROM a LEFT JOIN b ON a.k > b.k
UnsupportedSql: the LEFT JOIN of a with b has no equality between its sides
a join needs a condition like a.x = b.y

SELECT a.k FROM a LEFT JOIN b
UnsupportedSql: the LEFT JOIN of a with b has no equality between its sides
a join needs a condition like a.x = b.y

SELECT a.k FROM a CROSS JOIN b
UnsupportedSql: the JOIN of a with b has no equality between its sides
a join needs a condition like a.x = b.y

SELECT a.k FROM a JOIN b ON a.k <=> b.k
UnsupportedSql: the JOIN of a with b has no equality between its sides
a join needs a condition like a.x = b.y

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
TypeMismatch: ON needs BOOLEAN, not INT
compare it with something

SELECT a.k FROM a JOIN b ON COUNT(*) = b.k
SqlError: count() cannot stand in ON
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


def test_equal_queries_are_equal_trees_however_they_are_written() -> None:
    on = bind("SELECT a.k FROM a JOIN b ON a.x = b.x WHERE y > 3")
    assert (
        on
        == bind("SELECT A.K FROM a, B WHERE a.x = b.x AND y > 3")
        == bind("SELECT u.k FROM a u JOIN b v ON u.x = v.x AND y>3")
    )
