"""One table with every type, and the expressions over it that types and values are judged by."""

from __future__ import annotations

import datetime
import math

from tests.support.spark_match import Sample, entries

COLUMNS = (
    ("id", "INT"),
    ("i", "INT"),
    ("j", "INT"),
    ("b", "BIGINT"),
    ("d", "DECIMAL(10,2)"),
    ("e", "DECIMAL(38,10)"),
    ("g", "DECIMAL(18,6)"),
    ("h", "DECIMAL(4,4)"),
    ("f", "DOUBLE"),
    ("s", "STRING"),
    ("p", "BOOLEAN"),
    ("dt", "DATE"),
    ("ts", "TIMESTAMP"),
    ("x", "BINARY"),
)
DAY = datetime.date(2024, 2, 29)
MOMENT = datetime.datetime(1969, 12, 31, 23, 59, 59, 500000)
INT_MIN, INT_MAX, BIGINT_MIN, BIGINT_MAX = -(2**31), 2**31 - 1, -(2**63), 2**63 - 1
NAN = math.nan
ROWS = [
    (1, 3, 2, 7, "1.25", "0.0000000001", "-0.333333", "0.0500", 2.5, "añ😀", True, DAY, MOMENT, b"\x00\xff"),
    (2, None, None, None, None, None, None, None, None, None, None, None, None, None),
    (3, INT_MAX, 1, BIGINT_MAX, "99999999.99", "9" * 28 + ".9999999999", "999999999999.999999", "0.9999", NAN, "",
     False, datetime.date(1, 1, 1), datetime.datetime(2024, 12, 31, 23, 59, 59, 999999), b""),
    (4, INT_MIN, -1, BIGINT_MIN, "-99999999.99", "-" + "9" * 28 + ".9999999999", "0.000001", "-0.0001", -0.0,
     "  it's\n% ", True, datetime.date(9999, 12, 31), datetime.datetime(1970, 1, 1), b"abc"),
    (5, 0, 0, 0, "0.00", "0", "0", "0", 0.0, "a_b", None, DAY, None, None),
    (6, -7, 3, -1, "-0.05", "-2.5", "2.500000", "-0.9999", math.inf, "ABC", False, None, MOMENT, b"\x01"),
    (7, 10, 4, 9007199254740993, "0.15", "123456789012345678.1234567891", "7.000000", "0.0001", -1e308, "b",
     True, DAY, MOMENT, None),
    (8, None, 0, 5, "2.50", "-1234567890123456789012345678.1234567891", None, None, 1e-320, "x",
     None, None, None, None),
    (9, 5, None, None, "-2.50", "1", "3.141592", "0.5000", 0.1, " a ", True, DAY, None, None),
]  # fmt: skip
TYPES = Sample("t", COLUMNS, ROWS)

