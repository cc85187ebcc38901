"""Lowering: from a bound relation to the nodes that an epoch runs for a view.

In: the relation that is computed for a view. Out: nodes in the order in which they are applied, each with its canonical
text, and where the records of the last one hold each output column. Always: pure. σ and π are part of the SQL of the node
that reads them; γ, ⋈ and top-n have records, and equal parts of a query are one node. A table is a negative number, until
the catalog assigns one.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar, cast

from viewkeeper.algebra.canonical import digest, spell, spell_all, spell_record
from viewkeeper.algebra.construct import compare
from viewkeeper.algebra.expressions import Aggregate, AggregationRef, ColumnRef, Expression, Literal, columns_of
from viewkeeper.algebra.relations import (
    Aggregation,
    Grouping,
    Index,
    Join,
    Output,
    Project,
    Relation,
    RowsOfGroups,
    Scan,
    Select,
    Top,
    Union,
    ViewRows,
    starts_of,
)
from viewkeeper.algebra.rewriting import aggregation_below, column_refs, over_columns
from viewkeeper.algebra.row_key import looked_up, regrouped
from viewkeeper.codegen.expression_sql import emit, group_key
from viewkeeper.errors import InvariantBroken
from viewkeeper.model.schema import Column, TableId
from viewkeeper.model.types import BIGINT, BOOLEAN, DOUBLE, INT
from viewkeeper.plan.aggregate_layout import AggregateLayout, Finer, lay_out_aggregation
from viewkeeper.plan.aggregate_nodes import aggregate_node
from viewkeeper.plan.nodes import AggregateNode, JoinNode, Node, OutputColumn, OutputNode, ProjectNode, Side, TopNode
from viewkeeper.plan.row_sql import Rows, Wanted, key_wanted, output_rows, scan_rows, united_rows
from viewkeeper.plan.share_copies import mark_of

Kept = TypeVar("Kept", bound=Node)
Shown = tuple[OutputColumn, ...]
RANK = Column("rank", INT, nullable=False)
Root = tuple[OutputNode, Shown, int | None]  # see `Lowered`


@dataclass(frozen=True, slots=True)
class Lowered:
    """The nodes that `relation` became, the view's own last; `texts[i]` is the canonical text of `nodes[i]`.

    `present`: the index in the last one's records of a mark that is false, or 0, in a record that is not of the view.
    """

    nodes: tuple[Node, ...]
    texts: tuple[str, ...]
    shown: Shown
    present: int | None
    relation: Relation
    relations: Mapping[Relation, Sequence[str]]  # which nodes keep it, by text: one for each choice of columns

    @property
    def root(self) -> OutputNode:
        """The node that writes the records that the view shows."""
        last = self.nodes[-1]
        if not isinstance(last, OutputNode):
            raise InvariantBroken("the last node of a view keeps no records for readers")
        return last

    def readers(self) -> dict[str, list[str]]:
        """The nodes that read each node, all by their texts."""
        text_of = dict(zip((node.table for node in self.nodes), self.texts, strict=True))
        readers: dict[str, list[str]] = {text: [] for text in self.texts}
        for text, node in zip(self.texts, self.nodes, strict=True):
            for edge in node.edges:
                if edge.source in text_of:
                    readers[text_of[edge.source]].append(text)
        return readers


def lower_view(relation: Relation) -> Lowered:
    """The nodes of the view whose text means `relation`."""
    return _Lowering().lowered(relation)


class _Lowering:
    """Collects the nodes of one view."""

    def __init__(self) -> None:
        self._nodes: dict[str, Node] = {}  # by canonical text
        self._texts: dict[TableId, str] = {}
        self._relations: dict[Relation, list[str]] = {}
        self._ids: Iterator[TableId] = (TableId(-number) for number in itertools.count(1))

    def table(self) -> TableId:
        return next(self._ids)

    def keep(self, text: str, node: Kept, relation: Relation) -> Kept:
        """The node that keeps `relation`, or an equal one that exists already."""
        whole = f"{text} | {_layout(node)}"
        known = self._nodes.setdefault(whole, node)
        self._texts[known.table] = whole
        texts = self._relations.setdefault(relation, [])
        if whole not in texts:
            texts.append(whole)
        return cast(Kept, known)

    def lowered(self, relation: Relation) -> Lowered:
        root, shown, present = self.root(relation)
        nodes = (*(node for node in self._nodes.values() if node is not root), root)
        texts = tuple(self._texts[node.table] for node in nodes)
        return Lowered(nodes, texts, shown, present, relation, self._relations)

    def root(self, relation: Relation) -> Root:
        """The node that keeps a view's records: a γ on top with its HAVING and π is one node, else it is a copy."""
        if isinstance(relation, Index):
            return *self._index(relation), None
        if not isinstance(relation, Project):
            relation = Project(relation, tuple(Output(one.name, one) for one in column_refs(relation)))
        mark = mark_of(relation.input)
        match relation:
            case Project(input=Select(input=Aggregation() as aggregation), outputs=outputs) if mark is not None:
                marked = [*outputs, Output("present", mark)]
                node, shown = self._plain_aggregation(aggregation, aggregation.grouping, marked)
                return node, shown[:-1], shown[-1].index
            case Project(input=Select(input=Project() as kept), outputs=outputs) if mark is not None:
                return self._marked(kept, outputs, mark)
            case Project(input=Select(input=Aggregation() as aggregation, predicate=having), outputs=outputs):
                node, layout = self._aggregation(aggregation, aggregation.grouping, outputs, having)
                return node, layout.shown, None
            case Project(input=Aggregation() as aggregation, outputs=outputs):
                if all(isinstance(one.expression, AggregationRef) for one in outputs):
                    return *self._plain_aggregation(aggregation, aggregation.grouping, outputs), None
                node, layout = self._aggregation(aggregation, aggregation.grouping, outputs, None)
                return node, layout.shown, None
        return *self._copy(relation), None

    def _marked(self, kept: Project, outputs: Sequence[Output], mark: Expression) -> Root:
        """A γ or a copy that several views share, of which the outputs are only some columns."""
        node: OutputNode
        if isinstance(kept.input, Aggregation):
            node, layout = self._aggregation(kept.input, kept.input.grouping, kept.outputs, None)
            stored = layout.shown
        else:
            node, stored = self._copy(kept)
        positions = [one.expression.position for one in outputs if isinstance(one.expression, ColumnRef)]
        shown = tuple(replace(stored[at], column=one.column) for at, one in zip(positions, outputs, strict=True))
        return node, shown, stored[mark.position].index if isinstance(mark, ColumnRef) else None

    def _plain_aggregation(
        self, relation: Aggregation, grouping: Grouping, outputs: Sequence[Output]
    ) -> tuple[AggregateNode, Shown]:
        """γ whose groups and aggregates are shown unchanged: the same node for every view that shows some of them."""
        groups, aggregates = grouping.groups, tuple(sorted(grouping.aggregates, key=spell))
        node, layout = self._aggregation(relation, Grouping(groups, aggregates), _of_groups(groups, aggregates), None)
        position_of: dict[Expression, int] = {one: len(groups) + at for at, one in enumerate(aggregates)}
        references = [output.expression for output in outputs if isinstance(output.expression, AggregationRef)]
        stored = [layout.shown[one.position if one.source == "group" else position_of[one.of]] for one in references]
        return node, tuple(replace(at, column=one.column) for one, at in zip(outputs, stored, strict=True))

    def _aggregation(
        self, relation: Aggregation, grouping: Grouping, outputs: Sequence[Output], having: Expression | None
    ) -> tuple[AggregateNode, AggregateLayout]:
        """The node of `relation`, which computes `grouping`: the same, with its aggregates in another order or more."""
        if isinstance(relation.input, RowsOfGroups):
            finer, records = self._finer(relation.input.input, grouping)
            layout, rows = lay_out_aggregation(grouping, outputs, having, finer), [records]
        else:
            layout = lay_out_aggregation(grouping, outputs, having)
            rows = self._rows(relation.input, frozenset(columns_of(*grouping.groups, *grouping.aggregates)))
        node = aggregate_node(layout, rows, self._ids)
        shown = dict.fromkeys(spell(output.expression) for output in outputs)
        text = f"γ by ({spell_all(grouping.groups)}) of ({spell_all(grouping.aggregates)}) as ({', '.join(shown)})"
        text += f" having {spell(having)}" if having is not None else ""
        return self.keep(f"{text} {_texts(rows)}", node, relation), layout

    def _finer(self, relation: Aggregation | Project, grouping: Grouping) -> tuple[Finer, Rows]:
        """The γ from whose records `grouping` is computed, and these records."""
        if isinstance(relation, Project):
            if not isinstance(relation.input, Aggregation):
                raise InvariantBroken("there is no finer γ")
            node, layout = self._aggregation(relation.input, relation.input.grouping, relation.outputs, None)
        else:
            parts = relation.grouping.groups, tuple(sorted(relation.grouping.aggregates, key=spell))
            node, layout = self._aggregation(relation, Grouping(*parts), _of_groups(*parts), None)
        groups = tuple(regrouped(one, layout.groups) for one in grouping.groups)
        return Finer(groups, len(node.key), layout.kept), self._output(node)

    def _output(self, node: OutputNode) -> Rows:
        """The records of a node as a source: its key, then its row."""
        positions = tuple(range(len(node.key)))
        text = digest(self._texts[node.table])
        return output_rows(node.table, node.key, positions, text, dict(enumerate(positions)))

    def _copy(self, relation: Project) -> tuple[ProjectNode, Shown]:
        """A copy under the row key; a key part that is shown is read from the key."""
        rows = self._rows(relation, frozenset(range(len(relation.outputs))))
        in_key = rows[0].key_of if len(rows) == 1 else {}
        shown: list[OutputColumn] = []
        stored: list[int] = []
        found: dict[Expression, int] = {}  # where in the row it is stored
        for place, output in enumerate(relation.outputs):
            if place in in_key:
                shown.append(OutputColumn(output.column, "key", in_key[place]))
                continue
            if output.expression not in found:
                found[output.expression] = len(stored)
                stored.append(place)
            shown.append(OutputColumn(output.column, "row", found[output.expression]))
        wanted = [(f"v{i}", None, f"c{place}") for i, place in enumerate(stored)]
        row = _columns_at(relation, stored)
        edges = tuple(one.edge([*key_wanted(one), *wanted], self._aside(one)) for one in rows)
        text = f"copy ({', '.join(f'c{place}' for place in stored)}) {_texts(rows)}"
        node = self.keep(text, ProjectNode(self.table(), edges, rows[0].key, row), relation)
        return node, tuple(shown)

    def _index(self, index: Index) -> tuple[ProjectNode, Shown]:
        """Rows under the indexed columns, then the parts of the base key that are not among them."""
        table, rows = index.input.table, scan_rows(index.input.table)
        base_key = [table.position(name) for name in table.key]
        wanted: list[Wanted] = []
        for place, position in enumerate(index.key):
            column = table.columns[position]
            # A base key is stored as it is; an indexed value is looked up by SQL equality.
            sql = f"c{position}" if position in base_key else group_key(f"c{position}", column.type)
            wanted.append((f"k{place}", _reference(column, position), sql))
        wanted += [(f"v{i}", _reference(table.columns[p], p), f"c{p}") for i, p in enumerate(index.covered)]
        key, row = (tuple(table.columns[p] for p in part) for part in (index.key, index.covered))
        shown = [OutputColumn(column, "key", place) for place, column in enumerate(key)]
        shown += [OutputColumn(column, "row", place) for place, column in enumerate(row)]
        columns = (", ".join(f"c{p}" for p in part) for part in (index.key, index.covered))
        text = "index by ({}) covering ({}) ".format(*columns) + rows.text
        node = self.keep(text, ProjectNode(self.table(), (rows.edge(wanted, None),), key, row), index)
        return node, tuple(shown)

    def _rows(self, relation: Relation, needed: frozenset[int], values: Sequence[Expression] = ()) -> list[Rows]:
        """The relation over its sources, with the columns that are needed of it; several when it is a union.

        `values` are expressions over a γ below that can fail: the γ computes them itself, after its columns, because a
        value of a group that fails reads NULL, whatever is above the group.
        """
        match relation:
            case Scan(table=table):
                return [scan_rows(table)]
            case Select(input=below, predicate=predicate):
                if predicate.fallible and aggregation_below(below) is not None:  # a HAVING
                    values = tuple(dict.fromkeys((*values, predicate)))
                predicate = over_columns(predicate, below, values)
                rows = self._rows(below, needed | frozenset(columns_of(predicate)), values)
                return [one.select(predicate) for one in rows]
            case Project(input=below, outputs=outputs):
                parts = [output.expression for output in outputs]
                failing = (one for one in parts if one.fallible and not isinstance(one, AggregationRef))
                values = tuple(dict.fromkeys(failing)) if aggregation_below(below) is not None else ()
                plain = {place: over_columns(part, below, values) for place, part in enumerate(parts)}
                # an unneeded expression is still evaluated where it can fail: its rows are set aside
                kept = {place: part for place, part in plain.items() if place in needed or part.fallible}
                rows = self._rows(below, frozenset(columns_of(*kept.values())), values)
                return [one.project(kept) for one in rows]
            case Aggregation():
                return [self._groups(relation, needed, values)]
            case ViewRows(input=below):
                node, shown, present = self.root(below)
                return [self._records(node, shown, below.columns, needed, present)]
            case Join():
                return [self._join(relation, needed)]
            case Union(inputs=inputs):
                return united_rows([one for part in inputs for one in self._rows(part, needed)])
            case Top():
                return [self._top(relation, needed)]
        raise InvariantBroken(f"no rows for {relation!r}")

    def _groups(self, aggregation: Aggregation, needed: frozenset[int], values: Sequence[Expression]) -> Rows:
        """The output of a γ inside a query: its groups, its aggregates, and the `values` over them."""
        grouping = aggregation.grouping
        if not (grouping.groups or grouping.aggregates or values):
            grouping = Grouping((), (Aggregate("count", (), BIGINT),))  # so that it has output: that it exists
        outputs = _of_groups(grouping.groups, grouping.aggregates)
        if values:
            outputs += [Output(value.text, value) for value in values]
            node, layout = self._aggregation(aggregation, grouping, outputs, None)
            shown = layout.shown
        else:
            node, shown = self._plain_aggregation(aggregation, grouping, outputs)
        return self._records(node, shown, [item.column for item in shown], needed)

    def _records(
        self,
        node: OutputNode,
        shown: Shown,
        columns: Sequence[Column],
        needed: frozenset[int],
        present: int | None = None,
    ) -> Rows:
        """A node's records as a source: the `columns` that are needed; only where the mark at `present` is true, or not 0."""
        rows, width = self._output(node), len(node.key)
        if present is not None:
            mark = _reference(node.row[present], width + present)
            rows = rows.select(mark if mark.type == BOOLEAN else compare(">", mark, Literal(0, BIGINT)))
        at = [item.index + (0 if item.part == "key" else width) for item in shown]
        return rows.project({place: _reference(columns[place], at[place]) for place in sorted(needed)})

    def _join(self, join: Join, needed: frozenset[int]) -> Rows:
        starts, residual = starts_of(join.sides), join.residual
        needed |= frozenset(columns_of(residual)) if residual is not None else frozenset()
        kept = [
            tuple(p for p in range(len(side.columns)) if p + start in needed)
            for side, start in zip(join.sides, starts, strict=True)
        ]
        rows = [
            self._rows(side, frozenset(own) | frozenset(columns_of(*keys)))
            for side, own, keys in zip(join.sides, kept, join.keys, strict=True)
        ]
        behind = sum(len(side.columns) for side in join.sides)
        lookups = looked_up(join)
        sides: list[Side] = []
        for number, side in enumerate(rows):
            sides.append(self._side(join, number, side, kept[number], behind, is_lookup=number in lookups))
            behind += len(sides[-1].key)
        outer = join.kind != "inner"
        tagged = join.kind == "full" and all(all(part.nullable for part in side[0].key) for side in rows)
        node = JoinNode(
            table=self.table(),
            kind=join.kind,
            on=tuple(
                Column(parts[0].text, parts[0].type, any(part.nullable or part.fallible for part in parts))
                for parts in zip(*join.keys, strict=True)
            ),
            sides=tuple(sides),
            residual=None if residual is None else emit(residual),
            counts=self.table() if outer and residual is None else None,
            matches=self.table() if outer and residual is not None else None,
            tag_place=behind if tagged else None,
        )
        keys = " = ".join(f"({spell_all(part)})" for part in join.keys)
        text = f"⋈ {join.kind} on {keys}" + ("" if residual is None else f" where {spell(residual)}")
        text += f" of ({', '.join(map(str, sorted(needed)))})"
        node = self.keep(f"{text} {'; '.join(map(_texts, rows))}", node, join)
        loose, columns = join.kind in ("left", "full"), node.given
        key = tuple(Column(columns[p].name, columns[p].type, loose or columns[p].nullable) for p in node.given_key)
        at = 1 if tagged else 0
        key_of: dict[int, int] = {}
        for number in range(len(node.shown_sides)):
            side_keys = rows[number][0].key_of if len(rows[number]) == 1 and number not in lookups else {}
            key_of |= {place + starts[number]: at + part for place, part in side_keys.items()}
            at += len(sides[number].key)
        return output_rows(node.table, key, node.given_key, digest(self._texts[node.table]), key_of)

    def _side(
        self, join: Join, number: int, rows: Sequence[Rows], kept: tuple[int, ...], behind: int, *, is_lookup: bool
    ) -> Side:
        preserved = join.kind == "full" or (join.kind != "inner" and number == 0)
        keys, start = join.keys[number], starts_of(join.sides)[number]
        key = () if is_lookup else rows[0].key
        key_of = rows[0].key_of if len(rows) == 1 and not is_lookup else {}
        key_copies, on_copies = _copies(key, key_of, keys, kept)
        kept = tuple(place for place in kept if place not in key_copies and place not in on_copies)
        wanted: list[Wanted] = [(f"j{i}", part, group_key(emit(part), part.type)) for i, part in enumerate(keys)]
        columns = column_refs(join.sides[number])
        shown = [(f"v{i}", columns[place], f"c{place}") for i, place in enumerate(kept)]
        # a row that can match nothing and is not preserved is no row of the join
        names = [f"j{i}" for i, part in enumerate(keys) if part.nullable or part.fallible]
        present = () if preserved else tuple(names)
        keyed = [(one, [*wanted, *([] if is_lookup else key_wanted(one)), *shown]) for one in rows]
        return Side(
            edges=tuple(one.edge(asked, self._aside(one, keys), present=present) for one, asked in keyed),
            key=key,
            row=_columns_at(join.sides[number], kept),
            places=tuple(place + start for place in kept),
            key_places=tuple(range(behind, behind + len(key))),
            key_copies=tuple((place + start, part) for place, part in key_copies.items()),
            on_copies=tuple((place + start, part) for place, part in on_copies.items()),
            preserved=preserved,
        )

    def _top(self, top: Top, needed: frozenset[int]) -> Rows:
        expressions = [over_columns(part.expression, top.input) for part in top.order]
        rows = self._rows(top.input, needed | frozenset(columns_of(*expressions)))
        columns, kept = column_refs(top), tuple(sorted(needed))
        wanted: list[Wanted] = [(f"o{i}", part, group_key(emit(part), part.type)) for i, part in enumerate(expressions)]
        shown = [(f"v{i}", columns[place], f"c{place}") for i, place in enumerate(kept)]
        edges = tuple(one.edge([*wanted, *key_wanted(one), *shown], self._aside(one, expressions)) for one in rows)
        rank, key_of = len(columns), rows[0].key_of
        ordered = {key_of.get(part.position) for part in expressions if isinstance(part, ColumnRef)} - {None}
        node = TopNode(
            table=self.table(),
            edges=edges,
            order=tuple(Column(part.text, part.type, nullable=True) for part in expressions),
            descending=tuple(part.descending for part in top.order),
            nulls_first=tuple(part.nulls_first for part in top.order),
            key=rows[0].key,
            row=_columns_at(top, kept),
            places=kept,
            rank_place=rank,
            limit=top.limit,
            is_total=len(rows) == 1 and ordered == set(range(len(rows[0].key))),
        )
        directions = zip(expressions, top.order, strict=True)
        by = ", ".join(f"{spell(e)}{' desc' * o.descending}{' nulls first' * o.nulls_first}" for e, o in directions)
        text = f"top {top.limit} by ({by}) of ({', '.join(map(str, kept))}) {_texts(rows)}"
        table = self.keep(text, node, top).table
        return output_rows(table, (RANK,), (rank,), digest(self._texts[table]), {})

    def _aside(self, rows: Rows, expressions: Sequence[Expression] = ()) -> TableId | None:
        return self.table() if rows.can_fail(expressions) else None


