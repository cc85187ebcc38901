"""Every aggregate in every form: over each type, with FILTER and DISTINCT, inside of an expression and in HAVING.

In: rows of the table `t`. Out: views over it, and what they hold by arithmetic in Python. Always: nothing of the product's
SQL is used; the texts mean the same in Spark.
"""

from __future__ import annotations

import datetime
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal, localcontext
from fractions import Fraction
from functools import partial

COLUMNS = {
    "k": "INT",
    "g": "INT",
    "i": "INT",
    "y": "BIGINT",
    "d": "DECIMAL(12,2)",
    "w": "DECIMAL(38,6)",
    "f": "DOUBLE",
    "b": "BOOLEAN",
    "s": "STRING",
    "z": "BINARY",
    "day": "DATE",
    "at": "TIMESTAMP",
}
Row = Mapping[str, object]
_MOMENT = datetime.datetime(2024, 2, 29, 12, 30, 0, 250_000, tzinfo=datetime.UTC)
_VALUES: dict[str, Sequence[object]] = {
    "g": (0, 1, 2),
    "i": (0, 1, 7, -(2**31), 2**31 - 1),
    "y": (0, 3, -5, 2**45 + 1, -(2**45)),
    "d": (Decimal("0.05"), Decimal("-9999999999.99"), Decimal("3.10"), Decimal("9999999999.99")),
    "w": tuple(
        map(Decimal, ("0.000001", f"-{10**22}.000000", f"{10**22}.000001", f"-{9 * 10**26}.123457", "7.500000"))
    ),
    "f": (0.0, 0.5, -2.25, 1024.0),  # sums of these are exact in any order
    "b": (True, False),
    "s": ("", "a", "ß", "\x00z"),
    "z": (b"", b"\x00", b"\xff"),
    "day": (datetime.date(1, 1, 1), datetime.date(2024, 2, 29), datetime.date(9999, 12, 31)),
    "at": (_MOMENT, _MOMENT - datetime.timedelta(days=40_000), _MOMENT + datetime.timedelta(microseconds=1)),
}


@dataclass(frozen=True, slots=True)
class Form:
    """An aggregate as it is written, and what it is of the rows of a group."""

    text: str
    value: Callable[[Sequence[Row]], object]


def _each(name: str) -> Callable[[Row], object]:
    return lambda row: row[name]


def _present(rows: Iterable[Row], read: Callable[[Row], object]) -> list:
    return [value for value in map(read, rows) if value is not None]


def _sum(values: Sequence) -> object:
    with localcontext(prec=100):
        return sum(values[1:], values[0]) if values else None


def _average(values: Sequence, type_: str) -> object:
    if not values:
        return None
    if not type_.startswith("DECIMAL"):
        return float(sum(values)) / len(values)
    scale = int(type_.rstrip(")").split(",")[1])
    with localcontext(prec=100):
        exact = Fraction(sum(values, Decimal(0))) / len(values) * 10 ** (scale + 4)
        whole = (Decimal(exact.numerator) / exact.denominator).quantize(Decimal(1), ROUND_HALF_UP)
        return whole.scaleb(-scale - 4)


def _average_of(taken: Callable[[list], list], type_: str, values: list) -> object:
    return _average(taken(values), type_)


def _of_values(call: str, read: Callable[[Row], object], reduce: Callable[[list], object]) -> Form:
    return Form(call, lambda rows: reduce(_present(rows, read)))


def _plain() -> list[Form]:
    forms = [Form("COUNT(*)", len), Form("COUNT(1)", len)]
    for name, type_ in COLUMNS.items():
        read = _each(name)
        forms.append(_of_values(f"COUNT({name})", read, len))
        forms.append(_of_values(f"COUNT(DISTINCT {name})", read, lambda values: len(set(values))))
        forms.append(_of_values(f"MIN({name})", read, lambda values: min(values, default=None)))
        forms.append(_of_values(f"MAX(DISTINCT {name})", read, lambda values: max(values, default=None)))
        if type_.startswith("DECIMAL") or type_ in ("INT", "BIGINT", "DOUBLE"):
            for word, taken in (("", list), ("DISTINCT ", lambda values: list(set(values)))):
                forms.append(_of_values(f"SUM({word}{name})", read, lambda values, taken=taken: _sum(taken(values))))
                average = partial(_average_of, taken, type_)
                forms.append(_of_values(f"AVG({word}{name})", read, average))
    forms += [
        _of_values("BOOL_AND(b)", _each("b"), lambda values: all(values) if values else None),
        _of_values("BOOL_OR(DISTINCT b)", _each("b"), lambda values: any(values) if values else None),
        _of_values("COUNT_IF(b)", _each("b"), sum),
        Form("COUNT_IF(i > 0)", lambda rows: sum(value > 0 for value in _present(rows, _each("i")))),
        _of_values("COUNT(DISTINCT s, day)", _pair("s", "day"), lambda values: len(set(values))),
    ]
    return forms