_TEXT = """
i + j; i - j; i * j; i / j; i % j; i div j; b + i; b * 2; b div -1; b div i; b % i; b % -1; i / b; -i; -b; abs(i)
abs(b); d + 1; d + i; d - b; d * 2; d * i; d * d; d / 3; d / i; d / b; d / cast(b as decimal(15,0)); i / d; b / d
d / d; d / g; g / d; d % 7; d % i; d % g; g % d; e % d; e / d; e / b; e / g; g / g; e / 3; h / d; d / h; h * h
h + h; h - d; g * d; g + d; g / 7; b * d; -d; abs(g); d * 1.1; i + 1.5; d + f; d * f; g + f; e * 1e0; f + f
f * f; f - 1; f / 2; f / f; f % 2; f % j; f / 0; -f; abs(f); i + 1e0; null + 1; i = j; i <> j; i < b; i <= d; d > e
d >= 1; e = b; i = f; d < f; g < f; f = f; f < 1e308; f > 0; f <=> f; i <=> null; s = 'b'; s < 'b'; s >= ''
p = true; p <=> false; dt > '2024-01-01'; dt = DATE '2024-02-29'; ts < TIMESTAMP '1970-01-01 00:00:00'; ts > dt
dt <= ts; x = X'00ff'; x < X'01'; 1 = 1.0; p and i > 0; p or i > 0; not p; p and null; i = 0 or j / i > 1
i <> 0 and j / i > 0; p or i + 1 > 0; p and i + 1 > 0; i is null; i is not null; p is true; p is not false
i in (1, 2.5, null); i not in (3, 5); d in (1.25, 0); s in ('a', ''); dt in ('2024-02-29'); i between j and 10
d between -1 and 1.5; not (i between 1 and 5); case when p then 1 else d end; case when i = 0 then 0 else j / i end
case i when 3 then 'three' when 0 then 'zero' end; case when p then d else e end; if(p, 1, 1.5); if(i > 0, 1 / i, 0)
if(null, 1, 2); coalesce(i, 0); coalesce(i, d); coalesce(d, f); coalesce(j, i + 1); nullif(i, j); nullif(d, 0)
nvl(s, 'none'); ifnull(b, i); i + (i + 1); b + (b + 1); null + (i + 1); (i + 1) / j; (j + 1) % i; i / (j / i)
(i * i) + (i * i); cast(i as bigint); cast(b as int); cast(i as decimal(12,2)); cast(i as decimal(5,2))
cast(b as decimal(20,2)); cast(d as int); cast(e as bigint); cast(d as decimal(8,1)); cast(d as decimal(12,4))
cast(d as decimal(3,1)); cast(e as decimal(38,2)); cast(e as decimal(38,12)); cast(g as decimal(13,0))
cast(h as decimal(1,0)); cast(d as double); cast(e as double); cast(g as double); cast(i as double)
cast(b as double); cast(i as string); cast(b as string); cast(d as string); cast(h as string); cast(e as string)
cast(p as string); cast(dt as string); cast(s as string); cast(p as int); cast(p as bigint); cast(ts as date)
cast(s as varchar(3)); cast(s as CHAR(8)); cast(i as character ( 2 )); cast(dt as varchar(4)) = '2024'; cast(null as char(1))
X''; x = X''; x > X''; coalesce(x, X''); X'' = x; length(X'')
cast(dt as timestamp); cast(null as int); cast('2024-01-01' as date); length(s); char_length(s); length(x); s || 'x'
concat(s, s, '!'); concat(s, cast(i as string)); trim(s); ltrim(s); rtrim(s); substring(s, 1, 2); substr(s, 2)
substring(s, 3, 0); substring(s, 9, 2); s like 'a%'; s like '%b'; s like 'a_b'; s like ''; s not like '%a%'
year(dt); month(dt); day(dt); dayofmonth(dt); year(ts); month(ts); day(ts); 'it''s'; 'a' 'b'
'tab\\t nl\\n q\\' bs\\\\ pct\\% us\\_'; "double ""quoted"" x"; 1L; 1.5BD; 2D; 1e3; -2147483648; 3000000000; .5
X'0aFF'; DATE '0001-01-01'; TIMESTAMP '2024-01-01 12:30:00.25'; TIMESTAMP '2024-01-01 12:30:00+02:00'; true; -1.50
i + 1 > 0; 0 < i + 1; i * 2 > 10; 5 - i < 10; -i < 5; i + 1 <=> 5; i + 1 in (1, 2); i + 1 is null
cast(b as int) = 5; cast(b as int) in (7); not (i + 1 > 0); case when i + 1 > 0 then 1 else 2 end; (i + 1) * 0
abs(i) >= 0; i + 1 between 0 and 5; coalesce(i + 1, 0); b - 1 < d
cast(e as decimal(37,8)) + cast(e as decimal(37,8)); cast(e as decimal(37,8)) - 0.5
cast(e as decimal(30,0)) * 1.234567; cast(e as decimal(36,8)) % g; g * g
cast(e as decimal(38,2)) - cast(e as decimal(38,2)); -cast(e as decimal(34,6)); cast(e as decimal(38,9)) % 7
cast(e as decimal(27,0)) * d < 0
cast(d as decimal(15,2)) * (1 - cast(d as decimal(15,2))) * (1 + cast(d as decimal(15,2)))
cast(e as decimal(34,4)) * cast(d as decimal(16,2)); cast(e as decimal(36,2)) * 0.0001
cast(e as decimal(38,4)) + d; 1.5 - cast(e as decimal(38,6)); cast(e as decimal(38,2)) + i
cast(e as decimal(38,6)) > cast(e as decimal(36,2)); cast(e as decimal(38,2)) = cast(e as decimal(38,10))
cast(g as decimal(38,6)) <= cast(h as decimal(36,2)); coalesce(cast(g as decimal(38,10)), cast(e as decimal(36,2)))
case when p then cast(e as decimal(38,8)) else cast(b as decimal(38,0)) end; e in (1, 1234567890123456789012345678901)
"""
TYPE_EXPRESSIONS = entries(_TEXT)