def _layout(node: Node) -> str:
    """The layout of a node's records, and how many tables it has."""
    match node:
        case JoinNode(on=on, sides=sides):
            records = [spell_record(on, ()), *(spell_record(side.key, side.row) for side in sides)]
        case AggregateNode(key=key, group_row=row):
            records = [spell_record(key, row), *(spell_record(entries.values, ()) for entries in node.entries)]
            records += [spell_record(key, node.row)] if node.having else []
        case _:
            records = [spell_record(node.key, node.row)]
    return f"{'; '.join(records)} in {len(node.tables)}"


def _texts(rows: Sequence[Rows]) -> str:
    return "over " + " ∪ ".join(one.text for one in rows)


def _of_groups(groups: Sequence[Expression], aggregates: Sequence[Aggregate]) -> list[Output]:
    """The groups and the aggregates of a γ as its outputs."""
    parts = (("group", groups), ("aggregate", aggregates))
    return [Output(one.text, AggregationRef(kind, i, one)) for kind, part in parts for i, one in enumerate(part)]


def _copies(
    key: Sequence[Column], key_of: Mapping[int, int], keys: Sequence[Expression], kept: tuple[int, ...]
) -> tuple[dict[int, int], dict[int, int]]:
    """The columns of a side held by its row key, and those held by the join key; a key of DOUBLE is not the value."""
    in_key = {place: key_of[place] for place in kept if place in key_of and key[key_of[place]].type != DOUBLE}
    in_on = {key.position: i for i, key in enumerate(keys) if isinstance(key, ColumnRef) and key.type != DOUBLE}
    return in_key, {place: in_on[place] for place in kept if place in in_on and place not in in_key}


def _columns_at(relation: Relation, places: Sequence[int]) -> tuple[Column, ...]:
    """Columns of a relation as a record keeps them: when they were added does not matter."""
    columns = relation.columns  # computed at each call
    return tuple(replace(columns[place], added=0) for place in places)


def _reference(column: Column, position: int) -> ColumnRef:
    return ColumnRef(position, column.name, column.type, column.nullable)
