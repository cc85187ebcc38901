"""Affected: which records of a view changes of base rows can have touched.

In: a view's original text, and the names under which an engine has the changed rows, before and after. Out: SQL for the
keys of these records, or why there is none. Always: the text's own expressions; no key is left out that a change can
have touched, and a key too many only costs its comparison. Nothing of `operators` or `engine` is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import expressions as exp

from viewkeeper.catalog.catalog import Catalog, ViewDefinition
from viewkeeper.check.blocks import Block, text_of
from viewkeeper.check.care import take_care
from viewkeeper.check.expansion import Tables, changed_name, spelled_out
from viewkeeper.check.joinkeys import aliases_of
from viewkeeper.check.questions import Question, index_tree, keys_of
from viewkeeper.errors import ViewKeeperError


@dataclass(frozen=True, slots=True)
class Affected:
    """SQL for the keys `k0`, `k1`, … of the records that may have been touched, or why a check is of all records."""

    sql: str = ""
    why_not: str | None = None


def affected_by_changes(catalog: Catalog, view: ViewDefinition) -> Affected:
    """What tells the records of a view that changes of its tables can have touched.

    Changed rows are read from tables named by `changed_name`. A row of a join meets rows of the other tables as they are
    and as they were: all that it can have met.
    """
    tree, tables = index_tree(catalog, view) if view.kind == "INDEX" else spelled_out(catalog, view)
    if not isinstance(tree, exp.Select) or any(tree.args.get(clause) for clause in ("order", "limit")):
        return Affected(why_not="its text is more than one SELECT, or has ORDER BY")
    if len(list(tree.find_all(exp.Query))) > 1:
        return Affected(why_not="its text has a query inside, or is over another view")
    block = Block(tree, tables)
    aliases, keys = aliases_of(block), keys_of(catalog, view, block)
    if aliases is None or keys is None:
        return Affected(why_not="its text has an outer join, or does not tell the key of its records")
    found = [_reached(block, keys, place) for place in range(len(aliases))]
    names = ", ".join(f"k{place}" for place in range(len(keys) or 1))
    kinds = [column.type.kind for column in view.node.key] or ["BOOLEAN"]
    items = [f"CAST(k{i} AS TIMESTAMP_NTZ) AS k{i}" if kind == "TIMESTAMP" else f"k{i}" for i, kind in enumerate(kinds)]
    return Affected(f"SELECT DISTINCT {', '.join(items)} FROM ({' UNION ALL '.join(found)}) AS touched ({names})")


def restricted(question: Question, affected: str) -> str:
    """The query for the records alone whose keys are in the table `affected`."""
    same = " AND ".join(f"c{place} <=> k{part}" for part, place in enumerate(question.key or ())) or "TRUE"
    return f"SELECT every.* FROM ({question.sql}) AS every LEFT SEMI JOIN {affected} AS touched ON {same}"


def _reached(block: Block, keys: Sequence[exp.Expression], place: int) -> str:
    """The keys of records that changed rows of the table at `place` can be in: of these alone, where they have the key."""
    items = [exp.alias_(key.copy(), f"k{part}") for part, key in enumerate(keys)] or [exp.alias_(exp.true(), "k0")]
    alone = exp.Select(expressions=[item.copy() for item in items])
    alone.set("from_", exp.From(this=_sources(block.tree)[place].copy()))
    if not block.joins or _binds(alone, block.tables):
        return _asked(alone, block.tables, 0)
    joined = exp.Select(expressions=items)
    for part in ("from_", "where"):
        if block.tree.args.get(part):
            joined.set(part, block.tree.args[part].copy())
    joined.set("joins", [join.copy() for join in block.joins])
    return _asked(joined, block.tables, place)


def _asked(tree: exp.Select, tables: Tables, place: int) -> str:
    """The SELECT over changed rows at `place` and, of the other tables, rows as they are and as they were."""
    take_care(Block(tree, tables))
    for number, source in enumerate(_sources(tree)):
        table, alias = tables[source.name], source.args["alias"]
        changed = exp.to_identifier(changed_name(table), quoted=True)
        if number == place:
            source.set("this", changed)
            continue
        either = exp.union(exp.select("*").from_(exp.Table(this=source.this.copy())),
                           exp.select("*").from_(exp.Table(this=changed)), distinct=False)  # fmt: skip
        source.replace(exp.Subquery(this=either, alias=alias.copy()))
    return text_of(tree)


def _sources(tree: exp.Select) -> list[exp.Table]:
    return [tree.args["from_"].this, *(join.this for join in tree.args.get("joins") or [])]


def _binds(tree: exp.Select, tables: Tables) -> bool:
    """Whether the SELECT needs no other table."""
    try:
        Block(tree, tables).bound([item.copy() for item in tree.expressions])
    except ViewKeeperError:
        return False
    return True
