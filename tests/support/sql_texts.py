"""Texts of SQL in three dialects at once, and what is known of the values they stand for.

In: templates. Out: `Sql` and `Value`. Always: the three texts mean the same. `view` is what the product gets, `spark` what
Spark gets (another text only where a row of the view is set aside), `duck` what DuckDB, the oracle, gets.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sql:
    view: str
    spark: str
    duck: str


def sql(template: str, *parts: Sql, duck: str | None = None, spark: str | None = None) -> Sql:
    """The template filled with parts; DuckDB and Spark may have a template of their own."""
    return Sql(
        template.format(*(part.view for part in parts)),
        (spark or template).format(*(part.spark for part in parts)),
        (duck or template).format(*(part.duck for part in parts)),
    )


def joined(separator: str, parts: list[Sql]) -> Sql:
    return Sql(
        separator.join(part.view for part in parts),
        separator.join(part.spark for part in parts),
        separator.join(part.duck for part in parts),
    )


@dataclass(frozen=True, slots=True)
class Type:
    """A type of the product; `digits` and `scale` are those of a DECIMAL."""

    kind: str
    digits: int = 0
    scale: int = 0

    @property
    def duck(self) -> str:
        match self.kind:
            case "DECIMAL":
                return f"DECIMAL({self.digits},{self.scale})"
            case "INT":
                return "INTEGER"
            case "STRING":
                return "VARCHAR"
        return self.kind

    @property
    def text(self) -> str:
        return self.duck if self.kind == "DECIMAL" else self.kind

    @property
    def is_integer(self) -> bool:
        return self.kind in ("INT", "BIGINT")

    @property
    def is_number(self) -> bool:
        return self.is_integer or self.kind in ("DOUBLE", "DECIMAL")

    @property
    def as_decimal(self) -> Type:
        """What an integer counts as beside a DECIMAL."""
        return self if self.kind == "DECIMAL" else decimal({"INT": 10, "BIGINT": 20}[self.kind], 0)


def decimal(digits: int, scale: int) -> Type:
    return Type("DECIMAL", digits, scale)


INT, BIGINT, DOUBLE = Type("INT"), Type("BIGINT"), Type("DOUBLE")
STRING, BOOLEAN, DATE = Type("STRING"), Type("BOOLEAN"), Type("DATE")


@dataclass(frozen=True, slots=True)
class Value:
    """An expression. `size` bounds a number's magnitude; `fails`: the product must think that it can fail.

    `exact`: a DOUBLE with few bits, so that sums of it do not depend on their order. `constant`: no column is in it.
    """

    sql: Sql
    type: Type
    size: float = 0
    fails: bool = False
    exact: bool = True
    nullable: bool = True
    constant: bool = False


def common_type(left: Type, right: Type) -> Type | None:
    """The type that both widen to, if there is one that every engine agrees on."""
    if left == right:
        return left
    if not (left.is_number and right.is_number):
        return None
    kinds = {left.kind, right.kind}
    if "DOUBLE" in kinds:
        return DOUBLE
    if "DECIMAL" not in kinds:
        return BIGINT
    first, second = left.as_decimal, right.as_decimal
    scale = max(first.scale, second.scale)
    digits = max(first.digits - first.scale, second.digits - second.scale) + scale
    return decimal(digits, scale) if digits <= 30 else None


def cast_for_duck(value: Value, type_: Type) -> Sql:
    """The value as DuckDB needs it to have exactly that type; the others widen by themselves."""
    if value.type == type_:
        return value.sql
    return sql("{}", value.sql, duck="CAST({} AS " + type_.duck + ")")
