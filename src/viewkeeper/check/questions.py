"""Questions: the queries by which another engine judges a view.

In: a view's original text. Out: the same query in Spark SQL, with the view's key and, for sums and averages that Spark
adds up in doubles, their tolerances. Always: it uses the text's own expressions, not our planner's; nothing of
`operators` or `engine` is used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlglot import expressions as exp

from viewkeeper.catalog.catalog import Catalog, ViewDefinition
from viewkeeper.catalog.define import lower
from viewkeeper.check.blocks import (
    Block,
    asked_of,
    blocks_of,
    columns_named,
    known,
    make_exact,
    parsed,
    parts_of,
    text_of,
)
from viewkeeper.check.care import take_care
from viewkeeper.check.expansion import Tables, name_of, spelled_out
from viewkeeper.check.joinkeys import join_key
from viewkeeper.model.schema import Column
from viewkeeper.plan.nodes import TopNode


@dataclass(frozen=True, slots=True)
class Question:
    """SQL over tables under their names; the result has the values shown, then the extra columns asked for.

    Its columns are `c0`, `c1`, …; a TIMESTAMP is naive, and means UTC.

    `key` are the indexes of the view's key in the result, which is unique there; None where it cannot be selected, and
    then rows are compared as a bag. `bounds` maps the index of a value to that of its tolerance. `is_near`: a DOUBLE
    may come from sums of doubles further below, and be off by a billionth.
    """

    sql: str
    tables: Tables
    columns: dict[str, list[Column]]  # those that it reads, by the name of the table
    key: tuple[int, ...] | None
    bounds: dict[int, int]
    is_near: bool
    doubt: str | None  # why Spark's result may differ though the view is right


def question_for(catalog: Catalog, view: ViewDefinition, *, careful: bool) -> Question:
    """The query to run. `careful`: in a form on which Spark does not stop where the view has a result."""
    if view.kind == "INDEX":
        return _index_question(catalog, view)
    tree, tables = spelled_out(catalog, view)
    key, bounds = _ask_more(catalog, view, tree, tables)
    columns = {name: columns_named(tree, table.columns) for name, table in tables.items()}
    blocks = blocks_of(tree, tables)
    is_near = any(block.rounded for block in blocks if not (bounds and block.tree is tree))
    for block in blocks:
        make_exact(block, wide=careful)
        if careful:
            take_care(block)
    doubt = _doubt(catalog, view, blocks, careful=careful)
    return Question(_numbered(view, tree, key, bounds), tables, columns, key, bounds, is_near, doubt)


def _numbered(view: ViewDefinition, tree: exp.Query, key: Sequence[int] | None, bounds: Mapping[int, int]) -> str:
    """The query with its columns numbered, and instants without a zone."""
    shown = [item.column for item in view.shown]
    beside = view.node.key if key is not None and any(place >= len(shown) for place in key) else ()
    kinds = [*(column.type.kind for column in (*shown, *beside)), *("DOUBLE" for _ in bounds)]
    names = [f"c{place}" for place in range(len(kinds))]
    items = [f"CAST({c} AS TIMESTAMP_NTZ) AS {c}" if k == "TIMESTAMP" else c for c, k in zip(names, kinds, strict=True)]
    return f"SELECT {', '.join(items)} FROM ({text_of(tree)}) AS answer ({', '.join(names)})"


def _doubt(catalog: Catalog, view: ViewDefinition, blocks: Sequence[Block], *, careful: bool) -> str | None:
    if any(isinstance(node, TopNode) and not node.is_total for node in lower(catalog, view).nodes):
        return "its ORDER BY leaves rows equal, of which Spark may take others; with the key in it there are none"
    if careful and any(block.sums_wide_decimals for block in blocks):
        return "a sum of DECIMAL leaves 38 digits in Spark, perhaps on its way to one that fits"
    return None


def _index_question(catalog: Catalog, view: ViewDefinition) -> Question:
    tree, tables = index_tree(catalog, view)
    names = {item.column.name for item in view.shown}
    columns = {name: [one for one in table.columns if one.name in names] for name, table in tables.items()}
    return Question(_numbered(view, tree, None, {}), tables, columns, _shown_key(view), {}, is_near=False, doubt=None)


def index_tree(catalog: Catalog, view: ViewDefinition) -> tuple[exp.Query, Tables]:
    """An index as a query over its table."""
    table = catalog.tables_by_id[view.names[0][1]].as_of(view.id)
    source = exp.Table(this=exp.to_identifier(name_of(table), quoted=True))
    source.set("alias", exp.TableAlias(this=exp.to_identifier(table.name, quoted=True)))
    shown = [exp.column(item.column.name, quoted=True) for item in view.shown]
    return exp.select(*shown).from_(source), {name_of(table): table}


def keys_of(catalog: Catalog, view: ViewDefinition, block: Block) -> list[exp.Expression] | None:
    """The parts of a view's key as its only SELECT computes them; None where that is not known."""
    shown = _shown_key(view)
    if view.kind == "INDEX" or (view.kind == "DISTINCT" and block.tree.args.get("distinct")):
        is_whole = shown is not None and len(block.tree.expressions) == len(view.shown)
        return [block.tree.expressions[place].unalias() for place in shown or ()] if is_whole else None
    return _keys(catalog, view, block)