def _pair(first: str, second: str) -> Callable[[Row], object]:
    return lambda row: None if row[first] is None or row[second] is None else (row[first], row[second])


def _filtered(form: Form, condition: str, passes: Callable[[Row], bool]) -> Form:
    return Form(
        f"{form.text} FILTER (WHERE {condition})", lambda rows: form.value([row for row in rows if passes(row)])
    )


def _hundredth(row: Row) -> object:
    value = row["i"]
    return None if value is None else int(100 / value)


def _guarded() -> list[Form]:
    """Arguments that fail where the filter does not let them pass: a row that does not pass is not evaluated.

    Beside COUNT(DISTINCT) Spark's planner may evaluate them first, and fail.
    """
    forms = [
        _of_values("SUM(100 div i)", _hundredth, _sum),
        _of_values("MIN(100 div i)", _hundredth, lambda values: min(values, default=None)),
        _of_values("COUNT(DISTINCT 100 div i)", _hundredth, lambda values: len(set(values))),
        Form("COUNT_IF(100 div i > 3)", lambda rows: sum(value > 3 for value in _present(rows, _hundredth))),
        _of_values(
            "COUNT(DISTINCT s, 100 div i)",
            lambda row: None if row["s"] is None or row["i"] is None else (row["s"], _hundredth(row)),
            lambda values: len(set(values)),
        ),
    ]
    return [_filtered(form, "i <> 0", lambda row: row["i"] not in (None, 0)) for form in forms]


def all_forms() -> list[Form]:
    plain = _plain()
    by_flag = [_filtered(form, "b", lambda row: row["b"] is True) for form in plain]
    by_value = [_filtered(form, "s = 'a' OR y > 0", _is_chosen) for form in plain[::3]]
    return [*plain, *by_flag, *by_value]


def _is_chosen(row: Row) -> bool:
    return row["s"] == "a" or (row["y"] is not None and row["y"] > 0)


FORMS = all_forms()
GUARDED = _guarded()
_CASE = "CASE WHEN {0} IS NULL THEN 'none' WHEN {0} = {0} THEN 'some' END"
_AT_ONCE = 40  # aggregates of one view
_IN_TOTAL = FORMS[::5]
_IN_HAVING = range(0, len(FORMS), 9)  # a view for each


def views() -> dict[str, str]:
    """Name → query: the forms by themselves, inside of an expression, and some in HAVING."""
    queries = {}
    for start in range(0, len(FORMS), _AT_ONCE):
        forms = FORMS[start : start + _AT_ONCE]
        queries[f"plain_{start}"] = f"SELECT g, {_listed(forms)} FROM t GROUP BY g"
        inside = ", ".join(f"{_CASE.format(form.text)} AS o{place}" for place, form in enumerate(forms))
        queries[f"inside_{start}"] = f"SELECT g, {inside} FROM t GROUP BY g"
    queries["total"] = f"SELECT {_listed(_IN_TOTAL)} FROM t"
    queries["guarded"] = f"SELECT g, {_listed(GUARDED)} FROM t GROUP BY g"
    for place in _IN_HAVING:
        text = FORMS[place].text
        queries[f"having_{place}"] = f"SELECT g, COUNT(*) AS n FROM t GROUP BY g HAVING {text} = {text}"
    return queries


def _listed(forms: Sequence[Form]) -> str:
    return ", ".join(f"{form.text} AS o{place}" for place, form in enumerate(forms))


def expected(rows: Sequence[Row]) -> dict[str, Counter[tuple[object, ...]]]:
    """What each view holds."""
    groups: dict[object, list[Row]] = {}
    for row in rows:
        groups.setdefault(row["g"], []).append(row)
    values = {key: [form.value(group) for form in FORMS] for key, group in groups.items()}
    bags: dict[str, Counter[tuple[object, ...]]] = {
        "total": Counter([tuple(form.value(rows) for form in _IN_TOTAL)]),
        "guarded": Counter((key, *(form.value(group) for form in GUARDED)) for key, group in groups.items()),
    }
    for start in range(0, len(FORMS), _AT_ONCE):
        chosen = slice(start, start + _AT_ONCE)
        bags[f"plain_{start}"] = Counter((key, *group[chosen]) for key, group in values.items())
        bags[f"inside_{start}"] = Counter(
            (key, *("none" if value is None else "some" for value in group[chosen])) for key, group in values.items()
        )
    for place in _IN_HAVING:
        shown = (key for key, group in values.items() if group[place] is not None)
        bags[f"having_{place}"] = Counter((key, len(groups[key])) for key in shown)
    return bags


def random_row(source: random.Random) -> dict[str, object]:
    """A row without its key."""
    return {name: source.choice((None, *values, *values)) for name, values in _VALUES.items()}
