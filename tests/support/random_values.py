"""Random expressions and conditions over columns.

In: a random source and the columns in reach. Out: `Value`s and conditions. Always: an expression never fails on the
values that the histories write (numbers stay small), and gives the same in Spark and in DuckDB to the last bit.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence

from tests.support.random_conditions import DATES, make_condition
from tests.support.sql_texts import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    STRING,
    Sql,
    Type,
    Value,
    cast_for_duck,
    common_type,
    decimal,
    sql,
)

_SIZE_MAX = {"INT": 1e8, "BIGINT": 1e15, "DOUBLE": 1e6, "DECIMAL": 1e8}
STRINGS = ("a", "b", "ab", "", "Ab ", "ä-b", "x")


class ValueMaker:
    """Makes expressions; counts in `seen` what it made. `wide`: lists of literals are long at times."""

    def __init__(self, choose: random.Random, seen: Counter[str], *, wide: bool = False) -> None:
        self.choose, self.seen, self.wide = choose, seen, wide

    def chance(self, share: float) -> bool:
        return self.choose.random() < share

    def literal(self, type_: Type) -> Value:
        pick = self.choose.choice
        match type_.kind:
            case "INT":
                number = pick((0, 1, 2, 3, 4, 5))
                return Value(sql(str(number), duck=f"CAST({number} AS INTEGER)"), INT, number, constant=True)
            case "BIGINT":
                number = pick((1, 2, 3, 4))
                return Value(sql(f"{number}L", duck=f"CAST({number} AS BIGINT)"), BIGINT, number, constant=True)
            case "DOUBLE":
                text = pick(("0.5", "1.0", "2.25", "-1.5"))
                return Value(sql(f"{text}D", duck=f"CAST({text} AS DOUBLE)"), DOUBLE, 3, constant=True)
            case "DECIMAL":
                text = pick(("0.5", "1.5", "2.0"))
                return Value(sql(text, duck=f"CAST({text} AS DECIMAL(2,1))"), decimal(2, 1), 2, constant=True)
            case "STRING":
                return Value(sql(f"'{pick(STRINGS)}'"), STRING, constant=True)
            case "BOOLEAN":
                return Value(sql(pick(("TRUE", "FALSE"))), BOOLEAN, constant=True)
        return Value(sql(f"DATE '{pick(DATES)}'"), DATE, constant=True)

    def column(self, scope: Sequence[Value], type_: Type | None = None) -> Value | None:
        found = [one for one in scope if type_ is None or one.type == type_]
        if not found and type_ is not None:
            found = [one for one in scope if one.type.kind == type_.kind]
        return self.choose.choice(found) if found else None

    def any_value(self, scope: Sequence[Value], depth: int = 2, *, safe: bool = False) -> Value:
        """A value of any type; `safe`: one that the product knows cannot fail."""
        column = self.choose.choice(scope)
        if depth == 0 or self.chance(0.45):
            return column
        type_ = column.type if self.chance(0.7) else self.choose.choice((INT, BIGINT, STRING, DATE, BOOLEAN, DOUBLE))
        return self.value(scope, type_, depth, safe=safe)

    def value(self, scope: Sequence[Value], type_: Type, depth: int = 2, *, safe: bool = False) -> Value:
        """A value of that kind of type (a DECIMAL may have other digits)."""
        for _ in range(8):
            made = self._try(scope, type_, depth, safe)
            if made is None or (safe and made.fails) or made.size > _SIZE_MAX.get(made.type.kind, 1e9):
                continue
            if made.type.digits <= 24:
                return made
        return self.column(scope, type_) or self.literal(type_)

    def _try(self, scope: Sequence[Value], type_: Type, depth: int, safe: bool) -> Value | None:
        column = self.column(scope, type_)
        if depth == 0 or self.chance(0.3):
            return column if column is not None and self.chance(0.9) else self.literal(type_)
        rules = _RULES[type_.kind] + _ANY
        rule = self.choose.choice(rules)
        return rule(self, scope, type_, depth - 1, safe)

    def failing(self, number: Value) -> Value:
        """A quotient that fails where the number is 0; for Spark and DuckDB it is NULL there."""
        view, spark, duck = "(12 div {})", "(12 div nullif({}, 0))", "CAST(12 // nullif({}, 0) AS BIGINT)"
        return Value(sql(view, number.sql, spark=spark, duck=duck), BIGINT, 12, fails=True)

    # ------------------------------------------------------------------ any type

    def _case(self, scope: Sequence[Value], type_: Type, depth: int, safe: bool) -> Value | None:
        self.seen["CASE"] += 1
        first, second = (self.value(scope, type_, depth, safe=safe) for _ in range(2))
        common = common_type(first.type, second.type)
        if common is None:
            return None
        condition = self.condition(scope, depth, safe=safe)
        parts = (condition, cast_for_duck(first, common), cast_for_duck(second, common))
        form = self.choose.choice(("CASE WHEN {} THEN {} ELSE {} END", "IF({}, {}, {})", "CASE WHEN {} THEN {} END"))
        duck = form.replace("IF({}, {}, {})", "CASE WHEN {} THEN {} ELSE {} END")
        fails = not safe or _any_fails(first, second)
        return Value(sql(form, *parts, duck=duck), common, max(first.size, second.size), fails, _exact(first, second))

    def _case_of(self, scope: Sequence[Value], type_: Type, depth: int, safe: bool) -> Value | None:
        subject = self.column(scope)
        if subject is None or subject.type.kind not in ("INT", "STRING", "DATE"):
            return None
        self.seen["CASE of a value"] += 1
        found, given, other = self.literal(subject.type), self.literal(type_), self.literal(type_)
        texts = (subject.sql, found.sql, given.sql, other.sql)
        form = self.choose.choice(("CASE {} WHEN {} THEN {} ELSE {} END", "DECODE({}, {}, {}, {})"))
        made = sql(form, *texts, duck="CASE {} WHEN {} THEN {} ELSE {} END")
        return Value(made, given.type, max(given.size, other.size))

    def _coalesce(self, scope: Sequence[Value], type_: Type, depth: int, safe: bool) -> Value | None:
        self.seen["COALESCE"] += 1
        first, second = self.value(scope, type_, depth, safe=safe), self.value(scope, type_, 0)
        common = common_type(first.type, second.type)
        if common is None:
            return None
        name = self.choose.choice(("COALESCE", "NVL", "IFNULL"))
        parts = (cast_for_duck(first, common), cast_for_duck(second, common))
        made = sql(f"{name}({{}}, {{}})", *parts, duck="coalesce({}, {})")
        return Value(made, common, max(first.size, second.size), _any_fails(first, second), _exact(first, second))

    def _null_if(self, scope: Sequence[Value], type_: Type, depth: int, safe: bool) -> Value | None:
        self.seen["NULLIF"] += 1
        first, second = self.value(scope, type_, depth, safe=safe), self.literal(type_)
        duck = f"CAST(nullif({{}}, {{}}) AS {first.type.duck})"
        made = sql("NULLIF({}, {})", first.sql, second.sql, duck=duck)
        return Value(made, first.type, first.size, first.fails, first.exact)

    def _greatest(self, scope: Sequence[Value], type_: Type, depth: int, safe: bool) -> Value | None:
        first, second = (self.value(scope, type_, depth, safe=safe) for _ in range(2))
        if first.type != second.type or first.type.kind not in ("INT", "BIGINT", "STRING", "DATE"):
            return None
        self.seen["GREATEST"] += 1
        name = self.choose.choice(("GREATEST", "LEAST"))
        size = max(first.size, second.size)
        return Value(sql(f"{name}({{}}, {{}})", first.sql, second.sql), first.type, size, _any_fails(first, second))

    # ------------------------------------------------------------------ numbers

    def _add(self, scope: Sequence[Value], type_: Type, depth: int, safe: bool) -> Value | None:
        left = self.value(scope, type_, depth, safe=safe)
        other = self.choose.choice((type_, INT)) if type_.kind != "INT" else INT
        right = self.value(scope, other, depth, safe=safe)
        return self.arithmetic(self.choose.choice("+-"), left, right)

    def _multiply(self, scope: Sequence[Value], type_: Type, depth: int, safe: bool) -> Value | None:
        left = self.value(scope, type_, depth, safe=safe)
        return self.arithmetic("*", left, self.literal(self.choose.choice((INT, left.type))))

    def arithmetic(self, operator: str, left: Value, right: Value) -> Value | None:
        """Of numbers, with Spark's result type; None where that is too large."""
        self.seen["arithmetic"] += 1
        size = left.size * right.size if operator == "*" else left.size + right.size
        type_ = _number_type(operator, left, right)
        if type_ is None:
            return None
        duck = f"CAST({{}} {operator} {{}} AS {type_.duck})"
        if type_.kind == "DOUBLE":  # + 0: -0.0 becomes 0.0, which a group of DuckDB's would tell apart
            duck = f"(CAST({{}} AS DOUBLE) {operator} CAST({{}} AS DOUBLE) + CAST(0 AS DOUBLE))"
        made = sql(f"({{}} {operator} {{}})", left.sql, right.sql, duck=duck)
        fails = type_.is_integer or _any_fails(left, right)
        return Value(made, type_, size, fails, _exact(left, right), constant=left.constant and right.constant)

    def _remainder(self, scope: Sequence[Value], type_: Type, depth: int, safe: bool) -> Value | None:
        left, divisor = self.value(scope, type_, depth, safe=safe), self.choose.choice((2, 3, 4))
        if not left.type.is_integer:
            return None
        self.seen["% and div"] += 1
        form = self.choose.choice(("({} % {n})", "({} div {n})", "MOD({}, {n})", "PMOD({}, {n})"))
        duck = {
            "({} % {n})": "({} % {n})",
            "({} div {n})": "CAST({} // {n} AS BIGINT)",
            "MOD({}, {n})": "({} % {n})",
            "PMOD({}, {n})": "((({} % {n}) + {n}) % {n})",
        }[form]
        type_ = BIGINT if "div" in form else left.type
        number = str(divisor)
        made = sql(form.replace("{n}", number), left.sql, duck=f"CAST({duck.replace('{n}', number)} AS {type_.duck})")
        return Value(made, type_, left.size, left.fails)

    def _quotient(self, scope: Sequence[Value], type_: Type, depth: int, safe: bool) -> Value | None:
        left = self.value(scope, self.choose.choice((INT, BIGINT, DOUBLE)), depth, safe=safe)
        if not left.exact or left.type.kind == "DECIMAL":
            return None
        self.seen["/"] += 1
        duck = "(CAST({} AS DOUBLE) / CAST({n} AS DOUBLE) + CAST(0 AS DOUBLE))"
        number = str(self.choose.choice((2, 4)))
        made = sql(f"({{}} / {number})", left.sql, duck=duck.replace("{n}", number))
        return Value(made, DOUBLE, left.size, left.fails)

    def _negate(self, scope: Sequence[Value], type_: Type, depth: int, safe: bool) -> Value | None:
        arg = self.value(scope, type_, depth, safe=safe)
        self.seen["- and ABS"] += 1
        form = self.choose.choice(("(- {})", "ABS({})"))
        duck = f"({form} + CAST(0 AS DOUBLE))" if arg.type.kind == "DOUBLE" else form
        return Value(sql(form, arg.sql, duck=duck), arg.type, arg.size, arg.type.is_integer or arg.fails, arg.exact)

    def _bits(self, scope: Sequence[Value], type_: Type, depth: int, safe: bool) -> Value | None:
        arg = self.value(scope, type_, depth, safe=safe)
        if not arg.type.is_integer:
            return None
        self.seen["bits"] += 1
        operator = self.choose.choice("&|")
        made = sql(f"({{}} {operator} 3)", arg.sql, duck=f"CAST({{}} {operator} 3 AS {arg.type.duck})")
        return Value(made, arg.type, arg.size + 3, arg.fails)

    def _round(self, scope: Sequence[Value], type_: Type, depth: int, safe: bool) -> Value | None:
        arg = self.value(scope, type_, depth, safe=safe)
        if arg.type.kind != "DECIMAL" or arg.type.scale < 1:
            return None
        self.seen["ROUND"] += 1
        whole = decimal(arg.type.digits - arg.type.scale + 1, 0)
        form = self.choose.choice(("ROUND({}, 0)", "FLOOR({})", "CEIL({})"))
        return Value(sql(form, arg.sql, duck=f"CAST({form} AS {whole.duck})"), whole, arg.size + 1, arg.fails)

    def _cast_number(self, scope: Sequence[Value], type_: Type, depth: int, safe: bool) -> Value | None:
        source = {"BIGINT": INT, "DOUBLE": self.choose.choice((INT, decimal(8, 2))), "INT": BOOLEAN}.get(type_.kind)
        if source is None:
            source, type_ = INT, decimal(12, 2)
        arg = self.value(scope, source, depth, safe=safe)
        self.seen["CAST of a number"] += 1
        fails = arg.fails or type_.kind == "DECIMAL"
        exact = type_.kind != "DOUBLE" or arg.type.is_integer
        size = max(arg.size, 1)
        made = sql(f"CAST({{}} AS {type_.text})", arg.sql, duck=f"CAST({{}} AS {type_.duck})")
        return Value(made, type_, size, fails, exact)

    def _length(self, scope: Sequence[Value], type_: Type, depth: int, safe: bool) -> Value | None:
        arg = self.value(scope, STRING, depth, safe=safe)
        self.seen["LENGTH"] += 1
        form = self.choose.choice(("LENGTH({})", "CHAR_LENGTH({})", "INSTR({}, 'b')", "LOCATE('a', {})"))
        duck = form.replace("LOCATE('a', {})", "INSTR({}, 'a')").replace("CHAR_LENGTH", "LENGTH")
        return Value(sql(form, arg.sql, duck=f"CAST({duck} AS INTEGER)"), INT, 100, arg.fails)

    def _date_part(self, scope: Sequence[Value], type_: Type, depth: int, safe: bool) -> Value | None:
        arg = self.value(scope, DATE, depth, safe=safe)
        self.seen["part of a date"] += 1
        forms = {
            "MONTH({})": "month({})",
            "DAY({})": "day({})",
            "QUARTER({})": "quarter({})",
            "DAYOFWEEK({})": "dayofweek({}) + 1",
            "WEEKOFYEAR({})": "weekofyear({})",
            "EXTRACT(YEAR FROM {})": "year({})",
            "DATEDIFF({}, DATE '2024-01-15')": "date_diff('day', DATE '2024-01-15', {})",
        }
        form = self.choose.choice(tuple(forms))
        return Value(sql(form, arg.sql, duck=f"CAST({forms[form]} AS INTEGER)"), INT, 3000, arg.fails)

    # ------------------------------------------------------------------ strings, dates, booleans

    def _string_function(self, scope: Sequence[Value], type_: Type, depth: int, safe: bool) -> Value | None:
        arg = self.value(scope, STRING, depth, safe=safe)
        self.seen["string function"] += 1
        forms = {
            "UPPER({})": "upper({})",
            "LOWER({})": "lower({})",
            "SUBSTRING({}, 1, 2)": "substring({}, 1, 2)",
            "SUBSTRING({}, 2)": "substring({}, 2)",
            "LEFT({}, 1)": "left({}, 1)",
            "RIGHT({}, 1)": "right({}, 1)",
            "TRIM({})": "trim({})",
            "REPLACE({}, 'a', 'c')": "replace({}, 'a', 'c')",
            "TRANSLATE({}, 'ab', 'ba')": "translate({}, 'ab', 'ba')",
            "REVERSE({})": "reverse({})",
            "LPAD({}, 3, '*')": "lpad({}, 3, '*')",
            "SPLIT_PART({}, '-', 1)": "split_part({}, '-', 1)",
        }
        form = self.choose.choice(tuple(forms))
        return Value(sql(form, arg.sql, duck=forms[form]), STRING, 0, arg.fails)

    def _concat(self, scope: Sequence[Value], type_: Type, depth: int, safe: bool) -> Value | None:
        first, second = (self.value(scope, STRING, depth, safe=safe) for _ in range(2))
        self.seen["CONCAT"] += 1
        form = self.choose.choice(("CONCAT({}, {})", "({} || {})", "CONCAT_WS('-', {}, {})"))
        duck = form.replace("CONCAT({}, {})", "({} || {})")
        return Value(sql(form, first.sql, second.sql, duck=duck), STRING, 0, _any_fails(first, second))

    def _cast_string(self, scope: Sequence[Value], type_: Type, depth: int, safe: bool) -> Value | None:
        arg = self.value(scope, self.choose.choice((INT, BIGINT, DATE, BOOLEAN)), depth, safe=safe)
        self.seen["CAST to STRING"] += 1
        return Value(sql("CAST({} AS STRING)", arg.sql, duck="CAST({} AS VARCHAR)"), STRING, 0, arg.fails)

    def _shift_date(self, scope: Sequence[Value], type_: Type, depth: int, safe: bool) -> Value | None:
        if safe:
            return None
        self.seen["date function"] += 1
        arg = self.value(scope, DATE, depth)
        forms = {
            "DATE_ADD({}, 1)": "({} + CAST(1 AS INTEGER))",
            "DATE_SUB({}, 2)": "({} - CAST(2 AS INTEGER))",
            "({} + INTERVAL 1 MONTH)": "CAST({} + INTERVAL 1 MONTH AS DATE)",
            "ADD_MONTHS({}, 1)": "CAST({} + INTERVAL 1 MONTH AS DATE)",
        }
        form = self.choose.choice(tuple(forms))
        return Value(sql(form, arg.sql, duck=forms[form]), DATE, 0, fails=True)

    def _cut_date(self, scope: Sequence[Value], type_: Type, depth: int, safe: bool) -> Value | None:
        arg = self.value(scope, DATE, depth, safe=safe)
        self.seen["date function"] += 1
        forms = {"TRUNC({}, 'month')": "CAST(date_trunc('month', {}) AS DATE)", "LAST_DAY({})": "last_day({})"}
        form = self.choose.choice(tuple(forms))
        return Value(sql(form, arg.sql, duck=forms[form]), DATE, 0, arg.fails)

    def _truth(self, scope: Sequence[Value], type_: Type, depth: int, safe: bool) -> Value | None:
        made = self.condition(scope, depth, safe=safe)
        return Value(sql("({})", made), BOOLEAN, 0, fails=not safe)

    def condition(self, scope: Sequence[Value], depth: int = 1, *, safe: bool = False) -> Sql:
        """A condition that more rows meet than not; `safe`: the product knows that it cannot fail."""
        return make_condition(self, scope, depth, safe=safe)


