"""URLs of stores: `SCHEME:WHERE[?OPTION=VALUE&…]`.

In: a URL, and the options of its adapter. Out: where the store is, and its options as text. Always: an unknown option,
or one with an invalid value, is refused before anything is made.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from urllib.parse import parse_qsl

from viewkeeper.errors import InputError
from viewkeeper.model.nearest import suggestion

NODES_MAX = 64
PARTITIONS_MAX = 128
MAP_MB_MIN, MAP_MB_MAX = 16, 1 << 20
_SEED_DIGITS_MAX = 18
_SECONDS = re.compile(r"\d{1,20}(\.\d{1,20})?")
_SECONDS_MIN = 0.001
_SECONDS_MAX = {"retention": 10**9, "late": 10**6, "every": 86_400}  # of HBase: logs may be kept for years
_WAIT_SECONDS_MAX = 2_000_000  # of a wait: in milliseconds it is a number of 32 bits


def split_url(url: str, known: Sequence[str]) -> tuple[str, dict[str, str]]:
    """The text between the scheme and the options, and the options, each one of the `known` ones."""
    where, _, query = url.partition(":")[2].partition("?")
    options = dict(parse_qsl(query, keep_blank_values=True))
    for name, value in options.items():
        if name not in known:
            raise InputError(f"the URL option {name} is unknown", suggestion(name, known, "known are"))
        _require_value(name, value)
    return where, options


def _require_value(name: str, value: str) -> None:
    match name:
        case "nodes":
            if not value.isdecimal() or not 1 <= int(value) <= NODES_MAX:
                raise InputError(f"nodes={value} is not a number of nodes", f"use 1 to {NODES_MAX}")
        case "map_mb":
            if not value.isdecimal() or not MAP_MB_MIN <= int(value) <= MAP_MB_MAX:
                raise InputError(f"map_mb={value} is not a size of maps", f"use {MAP_MB_MIN} to {MAP_MB_MAX:,}")
        case "partitions":
            if not value.isdecimal() or not 1 <= int(value) <= PARTITIONS_MAX:
                raise InputError(f"partitions={value} is not a number of partitions", f"use 1 to {PARTITIONS_MAX}")
        case "busy_timeout" | "timeout" | "patience" | "late" | "retention" | "every":
            most = _SECONDS_MAX.get(name, _WAIT_SECONDS_MAX)
            if not _SECONDS.fullmatch(value) or not _SECONDS_MIN <= float(value) <= most:
                raise InputError(
                    f"{name}={value} is not a number of seconds", f"use {_SECONDS_MIN} to {most:,}, as in 2.5"
                )
        case "rootdir":
            pass
        case "seed":
            if not value.isdecimal() or len(value) > _SEED_DIGITS_MAX:
                raise InputError(f"seed={value} is not a seed", "use a whole number, as in seed=7")
        case _:
            if value not in ("on", "off"):
                raise InputError(f"{name}={value} is not an option", f"use {name}=on or {name}=off")


def require_same(options: Mapping[str, str], *, nodes: int, before_images: bool) -> None:
    """Raise where options differ from what was fixed when the store was made."""
    if "nodes" in options and int(options["nodes"]) != nodes:
        raise InputError(
            f"the store was made with {nodes} nodes, not {options['nodes']}",
            "leave ?nodes out; ALTER STORE ADD NODE adds one",
        )
    if "before_images" in options and (options["before_images"] == "on") != before_images:
        raise InputError(
            f"the store's log is kept {'with' if before_images else 'without'} before-images",
            "that is fixed when the store is made: leave ?before_images out",
        )
