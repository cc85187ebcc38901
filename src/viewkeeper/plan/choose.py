"""Choosing: which views share nodes, and by which rules they are planned (paper 3, algorithm 2, step 2).

In: a catalog, some of its views, and the cost model; without one, all views share that can. Out: sets of views that share,
and views that are computed alone, each with the rules that are off. Always: pure; the choice changes no result and no key
of a view. A sharing is accepted only where an epoch takes less with it than without.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from viewkeeper.algebra.relations import Relation
from viewkeeper.catalog.catalog import Catalog, ViewDefinition
from viewkeeper.model.schema import TableId
from viewkeeper.plan.cost.cost_model import PlanModel
from viewkeeper.plan.define import plans_of, relation_of, rule_of, rules_off_for
from viewkeeper.plan.lower import Lowered
from viewkeeper.plan.optimize import SWITCHES, rules_over

Part = tuple[TableId, ...]  # views that are computed together
Planned = tuple[tuple[Lowered, ...], tuple[str, ...]]  # plans, and the rules that are off for them


@dataclass(frozen=True, slots=True)
class Choice:
    """`views` are computed by what they share, if there are several. `rules_off` are those left out of their plans."""

    views: Part
    rules_off: tuple[str, ...]


def choose_plans(
    catalog: Catalog, views: Mapping[TableId, ViewDefinition], sizes: Mapping[int, float], model: PlanModel | None
) -> list[Choice]:
    """`sizes`: how many rows and records tables have, as far as is known."""
    return _Choosing(catalog, views, sizes, model).choose()


class _Choosing:
    def __init__(
        self,
        catalog: Catalog,
        views: Mapping[TableId, ViewDefinition],
        sizes: Mapping[int, float],
        model: PlanModel | None,
    ) -> None:
        self._relations = {view.id: relation_of(catalog, view) for view in views.values()}
        self._order = {view: number for number, view in enumerate(self._relations)}
        self._rules_off, self._model = catalog.rules_off, model
        self._off = {
            view.id: rules_off_for(catalog, self._relations[view.id], (meant for _, meant in view.names))
            for view in views.values()
        }
        self._records = {view.id: sizes.get(view.node.table, 0.0) for view in views.values()}
        bases = {view.id: catalog.bases_of(view) for view in views.values()}
        self._rows = {view: sizes.get(tables[0], 0.0) for view, tables in bases.items() if len(tables) == 1}
        others = [view for view in catalog.kept if view.id not in views and not set(view.replaces) & set(views)]
        self._beside = frozenset(node.text for view in others for node in catalog.stored(view))
        self._plans: dict[Part, Planned] = {}

    def choose(self) -> list[Choice]:
        part_of: dict[TableId, Part] = {view: (view,) for view in self._relations}
        for rule in rules_over("views", self._rules_off):
            for candidate in rule.apply(self._relations, self._records, self._rows):
                for part in self._divided(candidate):
                    part_of |= dict.fromkeys(part, part)
        for rule in rules_over("groupings", self._rules_off):
            found: dict[Part, list[Part]] = {}
            for one, fed in rule.apply(self._relations, list(dict.fromkeys(part_of.values()))):
                found.setdefault(one, []).append(fed)
            for one, fed in found.items():
                self._feed(part_of, one, fed)
        parts = sorted(dict.fromkeys(part_of.values()), key=lambda part: len(part) == 1)
        return [Choice(self._ordered(part), self._planned(part)[1]) for part in parts]

    def _divided(self, views: Part) -> list[Part]:
        """Views that can be together, as they cost least: as a whole, or each half by itself."""
        if len(views) == 1:
            return [views]
        middle = len(views) // 2
        halves = [*self._divided(views[:middle]), *self._divided(views[middle:])]
        return [views] if self._is_cheaper(views, halves) else halves

    def _feed(self, part_of: dict[TableId, Part], one: Part, fed: Sequence[Part]) -> None:
        """Compute parts from the records of `one`, all that are left at once, or one after the other."""
        if part_of[one[0]] != one:
            return
        left = [part for part in fed if part_of[part[0]] == part]
        for parts in [left, *([part] for part in left if len(left) > 1)]:
            now = part_of[one[0]]
            added = [part for part in parts if part_of[part[0]] == part]
            whole = (*now, *(view for part in added for view in part))
            if added and self._is_cheaper(whole, [now, *added]):
                part_of |= dict.fromkeys(whole, whole)

    def _is_cheaper(self, whole: Part, parts: Sequence[Part]) -> bool:
        if not rule_of(self._members(whole)).has_room(self._members(whole)):
            return False
        return self._model is None or self._seconds(self._model, [whole]) < self._seconds(self._model, parts)

    def _seconds(self, model: PlanModel, parts: Sequence[Part]) -> float:
        return model.seconds([one for part in parts for one in self._planned(part)[0]], self._beside)

    def _members(self, part: Part) -> tuple[Relation, ...]:
        return tuple(map(self._relations.__getitem__, self._ordered(part)))

    def _ordered(self, part: Part) -> Part:
        """As the catalog has them: the same views make the same sharing."""
        return tuple(sorted(part, key=self._order.__getitem__))

    def _planned(self, part: Part) -> Planned:
        """The plans of a part's nodes with the rules that make them cheapest, and the rules that are off."""
        if part not in self._plans:
            members = self._members(part)
            computed = members if len(members) == 1 else rule_of(members).kept_relations(members)
            off = tuple(rule for rule in SWITCHES if any(rule in self._off[view] for view in part))
            self._plans[part] = self._cheapest([plans_of(one, off) for one in computed])
        return self._plans[part]

    def _cheapest(self, choices: Sequence[Mapping[tuple[str, ...], Lowered]]) -> Planned:
        common = [off for off in choices[0] if all(off in plans for plans in choices)]
        found = [(tuple(plans[off] for plans in choices), off) for off in common]
        model = self._model
        if len(found) == 1 or model is None or not model.knows(found[0][0][0].relation):
            return found[0]
        return min(found, key=lambda one: model.seconds(one[0], self._beside))
