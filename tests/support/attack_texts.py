"""Hostile SQL: a corpus of known attacks, and a seeded generator of more.

In: a seed and a count. Out: statements. Always: the same seed gives the same statements; each names, in one of its forms, the
canaries of `tests/support/attack_lab.py`: a file, an environment variable and a variable of Python.
"""

# ruff: noqa: E501  (lists of attacks, many to a line)
from __future__ import annotations

import random
from collections.abc import Callable, Iterator

FILE, VARIABLE, PYTHON = "canary.csv", "VIEWKEEPER_CANARY", "canary_of_python"

FUNCTIONS = f"""
read_csv('{FILE}')|read_csv_auto('{FILE}')|read_text('{FILE}')|read_blob('{FILE}')|read_json('{FILE}')|read_parquet('{FILE}')
|glob('*')|sniff_csv('{FILE}')|parquet_scan('{FILE}')|getenv('{VARIABLE}')|current_setting('temp_directory')|duckdb_settings()
|duckdb_secrets()|duckdb_tables()|pragma_table_info('t')|query('SELECT 1')|query_table('t')|which_secret('x', 's3')|txid_current()
|java_method('java.lang.System', 'getenv', '{VARIABLE}')|reflect('java.lang.Runtime', 'exec', 'id')|try_reflect('a', 'b')
|input_file_name()|current_user()|session_user()|version()|current_database()|current_catalog()|uuid()|rand()|now()|sleep(100)
|load_file('{FILE}')|pg_read_file('{FILE}')|xpath(s, '/x')|from_csv(s, 'a INT')|schema_of_csv(s)|aes_decrypt(b, s)|raise_error(s)
|assert_true(false)|sequence(1, 1000000000)|explode(sequence(1, 1000000000))|range(1000000000000)|generate_series(1, 1000000000000)
|regexp_replace(s, '(a+)+$', '')|regexp_like(s, '(a|a)*$')|regexp_extract_all(s, '(.*)*')|format_string('%1000000000d', k)
|printf('%n', k)|repeat(s, 2000000000)|repeat(repeat(repeat(s, 10000), 10000), 10000)|lpad(s, 2000000000, s)|space(2000000000)
|power(10, 100000)|factorial(100000)|shiftleft(1, 2147483647)|exp(n)|ai_query('x')|http_get('http://127.0.0.1:9')|eval('1')
|__import__('os')|exec('1')|write_log('x')|nextval('x')|columns('.*')|struct_extract(t, 's')|getvariable('x')|hash(k)|system('id')
""".replace("\n", "").split("|")

