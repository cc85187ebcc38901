"""Rows on which engines differ, and expressions over them: what each function of view SQL is judged by."""

from __future__ import annotations

import datetime
import itertools
import math

from tests.support.spark_match import Sample, entries


def _moment(text: str) -> datetime.datetime:
    return datetime.datetime.fromisoformat(text)


def _dates(*texts: str) -> list[datetime.date]:
    return [datetime.date.fromisoformat(text) for text in texts]


DATES = _dates(
    "0001-01-01", "0001-12-31", "1582-10-04", "1582-10-15", "1899-12-31", "1900-02-28", "1969-12-31", "1970-01-01",
    "2000-02-29", "2004-12-31", "2005-01-01", "2020-12-31", "2021-01-03", "2021-01-04", "2023-01-31", "2024-02-28",
    "2024-02-29", "2024-03-31", "2024-12-29", "2024-12-30", "2026-08-31", "9998-11-30", "9999-12-30", "9999-12-31",
)  # fmt: skip
MOMENTS = [
    *map(_moment, (
        "0001-01-01 00:00:00", "0001-01-01 00:00:00.000001", "0999-12-31 23:59:59.999999", "1582-10-10 12:00:00.5",
        "1899-12-31 23:59:59.1", "1969-12-31 23:59:59.999999", "1969-12-31 23:59:59.000001", "1969-12-31 23:59:58",
        "1970-01-01 00:00:00", "1970-01-01 00:00:00.001", "2000-02-29 23:30:00.123", "2005-01-01 01:02:03.004005",
        "2024-02-29 10:20:30.5", "2024-03-31 23:59:59.999", "2024-12-29 00:00:00", "2024-12-30 00:00:00.1",
        "9998-11-30 05:06:07", "9999-12-31 00:00:00", "9999-12-31 23:59:59.999999",
    )),
]  # fmt: skip
COUNTS = [0, 1, -1, 2, -2, 12, 31, 365, -719162, 2932896, 100000, -(2**31), 2**31 - 1, 7, 11]
LONGS = [0, -1, 1, 999, -1001, 253402300799, 253402300800, -62135596800, -62135596801, 253402300799999, 2**63 - 1,
         -(2**63), 253402300799999999, 253402300800000000, -62135596800000000, -62135596800000001]  # fmt: skip
