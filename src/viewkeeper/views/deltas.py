"""δ over a log without before-images: DELTA knows what a row was (`epochs.md`, "δ").

In: the last change of each row in the epoch. Out: deltas old → new as inputs of the views' nodes. Always: a delta is taken
from the version of DELTA below the epoch, so that a re-run emits what the first run emitted (the hole that plain replay
leaves); two changes of one row in an epoch are one delta.
"""

from __future__ import annotations

from collections.abc import Sequence

from viewkeeper.failpoints import failpoint
from viewkeeper.model.epochs import Inflight
from viewkeeper.plan.physical import PhysicalPlan
from viewkeeper.ports.store import Store
from viewkeeper.views.inputs import Gathering, Input, consolidate, deltas_for
from viewkeeper.views.settle import Settling, parts_by_node


def apply_deltas(
    store: Store, plan: PhysicalPlan, epoch: Inflight, inputs: Sequence[Input], owned: frozenset[int]
) -> list[Input]:
    """Settle the DELTAs of the places in `owned`; answers all that the views' nodes get."""
    settling = Settling(store, owned, epoch)
    gathering = Gathering(plan)
    for number, parts in parts_by_node(inputs).items():
        if number < len(plan.nodes):
            for part, tables in parts.items():
                for table in tables:
                    gathering.add(number, part, table)
            continue
        delta = plan.deltas[number - len(plan.nodes)]
        (tables,) = parts.values()
        found = settling.find(delta.delta or 0, consolidate(plan, number, 0, tables, store.places))
        after = found.input["row"].combine_chunks()
        deltas_for(plan, epoch, delta.id, *settling.put(found, after).table(), gathering)
    settling.write()
    failpoint("deltas.settled")
    return gathering.inputs()