STATEMENTS = f"""
ATTACH 'x.db' AS y|ATTACH '{FILE}'|DETACH t|COPY t TO 'out.csv'|COPY t FROM '{FILE}'|COPY (SELECT 1) TO 'out.parquet'|INSTALL httpfs
|LOAD httpfs|LOAD 'x.so'|FORCE INSTALL httpfs|PRAGMA version|PRAGMA database_list|PRAGMA enable_profiling|SET threads = 9
|SET memory_limit = '1TB'|SET spark.sql.ansi.enabled = false|SET VARIABLE x = 1|RESET threads|CALL pragma_version()|CHECKPOINT
|EXPORT DATABASE 'all'|IMPORT DATABASE 'all'|ADD JAR 'x.jar'|ADD FILE '{FILE}'|LIST JARS|CREATE FUNCTION f AS 'x' USING JAR 'x.jar'
|CREATE MACRO f(x) AS x|CREATE TYPE x AS INT|CREATE SECRET s (TYPE s3)|CREATE SCHEMA x|CREATE DATABASE x LOCATION 'y'
|CREATE TABLE x USING csv LOCATION '{FILE}'|CREATE TABLE x (k INT PRIMARY KEY) LOCATION 'y'|CREATE TABLE x AS SELECT 1
|CREATE TABLE x (k INT PRIMARY KEY DEFAULT getenv('HOME'))|CREATE TABLE x (k INT PRIMARY KEY, n INT GENERATED ALWAYS AS (k))
|CREATE EXTERNAL TABLE x (k INT) LOCATION 'y'|CREATE TEMPORARY VIEW x USING csv OPTIONS (path '{FILE}')|CREATE VIEW x AS SELECT 1
|LOAD DATA INPATH '{FILE}' INTO TABLE t|INSERT OVERWRITE DIRECTORY 'out' SELECT * FROM t|INSERT INTO t SELECT * FROM t
|INSERT INTO t TABLE t|INSERT INTO t (k) VALUES (getenv('HOME'))|UPDATE t SET s = read_text('{FILE}') WHERE k = 1|UPDATE t SET s = 'x'
|DELETE FROM t|DELETE FROM t WHERE k = (SELECT 1)|DELETE FROM t WHERE k = 1 OR 1 = 1|MERGE INTO t USING t ON true WHEN MATCHED THEN DELETE
|TRUNCATE TABLE t|VACUUM t|ANALYZE TABLE t COMPUTE STATISTICS|EXPLAIN ANALYZE SELECT 1|EXPLAIN EXTENDED SELECT 1|DESCRIBE '{FILE}'
|SHOW FUNCTIONS|SHOW CREATE TABLE `../x`|SUMMARIZE t|USE x|BEGIN|COMMIT|GRANT ALL ON t TO x|DO 1|PREPARE p AS SELECT 1|EXECUTE p
|FROM t|TABLE t|VALUES (1)|MAP s FROM t|SELECT TRANSFORM(k) USING 'cat {FILE}' FROM t|SELECT k INTO OUTFILE 'out' FROM t
|SELECT * FROM '{FILE}'|SELECT * FROM `{FILE}`|SELECT * FROM "{FILE}"|SELECT * FROM csv.`{FILE}`|SELECT * FROM parquet.`x`
|SELECT * FROM {PYTHON}|SELECT * FROM r0|SELECT * FROM delta|SELECT * FROM information_schema.tables|SELECT * FROM sqlite_master
|SELECT * FROM memory.main.t|SELECT * FROM pg_catalog.pg_class|SELECT * FROM t AT (VERSION => 1)|SELECT * FROM t VERSION AS OF 1
|SELECT * FROM t TABLESAMPLE (10 PERCENT)|SELECT * FROM t LATERAL VIEW explode(array(1)) x AS y|SELECT * FROM t PIVOT (sum(n) FOR k IN (1))
|SELECT * FROM (VALUES (1)) x|SELECT * FROM unnest(array(1))|SELECT * EXCEPT (k) FROM t|SELECT * REPLACE (1 AS k) FROM t
|SELECT COLUMNS(*) FROM t|SELECT t FROM t|SELECT t.__class__ FROM t|SELECT #1 FROM t|SELECT $1 FROM t|SELECT ? FROM t|SELECT :x FROM t
|SELECT ${{x}} FROM t|SELECT {{{{x}}}} FROM t|SELECT @x FROM t|SELECT @@version|SELECT s.upper() FROM t|SELECT x -> x + 1 FROM t
|SELECT filter(array(1), x -> x > 0) FROM t|SELECT IDENTIFIER('s') FROM t|SELECT * FROM IDENTIFIER('t')|SELECT s COLLATE de FROM t
|WITH RECURSIVE x AS (SELECT 1 AS a UNION ALL SELECT a + 1 FROM x) SELECT * FROM x|SELECT 1; COPY t TO 'out.csv'|SELECT 1 -- ; ATTACH 'x'
|SELECT 1 /* ; COPY t TO 'out.csv' */|SELECT 1 /* /* */|SELECT /*+ BROADCAST(t) */ k FROM t|SELECT 'it''s' || '\\''|SELECT '\\''; DROP TABLE t
|SELECT 'a\\\\'|SELECT 'a' 'b'|SELECT "a""b"|SELECT `a``b` FROM t|SELECT r'\\'|SELECT $$x$$|SELECT X'GG'|SELECT 1e999999999999|SELECT .5e-99999
|SELECT 1e999999999BD|SELECT DECIMAL '1e99999999999999999999'|SELECT CAST('9' AS DECIMAL(99999999999999999999, 1))
|SELECT k FROM t LIMIT 99999999999999999999|SELECT k FROM t LIMIT -1|SELECT DATE '99999-99-99'|SELECT INTERVAL '99999999999999' YEAR
|CREATE TABLE `../x` (k INT PRIMARY KEY)|CREATE TABLE `a"b` (k INT PRIMARY KEY)|CREATE TABLE `CON` (k INT PRIMARY KEY)|DROP TABLE `%2e%2e/x`
|CREATE TABLE т (k INT PRIMARY KEY)|CREATE TABLE ｔ (k INT PRIMARY KEY)|CREATE TABLE `t ` (k INT PRIMARY KEY)|CREATE TABLE x (`a/../b` INT PRIMARY KEY)
""".replace("\n", "").split("|")

