"""ORDER BY … LIMIT: by outputs, places, expressions and hidden columns; and what is refused."""

from __future__ import annotations

import pytest

from tests.support.bind_tables import bind, cases, refusal
from tests.support.relation_text import tree_text

TREES = r"""
SELECT k, x FROM a ORDER BY x LIMIT 3
top 3 by x@1
  π k@0 as k, x@1 as x
    a

SELECT x FROM a ORDER BY y DESC, x LIMIT 5
π x@0 as x
  top 5 by y@1 desc, x@0
    π x@1 as x, y@2 as y
      a

SELECT x AS y, y AS z FROM a ORDER BY y, a.y NULLS LAST, 2 DESC NULLS FIRST LIMIT 5
top 5 by y@0, z@1 nulls last, z@1 desc nulls first
  π x@1 as y, y@2 as z
    a

SELECT k AS i FROM a ORDER BY i + 1, k LIMIT 2
π i@0 as i
  top 2 by k + 1@1, i@0
    π k@0 as i, k@0 + 1 as k + 1
      a

SELECT x, COUNT(*) AS n FROM a GROUP BY x ORDER BY n DESC, SUM(y) NULLS LAST LIMIT 3
π x@0 as x, n@1 as n
  top 3 by n@1 desc, sum(y)@2 nulls last
    π [x] as x, [count(*)] as n, [sum(y)] as sum(y)
      γ by (x@1) of (count(*), sum(y))
        a

SELECT DISTINCT x FROM a ORDER BY a.x + 1 LIMIT 3
π x@0 as x
  top 3 by x + 1@1
    π x@0 as x, x@0 + 1 as x + 1
      π [x] as x
        γ by (x@1) of ()
          a

SELECT DISTINCT x, COUNT(*) AS n FROM a GROUP BY x, y ORDER BY COUNT(*) LIMIT 3
top 3 by n@1
  π [x] as x, [n] as n
    γ by (x@0, n@1) of ()
      π [x] as x, [count(*)] as n
        γ by (x@1, y@2) of (count(*))
          a

SELECT a.k, z FROM a JOIN b ON a.x = b.x ORDER BY b.k DESC LIMIT 2
π k@0 as k, z@1 as z
  top 2 by k@2 desc
    π k@0 as k, z@6 as z, k@4 as k
      σ x@1 = x@5
        ⋈ inner on () = ()
          a
          b

SELECT x FROM a UNION ALL SELECT x FROM b ORDER BY 1 DESC, x % 2 LIMIT 2
π x@0 as x
  top 2 by x@0 desc, x % 2@1
    π x@0 as x, x@0 % 2 as x % 2
      ∪
        π x@1 as x
          a
        π x@1 as x
          b

(SELECT x FROM a) ORDER BY x LIMIT 3
top 3 by x@0
  π x@1 as x
    a

SELECT k FROM (SELECT k, x FROM a ORDER BY y LIMIT 4) WHERE x > 1
π k@0 as k
  σ x@1 > 1
    π k@0 as k, x@1 as x
      top 4 by y@2
        π k@0 as k, x@1 as x, y@2 as y
          a
"""

REFUSALS = r"""
SELECT k FROM a ORDER BY k
UnsupportedSql: ORDER BY is not supported
a view is ordered by its key

SELECT k FROM (SELECT k FROM a ORDER BY k)
UnsupportedSql: ORDER BY is not supported
a view is ordered by its key

SELECT k FROM a LIMIT 3
UnsupportedSql: LIMIT without ORDER BY is not deterministic
say with ORDER BY which rows come first

SELECT k FROM a ORDER BY k LIMIT 0
UnsupportedSql: LIMIT 0 is not supported
LIMIT takes a number from 1 to 2147483647

SELECT k FROM a ORDER BY k LIMIT ALL
UnsupportedSql: LIMIT ALL is not supported
LIMIT takes a number from 1 to 2147483647

SELECT k FROM a ORDER BY k LIMIT 1 + 2
UnsupportedSql: LIMIT 1 + 2 is not supported
LIMIT takes a number from 1 to 2147483647

SELECT k FROM a ORDER BY k LIMIT 3000000000
UnsupportedSql: LIMIT 3000000000 is not supported
LIMIT takes a number from 1 to 2147483647

SELECT k FROM a ORDER BY k LIMIT 3 OFFSET 2
UnsupportedSql: OFFSET is not supported
keep the rows to skip too, with ORDER BY … LIMIT n, and skip them when reading

SELECT k FROM a ORDER BY k FETCH FIRST 3 ROWS ONLY
UnsupportedSql: FETCH FIRST 3 ROWS ONLY is not supported
LIMIT takes a number from 1 to 2147483647

SELECT k FROM a SORT BY k LIMIT 3
UnsupportedSql: SORT BY is not supported
a view is ordered by its key

SELECT k FROM a ORDER BY ALL LIMIT 3
UnsupportedSql: ORDER BY ALL is not supported
list the columns

SELECT k FROM a ORDER BY 2 LIMIT 3
SqlError: ORDER BY 2 is outside the select list
it has 1 columns

SELECT k FROM a ORDER BY nope LIMIT 3
UnknownName: table a has no column nope
its columns are k, x, y, s

SELECT k FROM a ORDER BY COUNT(*) LIMIT 3
SqlError: count(*) in ORDER BY needs GROUP BY
aggregates belong in the select list

SELECT x, COUNT(*) AS n FROM a GROUP BY x ORDER BY y LIMIT 2
SqlError: y is neither grouped nor aggregated
add y to GROUP BY

SELECT DISTINCT k FROM a ORDER BY x LIMIT 3
SqlError: ORDER BY x is not in the select list
SELECT DISTINCT orders by what it selects

SELECT n FROM (SELECT k AS n, x AS n FROM a ORDER BY n LIMIT 2)
SqlError: n is ambiguous
two columns are called n; give one another name with AS

SELECT k FROM a ORDER BY NULL LIMIT 3
SqlError: NULL has no type in ORDER BY
write CAST(NULL AS type)

SELECT k FROM a UNION SELECT k FROM b ORDER BY a.k LIMIT 2
UnknownName: unknown table in a.k
write the column's name alone

SELECT k FROM a UNION SELECT k FROM b ORDER BY x LIMIT 2
UnknownName: the query has no column x
its columns are k

SELECT k FROM a UNION SELECT k FROM b ORDER BY MAX(k) LIMIT 2
SqlError: MAX() cannot stand in ORDER BY
aggregates belong in the select list or in HAVING

SELECT k FROM a ORDER BY (SELECT MAX(x) FROM b) LIMIT 1
UnsupportedSql: a subquery as a value (in ORDER BY) is not supported
LEFT JOIN a subquery of FROM, where a COUNT of nothing is NULL; without groups join on a constant: 1 AS one
"""


@pytest.mark.parametrize(("query", "tree"), cases(TREES))
def test_the_tree_of_orders(query: str, tree: str) -> None:
    assert tree_text(bind(query)) == tree


@pytest.mark.parametrize(("query", "message"), cases(REFUSALS))
def test_what_is_refused_of_orders(query: str, message: str) -> None:
    assert refusal(query) == message
