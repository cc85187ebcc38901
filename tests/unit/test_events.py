"""Events go to JSON and back, each as what it is."""

from __future__ import annotations

import json

import pytest

from viewkeeper.events import (
    Began,
    Committed,
    Event,
    Filling,
    TookOver,
    Voided,
    Waiting,
    event_from_json,
    event_to_json,
)

EVENTS: list[Event] = [
    TookOver("me"),
    Began(3, {0: 7, 1: 9}),
    Committed(3, 16, 0.25),
    Voided(4, "no memory"),
    Filling(2, 10, 100),
    Waiting("the disk is full"),
]


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_an_event_is_read_by_another_process_as_it_was_told(event: Event) -> None:
    again = event_from_json(json.loads(json.dumps(event_to_json(event))))

    assert again == event
    assert type(again) is type(event)