VALID = (
    "SELECT k, s FROM t WHERE n > 3 AND s LIKE 'a%' ORDER BY k LIMIT 5",
    "SELECT s, COUNT(*) AS c, SUM(n) AS total FROM t GROUP BY s HAVING COUNT(*) > 1",
    "SELECT a.k, b.s FROM t a JOIN t b ON a.n = b.n WHERE a.k IN (1, 2, 3)",
    "SELECT CASE WHEN ok THEN 'x' ELSE upper(s) END AS x FROM t UNION ALL SELECT s FROM t",
    "WITH w AS (SELECT n FROM t) SELECT MAX(n) FROM w",
    "INSERT INTO t (k, s) VALUES (7, 'it''s')",
    "UPDATE t SET s = 'x', n = 5 WHERE k = 1",
    "DELETE FROM t WHERE k = 9",
    "CREATE MATERIALIZED VIEW IF NOT EXISTS v AS SELECT k, s || 'x' AS y FROM t",
    "CREATE TABLE IF NOT EXISTS u (k INT PRIMARY KEY, v DECIMAL(10,2))",
    "EXPLAIN SELECT k FROM t",
)
PIECES = (
    "'", '"', "`", "''", "\\", "\x00", "\u200b", "\u202e", "\ud800", "\ufeff", "к", "ｔ", ";", "--", "/*", "*/", "(", ")", ",", ".", "{0}",
    "{all}", "%s", "${x}", "' OR '1' = '1", "; DROP TABLE t; --", "UNION SELECT 1", "\\u0027", "0x27", "9" * 5_000, "x" * 300,
    "NULL", "*", "||", "::", "->", "|>", "?", "@", "#", "$1", "1e400", "-", "NOT", "AS", "FROM", "SELECT",
)  # fmt: skip
NESTS: tuple[tuple[str, str, str], ...] = (
    ("(", "k", ")"),
    ("NOT ", "ok", ""),
    ("- ", "n", ""),
    ("upper(", "s", ")"),
    ("CASE WHEN ok THEN ", "n", " END"),
    ("(SELECT ", "1", ")"),
    ("coalesce(n, ", "n", ")"),
    ("CAST(", "n", " AS BIGINT)"),
    ("", "n", " + n"),
    ("", "ok", " AND ok"),
    ("", "s", " || s"),
    ("k IN (SELECT k FROM t WHERE ", "ok", ")"),
    ("EXISTS (SELECT 1 FROM t WHERE ", "ok", ")"),
)
PLACES = (
    "SELECT {} FROM t",
    "SELECT k FROM t WHERE {}",
    "SELECT k FROM t ORDER BY {}",
    "SELECT {} AS x, COUNT(*) FROM t GROUP BY {}",
    "SELECT SUM({}) FROM t HAVING {}",
    "SELECT * FROM {}",
    "SELECT a.k FROM t a JOIN t b ON {}",
    "SELECT * FROM t, LATERAL {}",
    "SELECT k FROM t WHERE k IN (SELECT * FROM {})",
    "INSERT INTO t (k, s) VALUES (1, {})",
    "UPDATE t SET s = {} WHERE k = 1",
    "DELETE FROM t WHERE k = {}",
    "CREATE OR REPLACE MATERIALIZED VIEW v AS SELECT k, {} AS x FROM t",
    "CREATE TABLE x (k INT PRIMARY KEY, v INT DEFAULT {})",
    "EXPLAIN SELECT {} FROM t",
)


