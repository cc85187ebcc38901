"""What makes a relation none: the first and the last step of the optimizer catches it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.relations import all_of, column, more, shown
from tests.support.views_by_hand import VIEWS, customers, orders
from viewkeeper.algebra.relations import Join, Project, Relation, Select, Top, walk_relations
from viewkeeper.errors import InvariantBroken
from viewkeeper.plan import optimize as optimizer
from viewkeeper.plan.optimize import optimize
from viewkeeper.plan.relation_checks import validate


def part_of(name: str, kind: type) -> Relation:
    return next(part for part in walk_relations(VIEWS[name]) if isinstance(part, kind))


def broken() -> dict[str, Relation]:
    inner, anti, top, region = (
        part_of(name, kind) for name, kind in (("inner", Join), ("anti", Join), ("top", Top), ("by_region", Project))
    )
    assert isinstance(inner, Join) and isinstance(anti, Join) and isinstance(top, Top) and isinstance(region, Project)
    number = column(orders, "amount")
    return {
        "for each of at least two sides": replace(inner, keys=inner.keys[:1]),
        "different types": replace(inner, keys=(inner.keys[0], (column(customers, "name"),))),
        "amount is not a column": replace(inner, keys=((replace(number, position=50),),) * 2),
        "the condition amount is": replace(
            anti, residual=replace(number, position=len(customers.columns) + number.position)
        ),
        "the condition id is": Select(orders, column(orders, "id")),
        "the limit is": replace(top, limit=-1),
        "is no group or aggregate": replace(region, input=orders),
        "different columns": all_of(shown(orders, "id"), shown(customers, "name")),
        "is not a column of its input": Select(shown(orders, "id"), more(orders, "amount", 1)),
    }


@pytest.mark.parametrize(("words", "relation"), broken().items())
def test_a_broken_relation_is_caught(words: str, relation: Relation) -> None:
    with pytest.raises(InvariantBroken, match=words):
        optimize(relation)


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_made_by_hand_is_valid_and_no_rule_changes_its_columns(name: str) -> None:
    validate(VIEWS[name])
    assert optimize(VIEWS[name]).columns == VIEWS[name].columns


def test_a_rule_that_changes_the_columns_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    rule = optimizer.Rule(lambda relation: shown(relation, "id"), "relation", is_needed=True)
    monkeypatch.setattr(optimizer, "RULES", (rule,))
    with pytest.raises(InvariantBroken, match="changed the columns"):
        optimize(orders)
