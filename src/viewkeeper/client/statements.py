"""Statements: what each SQL statement does to a database.

In: SQL text. Out: a `Result`. Always: all statements of a text are parsed before the first is run, and each one is checked
in full before it writes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import cast

from viewkeeper.catalog.catalog import Catalog
from viewkeeper.catalog.create_text import create_text
from viewkeeper.client.connection import Connection
from viewkeeper.client.explaining import estimate_for, read_costs, read_model, read_statistics
from viewkeeper.client.result import Result
from viewkeeper.client.tables import Table
from viewkeeper.errors import DuplicateName, InputError, UnknownName, UnsupportedSql
from viewkeeper.model import syntax as sql
from viewkeeper.model.schema import TableId, TableSchema
from viewkeeper.model.stored_values import to_double
from viewkeeper.plan.define import define_index, define_view
from viewkeeper.plan.explain.explain import explain, explain_view
from viewkeeper.plan.replacements import optimize_views
from viewkeeper.sql.statement_parser import parse_statements

_WHAT = {"table": "a table", "view": "a view", "index": "an index"}


def execute(database: Connection, text: str) -> Result:
    """Run the statements of `text`; returns the result of the last one."""
    result = Result()
    for answer in execute_each(database, text):
        result = answer
    return result


def execute_each(database: Connection, text: str) -> Iterator[Result]:
    """Run the statements of `text`, and yield the result of each once it is done."""
    for statement in parse_statements(text):
        yield _run(database, statement)


def _run(database: Connection, statement: sql.Statement) -> Result:
    match statement:
        case sql.CreateTable():
            return _create_table(database, statement)
        case sql.AddColumns(table=table, columns=columns):
            names = ", ".join(column.name for column in columns)
            done = f"table {table} has the new column{'s'[: len(columns) - 1]} {names}"
            return _swap(database, lambda catalog: (catalog.with_columns(table, columns), done))
        case sql.AddNode() | sql.RemoveNode():
            return _alter_store(database, statement)
        case sql.Rename(name=old_name, new_name=new_name, is_table=is_table):
            done = f"{'table' if is_table else 'view'} {old_name} is called {new_name} now"
            return _swap(database, lambda catalog: (catalog.with_name(old_name, new_name, is_table=is_table), done))
        case sql.CreateView(or_replace=True):
            return _replace_view(database, statement)
        case sql.CreateView() | sql.CreateIndex():
            return _create_view(database, statement)
        case sql.Drop():
            return _drop(database, statement)
        case sql.ShowTables():
            tables = database.catalog().tables
            rows = tuple((t.name, ", ".join(t.key), ", ".join(c.name for c in t.value_columns)) for t in tables)
            return Result(("table", "key", "columns"), rows)
        case sql.ShowViews():
            return _show_views(database)
        case sql.OptimizeViews(without=without):
            return _optimize(database, without)
        case sql.ShowCreate(name=name, kind=kind):
            catalog = database.catalog()
            _require_kind(catalog, name, kind, "SHOW CREATE")
            entry = catalog.table(name) if kind == "table" else catalog.view(name)
            return Result(("statement",), ((create_text(catalog, entry),),))
        case sql.Describe(name=name):
            return _describe(database, name)
        case sql.Explain(name=name, query_text=query):
            return _explain(database, name, query)
        case sql.Select():
            from viewkeeper.client.select import select

            return select(database, statement)
        case sql.Insert() | sql.Update() | sql.DeleteRow():
            return _change_rows(database, statement)
    raise InputError(f"{type(statement).__name__} cannot be run here")


def _swap(database: Connection, change: Callable[[Catalog], tuple[Catalog, str]]) -> Result:
    """Change the catalog; `change` returns it with a message, and is repeated while others change it."""
    message = ""

    def changed(catalog: Catalog) -> Catalog:
        nonlocal message
        catalog, message = change(catalog)
        return catalog

    database.change_catalog(changed)
    return Result(message=message)


def _create_table(database: Connection, statement: sql.CreateTable) -> Result:
    name = statement.name

    def change(catalog: Catalog) -> tuple[Catalog, str]:
        if statement.if_not_exists and catalog.has(name):
            _require_same_kind(catalog, name, "table")
            return catalog, f"table {name} is there already"
        number = TableId(catalog.next_id)
        # a log without before-images needs DELTA, and DELTA needs every change from the table's first on
        delta = None if database.store.capabilities.before_images else TableId(number + 1)
        table = TableSchema(number, name, statement.columns, statement.key, delta)
        mapped = database.store.map_table(table, statement.using, dict(statement.options))
        if mapped is None:
            return catalog.with_table(table), f"table {name} created"
        foreign = replace(mapped.foreign, aside=TableId(number + 2))
        table = replace(table, delta=TableId(number + 1), foreign=foreign)
        return catalog.with_table(table), f"table {name} created; {mapped.told}"

    return _swap(database, change)


def _alter_store(database: Connection, statement: sql.AddNode | sql.RemoveNode) -> Result:
    database.require_writable()
    if isinstance(statement, sql.AddNode):
        done, told = database.store.add_node(), "added"
    else:
        done, told = database.store.remove_node(statement.number), "removed"
    return Result(message=f"node {done.node} {told}; {_rows(done.rows_moved)} moved")


def _create_view(database: Connection, statement: sql.CreateView | sql.CreateIndex) -> Result:
    name, kind = statement.name, "view" if isinstance(statement, sql.CreateView) else "index"
    stopped = database.store.read_epoch_record().stopped

    def change(catalog: Catalog) -> tuple[Catalog, str]:
        if statement.if_not_exists and catalog.has(name):
            _require_same_kind(catalog, name, kind)
            return catalog, f"{kind} {name} is there already"
        if isinstance(statement, sql.CreateView):
            estimate = estimate_for(database.store, catalog)
            found = define_view(catalog, name, statement.query_text, without=stopped, estimate=estimate)
        else:
            columns = statement.columns, statement.covered
            found = define_index(catalog, name, statement.table, *columns, without=stopped)
        return catalog.with_view(*found), f"{kind} {name} created"

    return _swap(database, change)


def _replace_view(database: Connection, statement: sql.CreateView) -> Result:
    record, name = database.store.read_epoch_record(), statement.name

    def change(catalog: Catalog) -> tuple[Catalog, str]:
        there = catalog.has(name)
        # what it replaces is made anew, even from the same text; nodes that other views also need are not
        own = catalog.own_nodes(catalog.view(name)) if there else ()
        stopped, estimate = {*record.stopped, *own}, estimate_for(database.store, catalog)
        view, nodes = define_view(catalog, name, statement.query_text, without=stopped, estimate=estimate)
        if not there:
            return catalog.with_view(view, nodes), f"view {name} created"
        if view.reads(catalog.view(name).id):
            raise InputError(f"view {name} would read itself", "name its tables")
        told = f"view {name} is being replaced: the old one is read until the new one is filled"
        return catalog.with_replacement(view, nodes, record.committed), told

    return _swap(database, change)


def _optimize(database: Connection, without: Sequence[str]) -> Result:
    store, known = database.store, database.catalog()
    before, rules = {view.id for view in known.kept}, tuple(name.lower() for name in without)
    statistics = read_statistics(store, known, known.views)
    sizes, model = {**statistics.rows, **statistics.records}, read_model(store, known, statistics)

    def change(catalog: Catalog) -> Catalog:
        while True:
            record = store.read_epoch_record()
            committed, filled, stopped = record.committed, record.filled, record.stopped
            changed = optimize_views(
                catalog, committed, without=rules, filled=filled, stopped=stopped, sizes=sizes, model=model
            )
            # a view that an epoch has filled meanwhile can be read, so it must not be replaced at once
            if store.read_epoch_record().filled == record.filled:
                return changed

    changed = [view for view in database.change_catalog(change).kept if view.id not in before]
    if not changed:
        return Result(message="no view gets another plan")
    sharings = [view.sharing for view in changed if view.sharing is not None]
    told = f"{len(changed)} view{'s'[: len(changed) - 1]} will have another plan"
    if sharings:
        told += f", {len(sharings)} of them over parts that views share ({len(set(sharings))} in all)"
    return Result(message=f"{told}; readers see the old records until the pipeline has filled the new ones")


def _drop(database: Connection, statement: sql.Drop) -> Result:
    name, kind, epoch = statement.name, statement.kind, database.store.read_frontier().committed

    def change(catalog: Catalog) -> tuple[Catalog, str]:
        if statement.if_exists and not catalog.has(name):
            return catalog, f"{kind} {name} is not there"
        _require_kind(catalog, name, kind, "DROP")
        drop = catalog.without_table if kind == "table" else catalog.without_view
        return drop(name, epoch=epoch), f"{kind} {name} dropped"

    return _swap(database, change)


def _require_kind(catalog: Catalog, name: str, kind: str, statement: str) -> None:
    found = catalog.kind_of(name)
    if found is None and kind == "index":
        raise UnknownName(f"there is no index {name}")
    if found not in (None, kind):
        raise UnknownName(f"{name} is {_WHAT[found]}, not {_WHAT[kind]}", f"{statement} {found.upper()} {name}")


def _require_same_kind(catalog: Catalog, name: str, kind: str) -> None:
    """IF NOT EXISTS: what exists must be of the kind to be made."""
    found = catalog.kind_of(name)
    if found is not None and found != kind:
        raise DuplicateName(f"{name} is {_WHAT[found]}, not {_WHAT[kind]}", "choose another name")


def _show_views(database: Connection) -> Result:
    filled, waiting = database.store.read_frontier().filled, database.catalog().replacements
    rows = []
    for view in database.catalog().views:
        state = "ready" if view.node.backfill in filled else "to be filled"
        twins = {"": "replaced", "repair": "repaired", "rebuild": "rebuilt"}
        state += "".join(f", being {twins[other.twin]}" for other in waiting if other.replaces[-1] == view.id)
        rows.append((view.name, view.kind, ", ".join(column.name for column in view.key), state))
    return Result(("view", "kind", "key", "state"), tuple(rows))


def _describe(database: Connection, name: str) -> Result:
    catalog = database.catalog()
    if not catalog.has(name):
        raise UnknownName(f"there is no table or view {name}", "SHOW TABLES and SHOW VIEWS list what there is")
    entry = catalog.named(name)
    if isinstance(entry, TableSchema):
        columns = entry.columns
        parts = [entry.key.index(column.name) if column.name in entry.key else None for column in columns]
    else:  # by position, because both sides of a join may have a column of that name
        columns = tuple(shown.column for shown in entry.shown)
        parts = [shown.index if shown.part == "key" else None for shown in entry.shown]
    key = entry.key_columns if isinstance(entry, TableSchema) else entry.key
    described = zip(columns, parts, strict=True)
    rows = [(c.name, str(c.type), c.nullable, "" if part is None else f"{part + 1}") for c, part in described]
    hidden = [(part, column) for part, column in enumerate(key) if part not in parts]
    rows += [(c.name, str(c.type), c.nullable, f"{part + 1}, not shown") for part, c in hidden]
    message = "" if isinstance(entry, TableSchema) else create_text(catalog, entry)
    return Result(("column", "type", "nullable", "key"), tuple(rows), message)


def _explain(database: Connection, name: str | None, query: str | None) -> Result:
    catalog = database.catalog()
    if query is None:
        text = explain(catalog, name, costs=read_costs(database.store, catalog, name))
    else:
        stopped, estimate = database.store.read_epoch_record().stopped, estimate_for(database.store, catalog)
        view, nodes = define_view(catalog, "explained", query, without=stopped, estimate=estimate)
        catalog = catalog.with_explained(view, nodes)
        text = explain_view(catalog, view, costs=read_costs(database.store, catalog))
    return Result(("plan",), tuple((line,) for line in text.splitlines()))


def _change_rows(database: Connection, statement: sql.Insert | sql.Update | sql.DeleteRow) -> Result:
    table = Table(database, database.catalog().table(statement.table))
    match statement:
        case sql.Insert(columns=columns, rows=rows):
            names = columns or tuple(column.name for column in table.schema.columns)
            for row in rows:
                if len(row) != len(names):
                    raise InputError(f"INSERT gives {len(row)} values for {len(names)} columns")
            table.put_many([_row_of(table.schema, zip(names, row, strict=True)) for row in rows])
            return Result(message=f"{_rows(len(rows))} put")
        case sql.Update(assignments=assignments, key=key):
            values = _key_values(table.schema, key)
            found = table.put_if(*values, _row_of(table.schema, assignments), expect={})
            return Result(message=f"{_rows(int(found))} updated")
        case _:
            found = table.delete_if(*_key_values(table.schema, statement.key), expect={})
            return Result(message=f"{_rows(int(found))} deleted")


def _row_of(schema: TableSchema, pairs: Iterable[tuple[str, object]]) -> dict[str, object]:
    """Literals as their columns take them: 1.5 is a DECIMAL in SQL, and becomes a DOUBLE in a DOUBLE column."""
    row = {}
    for name, value in pairs:
        column = schema.column(name)
        as_double = column.type.kind == "DOUBLE" and isinstance(value, Decimal)
        row[name] = to_double(column, cast(Decimal, value)) if as_double else value
    return row


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count} rows"


def _key_values(schema: TableSchema, where: Sequence[tuple[str, object]]) -> list[object]:
    """The key that a WHERE names: every key column, and only key columns."""
    given = {schema.column(name).name: value for name, value in where}
    for name in given:
        if name not in schema.key:
            fact = f"WHERE names {name}, which is not in the key of {schema.name}"
            raise UnsupportedSql(fact, "rows are changed by key; to test other columns use table.put_if")
    for name in schema.key:
        if name not in given:
            fact = f"WHERE gives no value for key column {name} of {schema.name}"
            raise InputError(fact, "give every key column with =")
    return [given[name] for name in schema.key]