def attacks(seed: int, count: int) -> Iterator[str]:
    """The corpus, then as many drawn statements as make `count` in all."""
    corpus = [*STATEMENTS, *(place.format(*[call] * 2) for call in FUNCTIONS for place in (PLACES[0], PLACES[5]))]
    yield from corpus[:count]
    source = random.Random(seed)
    ways: tuple[Callable[[random.Random], str], ...] = (*[_placed, _mutated] * 6, _nested, _long)
    for _ in range(count - len(corpus)):
        yield source.choice(ways)(source)


def _placed(source: random.Random) -> str:
    """A hostile call inside an expression, in some clause."""
    place = source.choice(PLACES)
    return place.format(*[_expression(source, source.randrange(4))] * place.count("{}"))


def _expression(source: random.Random, depth: int) -> str:
    if depth == 0:
        return source.choice((*FUNCTIONS, *FUNCTIONS, "k", "s", "'x'", "1.5", "NULL", source.choice(PIECES)))
    before, _, after = source.choice(NESTS)
    inner = _expression(source, depth - 1)
    other = source.choice(("= 1", "|| s", "IS NULL", "LIKE '%a%a%a%a'", "IN (1, 2)", "BETWEEN 1 AND 2", "+ 1", ""))
    return f"{before}{inner}{after} {other}"


def _mutated(source: random.Random) -> str:
    """A valid statement with pieces put in, taken out or doubled."""
    words = source.choice(VALID).split(" ")
    for _ in range(source.randint(1, 3)):
        place = source.randrange(len(words))
        match source.randrange(4):
            case 0:
                words.insert(place, source.choice(PIECES))
            case 1:
                words[place] = words[place] + source.choice(PIECES)
            case 2:
                words.insert(place, source.choice(FUNCTIONS))
            case _:
                words[place] = words[source.randrange(len(words))]
    return " ".join(words)


def _nested(source: random.Random) -> str:
    before, inner, after = source.choice(NESTS)
    depth = source.choice((20, 60, 99, 101, 300, 1_500))
    place = source.choice(PLACES)
    return place.format(*[before * depth + inner + after * depth] * place.count("{}"))


def _long(source: random.Random) -> str:
    size = source.choice((100, 1_000, 5_000))
    return source.choice(
        (
            f"SELECT '{'x' * size * 100}' FROM t",
            f"SELECT s LIKE '{'%a' * size}b' FROM t",
            f"SELECT s LIKE '{'%_' * size}' FROM t",
            f"SELECT {'9' * size}",
            f"SELECT 0.{'9' * size}",
            f"SELECT k AS `{'x' * size}` FROM t",
            f"SELECT {', '.join(f'k AS k{i}' for i in range(size // 10))} FROM t",
            f"SELECT k FROM t WHERE k IN ({', '.join(map(str, range(size)))})",
            f"INSERT INTO t (k, s) VALUES (1, {'9' * size})",
            f"INSERT INTO t (k, s) VALUES (1, {'1 + ' * size}1)",
            f"DELETE FROM t WHERE {' AND '.join(['k = 1'] * size)}",
            f"DELETE FROM t WHERE k = {'- ' * size}1",
            f"CREATE TABLE x{'y' * size} (k INT PRIMARY KEY)",
            f"SELECT {'/* x */ ' * size} k FROM t",
            " UNION ALL ".join(["SELECT k FROM t"] * (size // 20)),
            "SELECT * FROM " + ", ".join(f"t a{i}" for i in range(size // 1_000)),
            ";" * size,
        )
    )