TIMES = Sample(
    "times",
    (("id", "INT"), ("dt", "DATE"), ("du", "DATE"), ("ts", "TIMESTAMP"), ("n", "INT"), ("m", "INT"), ("b", "BIGINT")),
    [
        (
            place,
            DATES[place % 24] if place % 25 != 24 else None,
            DATES[(place * 7 + 3) % 24] if place % 11 != 10 else None,
            MOMENTS[place % 19] if place % 20 != 19 else None,
            COUNTS[place % 15] if place % 17 != 16 else None,
            (place % 14) if place % 13 != 12 else None,
            LONGS[place % 16] if place % 9 != 8 else None,
        )
        for place in range(120)
    ],
)
# Where a date leaves the years 1 to 9999 Spark computes on, so such dates stand at the end of an expression only.
TIME_EXPRESSIONS = """
year(dt); month(dt); day(dt); dayofmonth(ts); quarter(dt); quarter(ts); dayofweek(dt); dayofweek(ts); weekday(dt)
weekday(ts); dayofyear(dt); dayofyear(ts); weekofyear(dt); weekofyear(ts); hour(ts); hour(dt); minute(ts); second(ts)
second(dt); extract(year from dt); extract(QUARTER from ts); extract(month from dt); extract(week from dt)
extract(day from dt); extract(dayofweek from dt); extract(dow from ts); extract(dow_iso from dt); extract(doy from dt)
extract(yearofweek from dt); extract(hour from ts); extract(minute from ts); extract(second from ts)
extract(seconds from ts); extract(hour from dt); date_part('year', dt); date_part('SECOND', ts); datepart('doy', ts)
date_trunc('year', ts); date_trunc('yyyy', ts); date_trunc('quarter', ts); date_trunc('MONTH', ts); date_trunc('mm', ts)
date_trunc('week', ts); date_trunc('day', ts); date_trunc('dd', ts); date_trunc('hour', ts); date_trunc('minute', ts)
date_trunc('second', ts); date_trunc('month', dt); trunc(dt, 'year'); trunc(dt, 'YY'); trunc(dt, 'quarter')
trunc(dt, 'mon'); trunc(dt, 'week'); trunc(ts, 'month'); date_add(dt, 1); date_add(dt, n); date_add(dt, -3)
date_add(ts, n); dateadd(dt, n); date_sub(dt, n); date_sub(dt, 400); date_add(dt, n + 1); date_add(dt, null); dt + 1
dt - n; dt + n; n + dt; datediff(dt, du); date_diff(du, dt); datediff(ts, dt); datediff(dt, '2024-02-29')
add_months(dt, n); add_months(dt, 1); add_months(dt, -1); add_months(dt, m); add_months(ts, m); last_day(dt)
last_day(ts); to_date(ts); to_date(dt); date(ts); cast(ts as string); unix_seconds(ts); unix_millis(ts)
unix_micros(ts); unix_date(dt); date_from_unix_date(n); timestamp_seconds(n); timestamp_seconds(b)
timestamp_millis(b); timestamp_micros(b); make_date(2024, m, n); make_date(n, m, 28); make_date(year(dt), m, day(du))
dt + interval 1 day; dt - interval 1 day; dt + interval '3' days; dt + interval -3 day; dt + interval 2 weeks
dt + interval 1 month; dt - interval 1 month; dt - interval 13 months; dt + interval 1 year; dt - interval 4 years
interval 1 month + dt; dt + interval 1 hour; dt - interval 90 minutes; ts + interval 1 day; ts - interval 2 weeks
ts + interval 36 hours; ts - interval 1 second; ts + interval 1 minute; ts + interval 1 month; ts - interval 1 month
ts + interval 1 year; ts - interval 25 months; year(dt) * 100 + month(dt); date_add(last_day(dt), 1)
date_trunc('month', ts) = ts; make_date(2024, m, 29) > dt; make_date(2024, m, 29) is null; coalesce(date_add(dt, n), dt)
case when n between 0 and 100 then date_add(dt, n) else dt end; n > 100 or make_date(2024, m, 29) > du
datediff(make_date(2024, m, 29), du); add_months(date_add(date_sub(make_date(2024, m, 28), m), m), m)
make_date(n + 1, m, 1); unix_date(du) + n
datediff(du, make_date(2024, m, 29)); date_trunc('day', ts) + interval 1 day; year(date_sub(make_date(2024, m, 3), m)) = 2024
date_add(du, unix_date(dt) + n); make_date(m, n + 1, n + 1); hour(make_date(2024, m, 1) + interval 1 hour); dt = to_date(ts)
concat(cast(ts as string), '!'); length(cast(ts as string)); make_date(null, m, n + 1); date_add(du, datediff(dt, du))
"""
STRINGS = [
    "", "a", "abc", "ABC", " abc ", "aXbXc", "a,b,,c", ",", ",,", "añ😀", "e\u0301é", "😀😀", "ß", "xxyxx", "\x00a",
    "a\x00b", "it's", "a%b", "a_b", "a\\b", "\\", "%", "_", "a\nb", "\tab\n", "日本語", "\u00a0a\u00a0", "\u200d", "👨‍👩‍👧",
    "aaaa", "abababa", "z" * 40, "ÀÉ", "İ", "ΑΣ", "\uffff", "\U0010ffff", "a!b", "a!%",
]  # fmt: skip
NUMERALS = [
    "0", "1", " 12 ", "+7", "-7", "--7", "+", "-", "-0", "007", "2147483647", "2147483648", "-2147483648",
    "-2147483649", "9223372036854775807", "9223372036854775808", "-9223372036854775808", "-9223372036854775809", "1.5",
    "1.", ".5", "1e3", "0x10", "1 2", "\t5\n", "\x0b5", "\x1f5\x00", "5\x7f", "\x805", "\u00a05", "\u20035", "٣", "１",
    "1_000", "1L", "5d", "+ 5", "0" * 60 + "5", "9" * 60, "true", "TRUE", " tRuE ", "t", "T", "y", "YES", "yes\n", "f",
    "False", "n", "no", "NO ", "N", "on", "off", "tru", "truee", "2", "01", "null", "NULL", "true false",
]  # fmt: skip
TEXTS = Sample(
    "texts",
    (("id", "INT"), ("s", "STRING"), ("t", "STRING"), ("n", "INT"), ("b", "BIGINT"), ("x", "BINARY")),
    [
        (
            place,
            (STRINGS + NUMERALS)[place] if place < len(STRINGS + NUMERALS) else (None, "abc")[place % 2],
            STRINGS[(place * 11 + 1) % len(STRINGS)][: 1 + place % 3] if place % 10 != 9 else None,
            [0, 1, 2, -1, -2, 3, 5, -4, 2**31 - 1, -(2**31), 40][place % 11] if place % 8 != 7 else None,
            [0, 65, 255, 256, 321, -1, 2**63 - 1, -(2**63), 8364, 127, 128][place % 11] if place % 12 != 11 else None,
            [b"", b"\x00\xff", b"abc"][place % 3] if place % 7 != 6 else None,
        )
        for place in range(130)
    ],
)
TEXT_EXPRESSIONS = r"""
length(s); char_length(s); character_length(s); len(s); octet_length(s); octet_length(x); bit_length(s); bit_length(x)
length(x); substring(s, 2); substring(s, 0); substring(s, -2); substring(s, n); substring(s, 1, 2); substring(s, 0, 2)
substring(s, -2, 1); substring(s, -5, 3); substring(s, 2, -1); substring(s, n, 2); substring(s, 2, n); substr(s, n, n)
substring(s from 2 for 1); substring(s, 2147483647, 2147483647); substring(s, -2147483648, 2147483647)
substring(s, -3, 2147483647); substring(s, n + 1); substring(concat(s, t), n, 3); left(s, 2); left(s, 0); left(s, -1)
left(s, n); right(s, 2); right(s, 0); right(s, n); right(s, -1); left(s, n + 1); right(t, n + 1); trim(s); ltrim(s)
rtrim(s); btrim(s); btrim(s, 'xa'); trim('a' from s); trim(both 'ab' from s); trim(leading 'a' from s)
trim(trailing 'c' from s); ltrim('a', s); rtrim('cb', s); trim(both from s); btrim(s, ''); trim('é😀' from s)
btrim(s, 'ñ😀'); replace(s, 'a', 'xy'); replace(s, 'a'); replace(s, '', 'x'); replace(s, t, 'x'); replace(s, 'aa', 'a')
replace(s, 'aba', ''); replace(s, '{acute}', ''); lpad(s, 5, 'xy'); lpad(s, 5); rpad(s, 5, 'xy'); rpad(s, 2); lpad(s, 4, '')
rpad(s, 4, t); lpad(s, 6, '😀é'); lpad(s, 0, 'x'); rpad(s, 10, 'e{acute}'); lpad(s, 3, t); repeat(s, 3); repeat(s, 0)
repeat(s, -1); reverse(s); reverse(s || t); instr(s, 'b'); instr(s, t); instr(s, ''); locate('b', s); locate(t, s)
locate('b', s, 2); locate('a', s, 3); locate('', s, 2); locate('', s); locate('a', s, 0); locate('a', s, -1)
locate('a', s, 100); locate('', s, 100); locate(t, s, 2); position('b' in s); position('b', s); position('a', s, 2)
startswith(s, 'a'); startswith(s, t); startswith(s, ''); endswith(s, 'c'); endswith(s, t); endswith(s, '')
contains(s, 'b'); contains(s, t); contains(s, ''); concat_ws(',', s, t); concat_ws('', s); concat_ws(t, s, 'x', null, s)
concat_ws(null, s); substring_index(s, ',', 1); substring_index(s, ',', 2); substring_index(s, ',', -1)
substring_index(s, ',', -2); substring_index(s, ',', 0); substring_index(s, 'X', 1); substring_index(s, 'ab', 2)
substring_index(s, '', 1); substring_index(s, '😀', -1); substring_index(s, ',', 2147483647)
split_part(s, ',', 1); split_part(s, ',', 2); split_part(s, ',', -1); split_part(s, ',', 9); split_part(s, ',', -9)
split_part(s, '', 1); split_part(s, '', 2); split_part(s, t, 1); split_part(s, t, -1); split_part(s, 'aa', 2)
split_part(s, 'aba', 2); ascii(s); ascii(t); chr(b); char(n); chr(65); chr(0); translate(s, 'abc', 'xy')
translate(s, 'aab', '123'); translate(s, '', 'x'); translate(s, 'é😀ñ', 'eXn'); translate(s, 'a', '😀')
translate(s, 'xyz', '')
s like 'a%'; s like 'a\\%b'; s like 'a\\_b'; s like '%\\\\%'; s like '\\%'; s like '\\\\'; s like 'a!%b' escape '!'
s like '%!!%' escape '!'; s like 'a\\b' escape '!'; s not like 'a\\%%'; s not like 'a!_%' escape '!'; s like '_'; s like '__'
s like '%{acute}%'; s like '%\n%'; s like 'A%'; s like ''; s like '%'; s like '%b_'; s like 'aé%' escape 'é'
cast(s as int); cast(s as bigint); cast(s as boolean); cast(t as int) + 1; cast(t as int) > 5
startswith(t, 'a') or cast(t as int) > 0; cast(substring(t, 1, 1) as int)
case when s like '0%' then cast(s as bigint) end; concat_ws('-', s, cast(n + 1 as string)); left(cast(b as string), 3)
int(left(t, 1)); instr(t, cast(n + 1 as string)); locate(t, cast(n + 1 as string))
replace(s, t, cast(n + 1 as string)); lpad(cast(id as string), 6, '0'); nvl2(s, t, 'none'); nvl2(s, 1, n)
upper(s); lower(s); ucase(t); lcase(t); upper(lower(s || t || s || t) || upper(s)); lower(t) = t
decode(s, 'a', 1, 'abc', 2, 0); decode(s, null, 'none', t); decode(n, 1, 'one', 2, 'two', null); isnull(s); isnotnull(s)
greatest(s, t); least(s, t, 'b'); greatest(s, null); repeat(substring(s, n, 2), 2); split_part(replace(s, 'a', ','), ',', 2)
left(s || t || s || t || s || t, n); right(reverse(s || t || s || t), n); btrim(reverse(s || t || s), 'a')
""".replace("{acute}", "\u0301")
DOUBLES = [
    0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.5, -2.5, 1e-320, -1e-320, 2147483647.0, 2147483647.9, 2147483648.0, -2147483648.9,
    -2147483649.0, 2.0**53 + 2, 2.0**63, -(2.0**63), 9223372036854774784.0, -9223372036854777856.0, 1e308, -1e308,
    math.nan, math.inf, -math.inf, 0.1, 1e15 + 0.5, 4.0,
]  # fmt: skip
INTEGERS = [0, 1, -1, 2, -2, 3, 7, -7, 10, 2**31 - 1, -(2**31), -(2**30) - 1, 2**30, 255]
BIGS = [0, 1, -1, 5, -5, 2**63 - 1, -(2**63), -(2**62) - 1, 2**62, 2**53 + 1, 10, -10]
DECIMALS = [
    "0.00",
    "0.05",
    "-0.05",
    "0.5",
    "-0.50",
    "1.49",
    "-1.50",
    "2.45",
    "99999999.99",
    "-99999999.99",
    "12345678.90",
]
WIDE = ["0", "0.5", "-0.5", "9" * 28 + "." + "9" * 10, "-" + "9" * 28 + "." + "9" * 10, "0.0000000001", "2.4999999999"]
NUMBERS = Sample(
    "numbers",
    (
        ("id", "INT"), ("i", "INT"), ("j", "INT"), ("b", "BIGINT"), ("c", "BIGINT"), ("f", "DOUBLE"), ("g", "DOUBLE"),
        ("d", "DECIMAL(10,2)"), ("e", "DECIMAL(38,10)"), ("h", "DECIMAL(4,4)"), ("k", "DECIMAL(12,0)"), ("p", "BOOLEAN"),
    ),
    [
        (
            place,
            INTEGERS[place % 14] if place % 15 != 14 else None,
            INTEGERS[(place * 5 + place // 14) % 14] if place % 11 != 10 else None,
            BIGS[place % 12] if place % 13 != 12 else None,
            BIGS[(place * 5 + place // 12) % 12] if place % 17 != 16 else None,
            DOUBLES[place % 28] if place % 29 != 28 else None,
            DOUBLES[(place * 3 + 1) % 28] if place % 8 != 7 else None,
            DECIMALS[place % 11] if place % 12 != 11 else None,
            WIDE[place % 7] if place % 9 != 8 else None,
            ["0", "0.9999", "-0.9999", "0.5", "-0.0001"][place % 5] if place % 6 != 5 else None,
            ["0", "999999999999", "-999999999999", "5"][place % 4] if place % 5 != 4 else None,
            [True, False, None][place % 3],
        )
        for place in range(170)
    ],
)  # fmt: skip
NUMBER_EXPRESSIONS = """
sign(f); signum(i); sign(d); sign(b); sqrt(f); sqrt(i); sqrt(b); sqrt(d); floor(f); floor(i); floor(b); floor(d)
floor(e); floor(h); floor(k); ceil(f); ceil(i); ceiling(b); ceil(d); ceil(e); ceil(h); ceil(k); round(d); round(d, 1)
round(d, 2); round(d, 5); round(e); round(e, 9); round(e, 10); round(e, 2); round(h); round(h, 2); round(k); round(k, 3)
round(i); round(b, 2); round(i, 0); pmod(i, j); pmod(b, c); pmod(i, b); pmod(i, 7); pmod(i, -7); pmod(b, 10); pmod(7, j)
mod(i, j); mod(b, 7); i & j; i | j; i ^ j; b & c; b | i; i ^ c; ~i; ~b; ~i & j; (i & j) | b; i & j & 255; i | null
shiftleft(i, 1); shiftleft(i, 31); shiftleft(i, 33); shiftleft(b, 1); shiftleft(b, 63); i << 3; b << 32; shiftright(i, 1)
shiftright(b, 63); shiftright(i, 35); i >> 2; b >> 1; shiftleft(b, 0); greatest(i, j); greatest(i, j, b); greatest(d, 1)
greatest(f, g); least(f, g); greatest(f, d); least(i, null, j); greatest(d, e); least(p, true); greatest(f, g, 0D)
least(d, i); nvl2(i, j, b); nvl2(f, d, 1); decode(i, 1, 'one', j, 'same', 'other'); decode(f, 0D, 1, g, 2, null); isnan(f)
isnan(i); isnan(d); nanvl(f, g); nanvl(f, 0); isnull(f); isnotnull(i); cast(f as int); cast(f as bigint)
cast(f as boolean); cast(i as boolean); cast(b as boolean); cast(f as int) > 0; cast(sqrt(f) as bigint)
floor(f / 3); ceil(f * 2); floor(i / 2); nanvl(f, 1 / g); greatest(i + 1, j); least(i * 2, j) > 0; pmod(i + 1, j)
pmod(j, i + 1); (i & j) + 1 > 0; round(d * 1.5, 1); round(d / 3, 2); floor(d / 3); nvl2(i, 1 div j, 0)
decode(j, 0, 0, i div j); case when j <> 0 then pmod(i, j) end; j = 0 or pmod(i, j) > 1; pmod(null, j); pmod(i, null)
cast(f as int) + cast(g as int); coalesce(cast(f as int), 0); abs(cast(f as bigint)); sign(cast(f as int)); sqrt(sqrt(f))
greatest(cast(f as int), i); floor(greatest(f, g, f * g)); i & cast(f as int); cast(floor(f) as int); round(cast(b as int), 1)
"""

# All characters up to the last letter with a case, and all neighbourhoods of Σ in words of five.
LETTERS = ["".join(chr(c) for c in range(c, c + 1024) if not 0xD800 <= c < 0xE000) for c in range(1, 0x1F000, 1024)]
WORDS = ["\n".join(map("".join, itertools.product("ΣA.\u0345 ", repeat=size))) for size in range(1, 6)]
CASES_OF_LETTERS = Sample("letters", (("id", "INT"), ("s", "STRING")), list(enumerate(LETTERS + WORDS)))

DAYS = Sample(
    "days",
    (("id", "INT"), ("s", "STRING")),
    list(
        enumerate(
            [
                None, "", " ", "2024", "2024-2", "2024-02", "2024-02-29", "2024-2-9", "2023-02-29", " 2024-02-29\t",
                "2024-02-29 10:00", "2024-02-29T", "2024-02-29Tx\ny", "2024-02-29x", "2024-02 10:00", "2024T", "2024-",
                "2024-02-", "-2024-01-01", "+2024-01-01", "0000-01-01", "0001-01-01", "9999-12-31", "10000-01-01",
                "0002024-01-01", "00002024-01-01", "99999999-01-01", "024-01-01", "2024-00-01", "2024-13-01",
                "2024-01-32", "2024-001-01", "2024-01-001", "20240101", "2024/01/01", "01-01-2024", "٢٠٢٤-01-01",
                "\x002024\x7f", "2024-01-01\u00a0", "\u00a02024-01-01", "2024--01", "--2024", "2024-01-01 é", "now",
                "epoch", "2024-01-01-", "2024-01-01 ", "2024-1-1T1", "1582-10-10", "abc", "infinity", "2024-01-01 (BC)",
            ]
        )
    ),
)  # fmt: skip

FUNCTION_CASES = (
    (TIMES, entries(TIME_EXPRESSIONS)),
    (TEXTS, entries(TEXT_EXPRESSIONS)),
    (NUMBERS, entries(NUMBER_EXPRESSIONS)),
    (DAYS, ["cast(s as date)", "to_date(s)", "length(s)"]),
    (CASES_OF_LETTERS, ["upper(s)", "lower(s)"]),
)
EXPRESSIONS = " ".join((TIME_EXPRESSIONS, TEXT_EXPRESSIONS, NUMBER_EXPRESSIONS))
