"""Oracle SQL: the queries by which another engine judges a view, all of it or only records that changes can have touched.

In: a view's original text; the names of changed rows, before and after. Out: the same query in Spark SQL, with the view's
key and, for sums and averages that Spark adds up in doubles, their tolerances; SQL for the keys of the records that
changes can have touched, or why there is none. Always: it uses the text's own expressions, not our planner's, and nothing of
`operators` or `engine`. Only the layout of a join's key is taken from the plan, and only for inner joins of base tables,
each named once. No key is left out that a change can have touched, and a key too many only costs its comparison.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlglot import expressions as exp

from viewkeeper.algebra.relations import Scan
from viewkeeper.algebra.row_key import row_key
from viewkeeper.catalog.catalog import Catalog, ViewDefinition
from viewkeeper.check.error_tolerant_sql import make_error_tolerant
from viewkeeper.check.query_blocks import (
    Block,
    Tables,
    asked_of,
    blocks_of,
    changed_name,
    columns_named,
    expanded_query,
    known,
    make_exact,
    name_of,
    parsed,
    parts_of,
    text_of,
)
from viewkeeper.model.schema import Column
from viewkeeper.plan.define import lower
from viewkeeper.plan.nodes import TopNode


def join_key(catalog: Catalog, view: ViewDefinition, block: Block) -> list[exp.Expression] | None:
    """The parts of the view's key as the block can select them; None where that is not known."""
    aliases = aliases_of(block)
    parts = row_key(lower(catalog, view).relation)
    if aliases is None or len(parts) != len(view.node.key):
        return None
    found = [(int(part.origin.table.id), part.number) for part in parts if isinstance(part.origin, Scan)]
    if len(found) < len(parts) or any(table not in aliases for table, _ in found):
        return None
    tables = {int(table.id): table for table in block.tables.values()}
    return [exp.column(tables[table].key[number], table=aliases[table], quoted=True) for table, number in found]


def aliases_of(block: Block) -> dict[int, str] | None:
    """What the block calls each base table of its inner joins; None where it joins otherwise, or one table twice."""
    sources = [block.tree.args["from_"].this, *(join.this for join in block.joins)]
    if any(join.side or join.kind not in ("", "INNER", "CROSS") or join.method for join in block.joins):
        return None
    if not all(isinstance(one, exp.Table) and not one.args.get("joins") for one in sources):
        return None
    if any(one.args["alias"].args.get("columns") for one in sources):
        return None
    aliases = {int(block.tables[one.name].id): one.alias for one in sources}
    return aliases if len(aliases) == len(sources) else None


@dataclass(frozen=True, slots=True)
class OracleQuery:
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


def oracle_query_for(catalog: Catalog, view: ViewDefinition, *, error_tolerant: bool) -> OracleQuery:
    """The query to run. `error_tolerant`: in a form on which Spark does not stop where the view has a result."""
    if view.kind == "INDEX":
        tree, tables = index_tree(catalog, view)
        shown = {item.column.name for item in view.shown}
        columns = {name: [one for one in table.columns if one.name in shown] for name, table in tables.items()}
        sql = _numbered(view, tree, None, {})
        return OracleQuery(sql, tables, columns, _shown_key(view), {}, is_near=False, doubt=None)
    tree, tables = expanded_query(catalog, view)
    key, bounds = _ask_more(catalog, view, tree, tables)
    columns = {name: columns_named(tree, table.columns) for name, table in tables.items()}
    blocks = blocks_of(tree, tables)
    is_near = any(block.rounded for block in blocks if not (bounds and block.tree is tree))
    for block in blocks:
        make_exact(block, wide=error_tolerant)
        if error_tolerant:
            make_error_tolerant(block)
    doubt = None
    if any(isinstance(node, TopNode) and not node.is_total for node in lower(catalog, view).nodes):
        doubt = "its ORDER BY leaves rows equal, of which Spark may take others; with the key in it there are none"
    elif error_tolerant and any(block.sums_wide_decimals for block in blocks):
        doubt = "a sum of DECIMAL leaves 38 digits in Spark, perhaps on its way to one that fits"
    return OracleQuery(_numbered(view, tree, key, bounds), tables, columns, key, bounds, is_near, doubt)


def _numbered(view: ViewDefinition, tree: exp.Query, key: Sequence[int] | None, bounds: Mapping[int, int]) -> str:
    """The query with its columns numbered, and instants without a zone."""
    shown = [item.column for item in view.shown]
    beside = view.node.key if key is not None and any(index >= len(shown) for index in key) else ()
    kinds = [*(column.type.kind for column in (*shown, *beside)), *("DOUBLE" for _ in bounds)]
    names = [f"c{index}" for index in range(len(kinds))]
    items = [f"CAST({c} AS TIMESTAMP_NTZ) AS {c}" if k == "TIMESTAMP" else c for c, k in zip(names, kinds, strict=True)]
    return f"SELECT {', '.join(items)} FROM ({text_of(tree)}) AS answer ({', '.join(names)})"


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
        return [block.tree.expressions[index].unalias() for index in shown or ()] if is_whole else None
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
    indexes = {value: behind + number for number, value in enumerate(bounds)}
    if keys is None:
        return (_shown_key(view) if view.kind == "DISTINCT" and tree.args.get("distinct") else None), indexes
    return tuple(range(width, behind)), indexes


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
    indexes = {item.index: index for index, item in enumerate(view.shown) if item.part == "key"}
    return tuple(indexes[part] for part in range(len(indexes))) if len(indexes) == len(view.node.key) else None


