"""Set operations: branches of common types, counted by side; and what is refused."""

from __future__ import annotations

import pytest

from tests.support.bind_tables import bind, cases, refusal
from tests.support.relation_text import tree_text
from viewkeeper.algebra.relations import Union
from viewkeeper.model.types import BIGINT, decimal

TREES = r"""
SELECT x FROM a UNION ALL SELECT z FROM b UNION ALL SELECT 1 AS q FROM c
∪
  π x@1 as x
    a
  π z@2 as z
    b
  π 1 as q
    c

SELECT x FROM a UNION SELECT x FROM b UNION ALL SELECT x FROM c
∪
  π [x] as x
    γ by (x@0) of ()
      ∪
        π x@1 as x
          a
        π x@1 as x
          b
  π x@1 as x
    c

(SELECT x FROM a UNION ALL SELECT x FROM b) UNION (SELECT x FROM c UNION SELECT x FROM d)
π [x] as x
  γ by (x@0) of ()
    ∪
      π x@1 as x
        a
      π x@1 as x
        b
      π x@1 as x
        c
      π x@1 as x
        d

SELECT x FROM a UNION SELECT x FROM b INTERSECT SELECT x FROM c
π [x] as x
  γ by (x@0) of ()
    ∪
      π x@1 as x
        a
      π [x] as x
        σ ([count(*) filter (where side = 0)] > 0l) and ([count(*) filter (where side = 1)] > 0l)
          γ by (x@0) of (count(*) filter (where side = 0), count(*) filter (where side = 1))
            ∪
              π x@1 as x, 0 as side
                b
              π x@1 as x, 1 as side
                c

SELECT k, s FROM a EXCEPT SELECT z, 'r' AS t FROM b
π [k] as k, [s] as s
  σ ([count(*) filter (where side = 0)] > 0l) and ([count(*) filter (where side = 1)] = 0l)
    γ by (k@0, s@1) of (count(*) filter (where side = 0), count(*) filter (where side = 1))
      ∪
        π k@0 as k, s@3 as s, 0 as side
          a
        π z@2 as z, 'r' as t, 1 as side
          b

SELECT x FROM a MINUS SELECT p FROM d
π [x] as x
  σ ([count(*) filter (where side = 0)] > 0l) and ([count(*) filter (where side = 1)] = 0l)
    γ by (x@0) of (count(*) filter (where side = 0), count(*) filter (where side = 1))
      ∪
        π x@1 as x, 0 as side
          a
        π p@2 as p, 1 as side
          d

(SELECT k FROM a ORDER BY k LIMIT 2) UNION ALL SELECT k FROM b
∪
  top 2 by k@0
    π k@0 as k
      a
  π k@0 as k
    b

WITH t AS (SELECT k FROM a) SELECT k FROM t UNION ALL SELECT k FROM t
∪
  π k@0 as k
    a
  π k@0 as k
    a
"""

REFUSALS = r"""
SELECT k, x FROM a UNION SELECT k FROM b
SqlError: UNION of 2 and 1 columns
each branch needs the same columns

SELECT k FROM a UNION ALL SELECT k FROM b UNION ALL SELECT k, x FROM c
SqlError: UNION of 1 and 2 columns
each branch needs the same columns

SELECT s FROM a UNION SELECT k FROM b
TypeMismatch: UNION mixes STRING and INT
CAST one side to the other's type

SELECT s FROM a EXCEPT SELECT k FROM b
TypeMismatch: EXCEPT mixes STRING and INT
CAST one side to the other's type

SELECT k, k FROM a UNION ALL SELECT k, x FROM b
DuplicateName: two columns of the view are called k
give one another name with AS

SELECT k FROM a INTERSECT ALL SELECT k FROM b
UnsupportedSql: INTERSECT ALL is not supported
use INTERSECT, or join counts of equal rows

SELECT k FROM a EXCEPT ALL SELECT k FROM b
UnsupportedSql: EXCEPT ALL is not supported
use EXCEPT, or join counts of equal rows

SELECT k FROM a UNION BY NAME SELECT k FROM b
UnsupportedSql: UNION BY NAME is not supported
list the columns of each branch in one order

SELECT k FROM a UNION SELECT NULL AS k FROM b
SqlError: NULL has no type in the select list
write CAST(NULL AS type)

SELECT k FROM a ORDER BY k LIMIT 2 UNION SELECT k FROM b
SqlError: a branch of UNION has an ORDER BY or LIMIT of its own
put the branch into parentheses

SELECT k FROM a UNION SELECT k FROM b ORDER BY k
UnsupportedSql: ORDER BY is not supported
a view is ordered by its key

VALUES (1)
SqlError: a view is defined by a SELECT
"""


@pytest.mark.parametrize(("query", "tree"), cases(TREES))
def test_the_tree_of_sets(query: str, tree: str) -> None:
    assert tree_text(bind(query)) == tree


@pytest.mark.parametrize(("query", "message"), cases(REFUSALS))
def test_what_is_refused_of_sets(query: str, message: str) -> None:
    assert refusal(query) == message


def test_all_branches_have_the_common_type_and_the_first_ones_names() -> None:
    union = bind("SELECT x FROM a UNION ALL SELECT z FROM b")
    assert isinstance(union, Union)
    assert [[column.type for column in branch.columns] for branch in union.inputs] == [[BIGINT], [BIGINT]]
    assert [column.name for column in union.columns] == ["x"]
    assert bind("SELECT x FROM a EXCEPT SELECT p FROM d").columns[0].type == decimal(12, 2)


def test_many_branches_are_one_union() -> None:
    union = bind(" UNION ALL ".join(["SELECT k FROM a"] * 300))
    assert isinstance(union, Union)
    assert len(union.inputs) == 300
