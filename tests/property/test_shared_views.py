"""Views that share a γ or a copy hold what DuckDB computes from their texts, after every step of a drawn history."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable

import pytest

import viewkeeper as vk
from tests.support.running import keep_up
from tests.support.shared_views import run_set
from tests.support.tiers import examples
from viewkeeper.algebra.relations import Relation
from viewkeeper.client import explaining
from viewkeeper.plan.cost.cost_model import PlanModel
from viewkeeper.plan.lower import Lowered


@pytest.mark.parametrize("seed", range(examples(5, deep=20)))
def test_optimized_views_hold_what_is_computed_anew(seed: int) -> None:
    with vk.connect(f"memory:shared-{seed}") as db:
        run_set(db, seed, keep_up)


class AnyModel(PlanModel):
    """Finds any plan cheaper than any other."""

    choose = random.Random()

    def knows(self, relation: Relation) -> bool:
        return True

    def seconds(self, plans: Iterable[Lowered], beside: Collection[str] = ()) -> float:
        super().seconds(plans, beside)
        return self.choose.random()


@pytest.mark.parametrize("seed", range(examples(4, deep=20)))
def test_views_hold_the_same_whatever_the_model_decides(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AnyModel, "choose", random.Random(seed))
    monkeypatch.setattr(explaining, "PlanModel", AnyModel)
    with vk.connect(f"memory:any-choice-{seed}") as db:
        run_set(db, seed, keep_up, shares_min=0)
