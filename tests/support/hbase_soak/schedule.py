"""The schedule of a soak: which faults and statements come in which order.

In: a seed and a deck. Out: rounds without end, each some actions that are done while clients write, and some for the quiet
moment after it. Always: a pure function of both; what an action chooses among is known only when it is done, so it carries
numbers from 0 to 1 that choose. Each time the deck is dealt, every card is dealt.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

Choice = TypeVar("Choice")

# Every kind of action, and how often it comes while the whole deck is dealt: six to eight minutes on two cores.
FULL = {
    "kill": 8,  # of the pipeline, with an epoch in flight, up to three times in a row
    "kill anywhere": 2,  # of the pipeline, at any moment or between two epochs
    "stop": 4,  # SIGSTOP of the pipeline, until a standby has gone on
    "kill region server": 4,
    "kill thrift": 2,
    "stage": 1,  # map a large table while clients write to it
    "move": 3,
    "split": 1,
    "merge": 1,
    "flush": 2,
    "compact": 2,
    "roll": 2,
    "create view": 4,
    "drop view": 3,
    "replace view": 2,
    "map anew": 1,
    "optimize": 1,
    "check": 1,
    "plant": 2,  # an error, for `check` to name and `repair` to mend
}
# One or two of what matters most: a minute or two.
SHORT = {
    **{
        "kill": 2,
        "stop": 1,
        "kill region server": 1,
        "kill thrift": 1,
        "stage": 1,
        "move": 1,
        "split": 1,
        "compact": 1,
    },
    **{"create view": 1, "drop view": 1, "map anew": 1, "plant": 1},
}
QUIET = frozenset({"plant"})  # done when clients pause
_FIRST = frozenset({"stage"})  # what takes longest comes first, so that the others fall into it
_SIZES = (3, 4, 5)
_DRAWS = 4
_TURN = 0.381966  # the golden section: turns are spread evenly


@dataclass(frozen=True, slots=True)
class Action:
    """What is done; `draws` choose among what there is by then."""

    kind: str
    draws: tuple[float, ...]

    def pick(self, place: int, choices: Sequence[Choice]) -> Choice:
        """The choice of one of the draws."""
        return choices[int(self.draws[place] * len(choices))]

    def turned(self, turn: int) -> Action:
        """Other draws for the same again; those of turn 0 are its own."""
        return Action(self.kind, tuple((draw + turn * _TURN) % 1 for draw in self.draws))


@dataclass(frozen=True, slots=True)
class Round:
    """Actions under writers, and those of the quiet moment after them; `deal`: how often the deck was dealt before."""

    number: int
    deal: int
    busy: tuple[Action, ...]
    quiet: tuple[Action, ...]


def rounds(seed: int, deck: Mapping[str, int] = FULL) -> Iterator[Round]:
    """Rounds without end."""
    number = deal = 0
    while True:
        draw = random.Random(f"{seed} deal {deal}")
        cards = [kind for kind, count in deck.items() for _ in range(count)]
        draw.shuffle(cards)
        while cards:
            size = draw.choice(_SIZES)
            dealt, cards = cards[:size], cards[size:]
            actions = [Action(kind, tuple(draw.random() for _ in range(_DRAWS))) for kind in dealt]
            actions.sort(key=lambda action: action.kind not in _FIRST)
            busy = tuple(action for action in actions if action.kind not in QUIET)
            yield Round(number, deal, busy, tuple(action for action in actions if action.kind in QUIET))
            number += 1
        deal += 1
