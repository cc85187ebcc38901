"""Two limbs mean one number: the SQL of wide sums and averages, against integers of any size."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal, localcontext

import duckdb
import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from viewkeeper.algebra import decimals
from viewkeeper.model.types import decimal

BASE = 10**19
UNITS_MAX = 10**38 - 1
_LIMB = st.integers(-(10**37), 10**37)


def ask(sql: str, high: int, low: int, count: int) -> int | None:
    """What SQL over `high`, `low` and `n` gives; None where it fails."""
    columns = {"high": high, "low": low, "n": count}
    row = ", ".join(f"CAST('{value}' AS HUGEINT) AS {name}" for name, value in columns.items())
    return duckdb.sql(f"SELECT TRY({sql}) FROM (SELECT {row})").fetchall()[0][0]


@given(high=_LIMB, low=_LIMB, count=st.integers(1, 2**63 - 1), shift=st.integers(0, 4))
@example(high=1, low=-BASE, count=3, shift=4)
@example(high=-1, low=5, count=10, shift=0)
@example(high=0, low=-15, count=10, shift=0)
@example(high=10**18, low=10**37, count=2, shift=4)
def test_limbs_mean_one_number(high: int, low: int, count: int, shift: int) -> None:
    units = high * BASE + low
    with localcontext(prec=120):
        exact = (Decimal(units) * 10**shift / count).quantize(Decimal(1), ROUND_HALF_UP)
    total = ask(decimals.total("high", "low"), high, low, count)
    average = ask(decimals.average("high", "low", "n", shift=shift), high, low, count)

    assert total == units if abs(units) <= UNITS_MAX else total is None or total == units
    assert average == exact if abs(exact) <= UNITS_MAX else average is None or average == exact


@given(
    units=st.lists(st.one_of(st.integers(-UNITS_MAX, UNITS_MAX), st.integers(-(10**28) - 1, 10**28 + 1)), max_size=9)
)
def test_the_limbs_of_values_add_up_to_them(units: list[int]) -> None:
    for scale in (0, 6, 19, 38):
        with localcontext(prec=60):
            values = [Decimal(unit).scaleb(-scale) for unit in units]
        rows = pa.table({"a": pa.array([*values, None], pa.decimal128(38, scale))})
        together = ", ".join(decimals.limbs("a", decimal(38, scale)))
        alone = ", ".join(f"sum({limb})" for limb in decimals.limbs_of_one("a", decimal(38, scale)))
        found = [
            duckdb.from_arrow(rows).query("rows", f"SELECT {sql} FROM rows").fetchall()[0] for sql in (together, alone)
        ]
        (high, low), of_each = ([int(limb or 0) for limb in one] for one in found)

        assert high * BASE + low == sum(units)
        assert [high, low] == of_each