Rule = Callable[[ValueMaker, Sequence[Value], Type, int, bool], Value | None]
_ANY: tuple[Rule, ...] = (
    ValueMaker._case,
    ValueMaker._case_of,
    ValueMaker._coalesce,
    ValueMaker._null_if,
    ValueMaker._greatest,
)
_NUMBERS: tuple[Rule, ...] = (ValueMaker._add, ValueMaker._add, ValueMaker._multiply, ValueMaker._negate)
_INTEGERS: tuple[Rule, ...] = (*_NUMBERS, ValueMaker._remainder, ValueMaker._bits, ValueMaker._cast_number)
_RULES: dict[str, tuple[Rule, ...]] = {
    "INT": (*_INTEGERS, ValueMaker._length, ValueMaker._date_part),
    "BIGINT": _INTEGERS,
    "DOUBLE": (*_NUMBERS, ValueMaker._quotient, ValueMaker._quotient, ValueMaker._cast_number),
    "DECIMAL": (*_NUMBERS, ValueMaker._round, ValueMaker._cast_number),
    "STRING": (ValueMaker._string_function, ValueMaker._string_function, ValueMaker._concat, ValueMaker._cast_string),
    "DATE": (ValueMaker._shift_date, ValueMaker._cut_date),
    "BOOLEAN": (ValueMaker._truth,),
}


def _any_fails(first: Value, second: Value) -> bool:
    return first.fails or second.fails


def _exact(first: Value, second: Value) -> bool:
    return first.exact and second.exact


def _number_type(operator: str, left: Value, right: Value) -> Type | None:
    kinds = {left.type.kind, right.type.kind}
    if "DOUBLE" in kinds:
        return DOUBLE
    if "DECIMAL" not in kinds:
        return BIGINT if "BIGINT" in kinds else INT
    first, second = (_beside_decimal(one) for one in (left, right))
    if operator == "*":
        digits, scale = first.digits + second.digits + 1, first.scale + second.scale
    else:
        scale = max(first.scale, second.scale)
        digits = max(first.digits - first.scale, second.digits - second.scale) + scale + 1
    return decimal(digits, scale) if digits <= 24 else None


def _beside_decimal(value: Value) -> Type:
    """A literal integer counts with the digits it has."""
    bare = value.sql.view.isdigit()
    return decimal(len(value.sql.view), 0) if bare and value.type.is_integer else value.type.as_decimal
