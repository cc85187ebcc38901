"""The ports of a store stay narrow: how many members they have, and how many of them an adapter must write, only falls."""

from __future__ import annotations

from viewkeeper.ports.store import Store

MEMBERS_MAX = 61
REQUIRED_MAX = 37  # those without a default

PORTS = (*Store.__bases__, Store)


def test_a_store_has_at_most_so_many_members() -> None:
    members = [name for port in PORTS for name in vars(port) if not name.startswith("_")]

    assert len(members) == len(set(members)) == MEMBERS_MAX


def test_an_adapter_must_write_at_most_so_many_of_them() -> None:
    assert len(Store.__abstractmethods__) == REQUIRED_MAX


def test_each_makes_a_promise() -> None:
    members = [getattr(port, name) for port in PORTS for name in vars(port) if not name.startswith("_")]

    assert [member for member in members if not member.__doc__] == []