def _bounds(view: ViewDefinition, block: Block) -> dict[int, exp.Expression]:
    """For each value shown that is computed from sums of doubles, how far Spark's may be from the exact one."""
    items = [item.unalias() for item in block.tree.expressions]
    if len(items) != len(view.shown):  # a star over groups
        return {}
    found, doubles = {}, block.rounded
    for index, (item, shown) in enumerate(zip(items, view.shown, strict=True)):
        sums = [call for call in doubles if any(part is call for part in parts_of(item))]
        if sums and shown.column.type.kind == "DOUBLE":
            found[index] = parsed(_bound(item, sums))
    return found


def _bound(value: exp.Expression, sums: Sequence[exp.AggFunc]) -> str:
    errors = [error(asked_of(part, wide=False)) for part in sums if (error := known(part).error)]
    if value in sums or (isinstance(value, exp.Filter) and value.this in sums):
        return errors[0]
    # error propagation through an expression is not computed: a billionth of the value, and of what was summed
    return f"1E-9D * ABS(CAST({text_of(value)} AS DOUBLE)) + {' + '.join(errors)}"


def changed_keys(catalog: Catalog, view: ViewDefinition) -> tuple[str, str | None]:
    """SQL for the keys `k0`, `k1`, … of the records that changes can have touched; or why a check is of all records.

    Changed rows are read from tables named by `changed_name`. A row of a join meets rows of the other tables as they are
    and as they were: all that it can have met.
    """
    tree, tables = index_tree(catalog, view) if view.kind == "INDEX" else expanded_query(catalog, view)
    if not isinstance(tree, exp.Select) or any(tree.args.get(clause) for clause in ("order", "limit")):
        return "", "its text has a set operation, ORDER BY or LIMIT"
    if len(list(tree.find_all(exp.Query))) > 1:
        return "", "its text has a query inside, or is over another view"
    block = Block(tree, tables)
    aliases, keys = aliases_of(block), keys_of(catalog, view, block)
    if aliases is None or keys is None:
        return "", "its text has an outer join, or does not tell the key of its records"
    found = [_reached(block, keys, index) for index in range(len(aliases))]
    names = ", ".join(f"k{index}" for index in range(len(keys) or 1))
    kinds = [column.type.kind for column in view.node.key] or ["BOOLEAN"]
    items = [f"CAST(k{i} AS TIMESTAMP_NTZ) AS k{i}" if kind == "TIMESTAMP" else f"k{i}" for i, kind in enumerate(kinds)]
    return f"SELECT DISTINCT {', '.join(items)} FROM ({' UNION ALL '.join(found)}) AS touched ({names})", None


def restricted(question: OracleQuery, affected: str) -> str:
    """The query for the records alone whose keys are in the table `affected`."""
    same = " AND ".join(f"c{index} <=> k{part}" for part, index in enumerate(question.key or ())) or "TRUE"
    return f"SELECT every.* FROM ({question.sql}) AS every LEFT SEMI JOIN {affected} AS touched ON {same}"


def _reached(block: Block, keys: Sequence[exp.Expression], index: int) -> str:
    """The keys of records that changed rows of the table at `place` can be in: of these alone, where they have the key."""
    items = [exp.alias_(key.copy(), f"k{part}") for part, key in enumerate(keys)] or [exp.alias_(exp.true(), "k0")]
    alone = exp.Select(expressions=[item.copy() for item in items])
    alone.set("from_", exp.From(this=_sources(block.tree)[index].copy()))
    if not block.joins or Block(alone, block.tables).binds([item.copy() for item in alone.expressions]):
        return _changed_rows_sql(alone, block.tables, 0)
    joined = exp.Select(expressions=items)
    for part in ("from_", "where"):
        if block.tree.args.get(part):
            joined.set(part, block.tree.args[part].copy())
    joined.set("joins", [join.copy() for join in block.joins])
    return _changed_rows_sql(joined, block.tables, index)


def _changed_rows_sql(tree: exp.Select, tables: Tables, index: int) -> str:
    """The SELECT over changed rows at `place` and, of the other tables, rows as they are and as they were."""
    make_error_tolerant(Block(tree, tables))
    for number, source in enumerate(_sources(tree)):
        table, alias = tables[source.name], source.args["alias"]
        changed = exp.to_identifier(changed_name(table), quoted=True)
        if number == index:
            source.set("this", changed)
            continue
        either = exp.union(exp.select("*").from_(exp.Table(this=source.this.copy())),
                           exp.select("*").from_(exp.Table(this=changed)), distinct=False)  # fmt: skip
        source.replace(exp.Subquery(this=either, alias=alias.copy()))
    return text_of(tree)


def _sources(tree: exp.Select) -> list[exp.Table]:
    return [tree.args["from_"].this, *(join.this for join in tree.args.get("joins") or [])]
