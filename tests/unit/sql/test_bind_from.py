"""FROM: tables, subqueries and WITH, with their names; and what is refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.bind_tables import bind, cases, refusal, relation_named
from tests.support.relation_text import tree_text
from viewkeeper.algebra.relations import Relation
from viewkeeper.errors import UnsupportedSql
from viewkeeper.sql.bind_query import bind_query
from viewkeeper.sql.scope import QUERY_DEPTH_MAX

TREES = r"""
SELECT k FROM (a)
π k@0 as k
  a

SELECT p, q FROM (SELECT x, COUNT(*) FROM a GROUP BY x) AS t(p, q) WHERE q > 2
π p@0 as p, q@1 as q
  σ q@1 > 2
    π [x] as x, [count(*)] as count(*)
      γ by (x@1) of (count(*))
        a

SELECT t.i, j FROM a AS t(i, j, l, m)
π i@0 as i, j@1 as j
  a

SELECT x FROM (SELECT k, x, x AS k FROM a)
π x@1 as x
  a

WITH t AS (SELECT x, COUNT(*) AS n FROM a GROUP BY x), u(i, j) AS (SELECT n, x FROM t) SELECT i FROM u JOIN t ON u.j = t.x
π i@0 as i
  σ j@1 = x@2
    ⋈ inner on () = ()
      π [count(*)] as n, [x] as x
        γ by (x@1) of (count(*))
          a
      π [x] as x, [count(*)] as n
        γ by (x@1) of (count(*))
          a

WITH a AS (SELECT k, x FROM b) SELECT k FROM a
π k@0 as k
  b

SELECT x FROM (WITH a AS (SELECT x FROM b) SELECT x FROM a)
π x@1 as x
  b

SELECT t.q FROM (a JOIN b ON a.k = b.k) AS t(k, x, y, s, q, r, z)
π k@4 as q
  σ k@0 = k@4
    ⋈ inner on () = ()
      a
      b

SELECT DISTINCT n FROM (SELECT x, COUNT(*) AS n FROM a GROUP BY x)
π [n] as n
  γ by (n@1) of ()
    π [x] as x, [count(*)] as n
      γ by (x@1) of (count(*))
        a

SELECT DISTINCT COUNT(*) AS n, s FROM a GROUP BY x, s HAVING n > 1
π [n] as n, [s] as s
  γ by (n@0, s@1) of ()
    π [count(*)] as n, [s] as s
      σ [count(*)] > 1
        γ by (x@1, s@3) of (count(*))
          a

SELECT k FROM (SELECT k, 1 / x AS q FROM a) WHERE k > 1
π k@0 as k
  σ k@0 > 1
    π k@0 as k, 1 / x@1 as q
      a
"""

REFUSALS = r"""
SELECT 1 AS x
UnsupportedSql: a SELECT without FROM is not a view
name the table it reads

SELECT k FROM nope
UnknownName: there is no table nope

SELECT k FROM db.a
UnsupportedSql: table db.a is qualified
a table has a name of one part

SELECT k FROM range(3)
UnsupportedSql: the function range in FROM is not supported
put the numbers into a table

SELECT k FROM VALUES (1) AS t(k)
UnsupportedSql: VALUES in FROM is not supported
put the rows into a table

SELECT k FROM a, LATERAL (SELECT 1 FROM b)
UnsupportedSql: LATERAL is not supported
join with a subquery that names its own tables

SELECT k FROM a LATERAL VIEW explode(x) t AS q
UnsupportedSql: LATERAL VIEW is not supported
nested types are not stored: keep one row for each element, in a table of its own

SELECT k FROM a TABLESAMPLE (10 PERCENT)
UnsupportedSql: TABLESAMPLE is not supported
choose rows by a column: WHERE id % 10 = 0

SELECT k FROM (SELECT k FROM a) TABLESAMPLE (5 ROWS)
UnsupportedSql: TABLESAMPLE is not supported
choose rows by a column: WHERE id % 10 = 0

