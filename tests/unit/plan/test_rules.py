"""The rules over joins: what becomes a key, what goes into a side, what stays above; and what no view can keep."""

from __future__ import annotations

import pytest

from tests.support.bind_tables import bind, cases, planned, refusal
from tests.support.relation_text import tree_text
from viewkeeper.plan.optimize import RULES, SWITCHES, optimize, rules_over

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
  ⋈ inner on (k@0, x@1) = (k@0, x@1) = (k@0, x@1)
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
a join needs a condition like a.x = b.y; else join (SELECT *, 1 AS one FROM t) for both ON a.one = b.one AND …

SELECT a.k FROM a, b, c WHERE a.k = b.k AND c.x > a.x
UnsupportedSql: the JOIN of a, b with c has no equality between its sides
a join needs a condition like a.x = b.y; else join (SELECT *, 1 AS one FROM t) for both ON a.one = b.one AND …

SELECT a.k FROM a CROSS JOIN b
UnsupportedSql: the JOIN of a with b has no equality between its sides
a join needs a condition like a.x = b.y; else join (SELECT *, 1 AS one FROM t) for both ON a.one = b.one AND …

SELECT a.k FROM a JOIN b ON a.k <=> b.k
UnsupportedSql: the JOIN of a with b has no equality between its sides
a join needs a condition like a.x = b.y; else join (SELECT *, 1 AS one FROM t) for both ON a.one = b.one AND …
"""


@pytest.mark.parametrize(("query", "tree"), cases(TREES))
def test_the_plan_of_joins(query: str, tree: str) -> None:
    assert tree_text(planned(query)) == tree


@pytest.mark.parametrize(("query", "message"), cases(REFUSALS))
def test_what_no_view_can_keep(query: str, message: str) -> None:
    assert refusal(query) == message


@pytest.mark.parametrize(("query", "tree"), cases(TREES))
def test_what_is_optimized_is_not_changed_again(query: str, tree: str) -> None:
    assert optimize(planned(query)) == planned(query)


@pytest.mark.parametrize("rule", [rule.name for rule in rules_over("relation") if not rule.is_needed])
def test_a_rule_keeps_the_columns_and_changes_something(rule: str) -> None:
    bound = [bind(query) for query, _ in cases(TREES)]
    without = [optimize(relation, without=[rule]) for relation in bound]
    assert [relation.columns for relation in without] == [relation.columns for relation in bound]
    assert without != [optimize(relation) for relation in bound]


def test_every_rule_states_its_identity_and_a_rule_that_is_needed_has_no_switch() -> None:
    for rule in RULES:
        assert "=" in (rule.apply.__doc__ or "").split("\n\n")[0], rule.name
    assert [rule.name for rule in RULES if rule.is_needed] == ["require_sides", "binary_joins"]
    assert SWITCHES == tuple(rule.name for rule in RULES if not rule.is_needed)
    relation = bind("SELECT a.k FROM a JOIN b ON a.x = b.x")
    assert optimize(relation, without=["binary_joins", "require_sides"]) == optimize(relation)


def test_equal_queries_are_equal_trees_however_they_are_written() -> None:
    on = planned("SELECT a.k FROM a JOIN b ON a.x = b.x WHERE y > 3")
    assert (
        on
        == planned("SELECT A.K FROM a, B WHERE a.x = b.x AND y > 3")
        == planned("SELECT u.k FROM a u JOIN b v ON u.x = v.x AND y>3")
    )
