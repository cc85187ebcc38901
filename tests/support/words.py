"""Words that the source should not use as identifiers, with what to say in their place.

In: an identifier. Out: the forbidden words in it. Always: a word of `WORDS` counts where it is a part of an identifier
(`told_by`, `_is_behind`); a name of `NAMES` where it is the whole identifier, underscores in front aside; a name of
`MODULES` where a module or a folder is called so, because as a local variable it may be right (`pairs`, `lock`, `tail`).
"""

from __future__ import annotations

import re
from functools import cache

WORDS: dict[str, str] = {
    "anew": "reset, rebuild",
    "behind": "after, tail, suffix",
    "blame": "view_errors",
    "blamed": "attribute_errors_to",
    "floor": "gc watermark",
    "gone": "missing, dropped",
    "horizon": "read frontier",
    "lessen": "pre_combine",
    "place": "index, position",
    "places": "indexes, positions",
    "settle": "await_moves",
    "settled": "quiesced, safe_epoch",
    "stand": "remain, be",
    "stands": "remains, is",
    "tell": "report",
    "told": "message, report",
    "twin": "shadow",
    "twins": "shadow_views",
    "unsettled": "not quiesced",
    "untold": "missing_changes",
    "void": "aborted",
}

NAMES: dict[str, str] = {
    "Borders": "SplitPoints",
    "Edge": "EdgeScan",
    "Entries": "MultisetBlocks",
    "Exceptions": "ErrorLists",
    "Held": "Snapshot",
    "Holder": "Lease",
    "Keeping": "RetentionPolicy",
    "LittleUpkeep": "Unsupported",
    "Moment": "ReadTimestamp",
    "NoNodes": "Unsupported",
    "Seen": "Lookahead",
    "Step": "RecordChange",
    "apart": "independent",
    "aside": "error_lists",
    "asof": "snapshot_reader",
    "beat": "heartbeat",
    "cell_delta": "base_copy",
    "gauge": "progress",
    "heldfile": "file_lock",
    "hold": "snapshot",
    "join_by_twos": "binary_joins",
    "keyspans": "key_ranges",
    "lend": "use_executor",
    "logfacts": "log_state",
    "look": "scan_ahead",
    "mapoptions": "mapping",
    "metarow": "meta_table",
    "newdirectory": "atomic_directory",
    "newnode": "rebalance",
    "nodestore": "local_store",
    "rowgroups": "write_groups",
    "rowranges": "key_ranges",
    "side_rows": "arrangement",
    "sincelast": "incremental_check",
    "start_views_anew": "reset_views",
    "storenode": "node",
    "together": "group_atomically",
    "uncover": "resurface",
    "usertables": "mapping",
    "value_blocks": "multiset_blocks",
    "waits": "lease",
    "ways_round": "alternatives",
    "writerlock": "writer_mutex",
}

MODULES: dict[str, str] = {
    "absent": "unsupported",
    "affected": "changed_keys",
    "altering": "rebalance",
    "answers": "render",
    "asides": "set_aside",
    "borders": "split_points",
    "care": "error_tolerant_sql",
    "claims": "lease",
    "computed": "udfs",
    "constants": "check_constants",
    "cuts": "histories",
    "cutting": "cut",
    "direct": "grouping_kernel",
    "edges": "edge_scan",
    "evaluated": "expression_batch",
    "finishing": "await_request",
    "growth": "check_text_growth",
    "held": "snapshot",
    "images": "foreign_rows",
    "interrupting": "interruptible",
    "judging": "verify",
    "keeping": "retention",
    "lock": "pipeline_lock",
    "measured": "work_stats",
    "moments": "read_timestamps",
    "moving": "rebalance",
    "opening": "open",
    "pace": "runtime_choice",
    "pairs": "kv_batches",
    "plain": "json_codec",
    "questions": "oracle_sql",
    "quiet": "jvm_noise",
    "ragged": "varbinary",
    "reasons": "set_aside",
    "recent": "record_cache",
    "refusals": "unsupported",
    "shared": "merged_view",
    "sharing": "merge_conditions",
    "sharings": "shared_state",
    "spread": "executor",
    "spreading": "executor_pool",
    "staged": "snapshot_chunks",
    "staging": "snapshot_copy",
    "starting": "lazy_session",
    "swaps": "cas",
    "tail": "lookahead",
    "texts": "utf8",
    "verdicts": "check_state",
    "wishes": "scale_requests",
    "wording": "plural",
}

SAY = WORDS | NAMES | MODULES
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+")


@cache
def forbidden_words(identifier: str) -> tuple[str, ...]:
    """The words of the list in an identifier, each once."""
    whole = identifier.lstrip("_")
    parts = {part.lower() for part in _PART.findall(whole)}
    return tuple(sorted((parts & WORDS.keys()) | ({whole} & NAMES.keys())))