SELECT k FROM a PIVOT (SUM(x) FOR y IN (1, 2))
UnsupportedSql: PIVOT is not supported
write SUM(x) FILTER (WHERE c = value) AS name, for each value, and GROUP BY the columns that are neither x nor c

SELECT k FROM a VERSION AS OF 3
UnsupportedSql: VERSION is not supported

SELECT k FROM a |> WHERE x > 1
UnsupportedSql: |> is not supported
write the query with SELECT

SELECT NTILE(2) OVER (ORDER BY k) AS n FROM a
UnsupportedSql: the window function NTILE … OVER is not supported
store the value in a column, or compute it when reading

WITH RECURSIVE t AS (SELECT k FROM a) SELECT k FROM t
UnsupportedSql: WITH RECURSIVE is not supported
a query of WITH may name those before it

WITH t AS (SELECT k FROM a), T AS (SELECT k FROM b) SELECT k FROM t
DuplicateName: WITH names T twice
give one another name

WITH t AS (SELECT k FROM t) SELECT k FROM t
UnknownName: there is no table t

WITH t AS (SELECT nope FROM a) SELECT k FROM b
UnknownName: table a has no column nope
its columns are k, x, y, s

WITH t(p, q) AS (SELECT k FROM a) SELECT p FROM t
SqlError: t has 1 columns, its alias names 2
name each column, or none

SELECT t.k FROM (SELECT k, x FROM a) AS t(p)
SqlError: t has 2 columns, its alias names 1
name each column, or none

SELECT k FROM (SELECT k, x AS k FROM a)
SqlError: k is ambiguous
two columns are called k; give one another name with AS

SELECT p FROM (SELECT k FROM a)
UnknownName: the subquery of FROM has no column p
its columns are k

SELECT p FROM (SELECT k FROM a) t
UnknownName: subquery t has no column p
its columns are k

SELECT q.k FROM (SELECT k FROM a)
UnknownName: unknown table in q.k
write the column's name alone

SELECT a.k FROM a AS t
UnknownName: unknown table in a.k
the table is called t here

SELECT k, k FROM a
DuplicateName: two columns of the view are called k
give one another name with AS

SELECT n FROM (SELECT NULL AS n FROM a)
SqlError: NULL has no type in the select list
write CAST(NULL AS type)
"""


@pytest.mark.parametrize(("query", "tree"), cases(TREES))
def test_the_tree_of_from(query: str, tree: str) -> None:
    assert tree_text(bind(query)) == tree


@pytest.mark.parametrize(("query", "message"), cases(REFUSALS))
def test_what_is_refused_of_from(query: str, message: str) -> None:
    assert refusal(query) == message


def test_a_view_is_read_as_its_own_tree() -> None:
    view = bind("SELECT x, COUNT(*) AS n FROM a GROUP BY x")
    found = bind_query("SELECT t.n, w FROM totals t JOIN c ON t.x = c.x", _with_view("totals", view))
    assert tree_text(found) == (
        "π n@1 as n, w@4 as w\n"
        "  σ x@0 = x@3\n"
        "    ⋈ inner on () = ()\n"
        "      π [x] as x, [count(*)] as n\n"
        "        γ by (x@1) of (count(*))\n"
        "          a\n"
        "      c"
    )


def _with_view(name: str, view: Relation) -> Callable[[str], Relation]:
    return lambda wanted: view if wanted == name else relation_named(wanted)


def test_a_column_of_a_group_that_may_fail_is_nullable_above_it() -> None:
    columns = bind("SELECT n, m FROM (SELECT COUNT(*) + 1 AS n, COUNT(*) AS m FROM a GROUP BY x)").columns
    assert [column.nullable for column in columns] == [True, False]


def test_queries_that_are_nested_too_deeply_are_refused() -> None:
    def nested(depth: int) -> str:
        return "SELECT k FROM a" if depth == 0 else f"SELECT k FROM ({nested(depth - 1)})"

    bind(nested(QUERY_DEPTH_MAX - 1))
    with pytest.raises(UnsupportedSql, match="queries are nested more than 30 deep"):
        bind(nested(QUERY_DEPTH_MAX))
