"""The lines of an explained plan: the vertices of paper 3, in the order in which rows pass through them.

In: views, each with its relation and the nodes that keep parts of it. Out: lines that refer to their inputs by index.
Always: an input comes before its readers; a base table, a stored node and a view have one line, σ and π one for each time
that they are computed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from viewkeeper.algebra.relations import Join, Relation, RowsOfGroups, Scan, ViewRows, inputs_of, is_product
from viewkeeper.model.schema import TableId, TableSchema
from viewkeeper.plan.nodes import Node, OutputColumn

BASE, DELTA, ENTRIES, OPERATOR, VIEW = "base", "delta", "entries", "operator", "view"


@dataclass(frozen=True, slots=True)
class Explained:
    """A view to explain. `table` is its own, `stored` are those of the nodes that keep parts of its relation: several, if a
    part is needed with different columns. `nodes` are all of the view, by their tables; `shown` are its columns.
    """

    id: TableId
    name: str
    relation: Relation
    table: int | None = None
    stored: Mapping[Relation, Sequence[int]] = field(default_factory=dict)
    nodes: Mapping[int, Node] = field(default_factory=dict)
    shown: tuple[OutputColumn, ...] = ()


@dataclass(frozen=True, slots=True)
class Line:
    """A line that emits the rows of `relation`: of a base table; its DELTA; the REVERSE-JOIN below a join; an operator; or a
    view, which alone has a `name` and columns that are `shown`. `node` keeps it, if one does, in the table `stored`.
    """

    kind: str
    relation: Relation
    inputs: tuple[int, ...] = ()
    stored: int | None = None
    name: str = ""
    node: Node | None = None
    shown: tuple[OutputColumn, ...] = ()


Lines = tuple[Line, ...]
ViewOf = Callable[[TableId], Explained]


def lines_of(asked: Sequence[Explained], view_of: ViewOf, tables: Mapping[TableId, TableSchema]) -> Lines:
    """The lines of all that is `asked` for; `view_of` and `tables` return what it reads, as it is now."""
    builder = _Builder(view_of, tables)
    for view in asked:
        builder.add_view(view)
    return tuple(builder.lines)


class _Builder:
    def __init__(self, view_of: ViewOf, tables: Mapping[TableId, TableSchema]) -> None:
        self.lines: list[Line] = []
        self._view_of, self._tables = view_of, tables
        self._known: dict[tuple[str, int], int] = {}
        self._visits: Counter[tuple[int | None, Relation]] = Counter()

    def _add(self, line: Line) -> int:
        self.lines.append(line)
        if line.stored is not None:
            self._known[line.kind, line.stored] = len(self.lines) - 1
        return len(self.lines) - 1

    def add_view(self, view: Explained) -> int:
        if (VIEW, -view.id) not in self._known:
            source = self._add_relation(view.relation, view, view.table)
            node = view.nodes.get(view.table or 0)
            line = Line(VIEW, view.relation, (source,), view.table, view.name, node, view.shown)
            self._known[VIEW, -view.id] = self._add(line)
        return self._known[VIEW, -view.id]

    def _add_relation(self, relation: Relation, view: Explained, reader: int | None) -> int:
        """The index of the line that emits the rows of `relation` to the stored node `reader`."""
        table = self._stored(relation, view, reader)
        if table is not None and (OPERATOR, table) in self._known:
            return self._known[OPERATOR, table]
        match relation:
            case Scan(table=base):
                return self._add_base(self._tables[base.id])
            case RowsOfGroups(input=below):
                return self._add_relation(below, view, reader)
            case ViewRows(view=other):
                known = self._known.get((VIEW, -other))
                return self.add_view(self._view_of(other)) if known is None else known
        reader = reader if table is None else table
        inputs = tuple(self._add_relation(part, view, reader) for part in inputs_of(relation))
        node = view.nodes.get(table or 0)
        if isinstance(relation, Join) and not is_product(relation):
            inputs = (self._add(Line(ENTRIES, relation, inputs, table, node=node)),)
        return self._add(Line(OPERATOR, relation, inputs, table, node=node))

    def _stored(self, relation: Relation, view: Explained, reader: int | None) -> int | None:
        """The table of the node that keeps the relation for `reader`; several are returned in turn."""
        edges = view.nodes[reader].edges if reader is not None and reader in view.nodes else ()
        read = {reader, *(edge.source for edge in edges)}
        found = [table for table in view.stored.get(relation, ()) if table in read]
        if len(found) < 2:
            return found[0] if found else None
        self._visits[reader, relation] += 1
        return found[min(self._visits[reader, relation], len(found)) - 1]

    def _add_base(self, table: TableSchema) -> int:
        """A table whose log has no before-images goes through its DELTA."""
        if (BASE, table.id) not in self._known:
            index = self._add(Line(BASE, Scan(table), (), table.id))
            if table.delta is not None:
                self._known[BASE, table.id] = self._add(Line(DELTA, Scan(table), (index,)))
        return self._known[BASE, table.id]


def views_of(lines: Lines) -> tuple[tuple[str, ...], ...]:
    """For each line the names of the views that need it, in the order of the plan."""
    needed_by: list[set[int]] = [set() for _ in lines]
    for index in reversed(range(len(lines))):
        if lines[index].kind == VIEW:
            needed_by[index].add(index)
        for source in lines[index].inputs:
            needed_by[source] |= needed_by[index]
    return tuple(tuple(lines[index].name for index in sorted(views)) for views in needed_by)