def _ask_more(
    catalog: Catalog, view: ViewDefinition, tree: exp.Query, tables: Tables
) -> tuple[tuple[int, ...] | None, dict[int, int]]:
    """Add the key and tolerances, where the outermost SELECT allows it; returns their indexes in the result."""
    if not isinstance(tree, exp.Select):
        return None, {}
    block, width = Block(tree, tables), len(view.shown)
    bounds = _bounds(view, block) if block.is_grouped and not tree.args.get("distinct") else {}
    keys = _keys(catalog, view, block)
    more = [*(keys or ()), *bounds.values()]
    tree.set("expressions", [*tree.expressions, *(exp.alias_(part.copy(), f"__{i}") for i, part in enumerate(more))])
    behind = width + len(keys or ())
    places = {value: behind + number for number, value in enumerate(bounds)}
    if keys is None:
        return (_shown_key(view) if view.kind == "DISTINCT" and tree.args.get("distinct") else None), places
    return tuple(range(width, behind)), places


def _keys(catalog: Catalog, view: ViewDefinition, block: Block) -> list[exp.Expression] | None:
    """The parts of the view's key as the block can select them; None where it cannot."""
    if any(block.tree.args.get(clause) for clause in ("distinct", "order", "limit")):
        return None
    if block.is_grouped:
        groups = list(dict.fromkeys(block.groups))
        return groups if len(groups) == len(view.node.key) else None
    source = block.tree.args["from_"].this
    if block.joins:
        return join_key(catalog, view, block)
    if not isinstance(source, exp.Table) or source.args.get("joins") or len(view.needs) > 1:
        return None
    if source.args["alias"].args.get("columns"):
        return None
    return [exp.column(name, table=source.alias, quoted=True) for name in block.tables[source.name].key]


def _shown_key(view: ViewDefinition) -> tuple[int, ...] | None:
    """The indexes of the key among the values shown."""
    places = {item.index: place for place, item in enumerate(view.shown) if item.part == "key"}
    return tuple(places[part] for part in range(len(places))) if len(places) == len(view.node.key) else None


def _bounds(view: ViewDefinition, block: Block) -> dict[int, exp.Expression]:
    """For each value shown that is computed from sums of doubles, how far Spark's may be from the exact one."""
    items = [item.unalias() for item in block.tree.expressions]
    if len(items) != len(view.shown):  # a star over groups
        return {}
    found = {}
    doubles = block.rounded
    for place, (item, shown) in enumerate(zip(items, view.shown, strict=True)):
        sums = [call for call in doubles if any(part is call for part in parts_of(item))]
        if sums and shown.column.type.kind == "DOUBLE":
            found[place] = parsed(_bound(item, sums))
    return found


def _bound(value: exp.Expression, sums: Sequence[exp.AggFunc]) -> str:
    errors = [error(asked_of(part, wide=False)) for part in sums if (error := known(part).error)]
    if value in sums or (isinstance(value, exp.Filter) and value.this in sums):
        return errors[0]
    # error propagation through an expression is not computed: a billionth of the value, and of what was summed
    return f"1E-9D * ABS(CAST({text_of(value)} AS DOUBLE)) + {' + '.join(errors)}"
