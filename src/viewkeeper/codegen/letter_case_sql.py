"""DuckDB SQL of UPPER and LOWER.

In: the SQL of a string, short enough to be written several times. Out: SQL of the string in upper or lower case.
Always: Spark's result for every string. DuckDB's own functions are fast, and used where no version of Unicode can
differ; tables do the rest.
"""

from __future__ import annotations

from viewkeeper.sql import letter_case

_SIGMA = "Σ"


def upper(arg: str) -> str:
    common = f"upper(replace({arg}, 'ß', 'SS'))"
    mapped = _mapped(arg, letter_case.UPPER, letter_case.UPPER_MANY)
    return f"(CASE WHEN {_only(letter_case.COMMON_UPPER, arg)} THEN {common} ELSE {mapped} END)"


def lower(arg: str) -> str:
    with_sigma = f"CASE WHEN contains({arg}, '{_SIGMA}') THEN {_small_sigmas(arg)} ELSE {arg} END"
    mapped = _mapped("y", letter_case.LOWER, letter_case.LOWER_MANY)
    small = f"CASE WHEN {_only(letter_case.COMMON_LOWER, 'y')} THEN lower(y) ELSE {mapped} END"
    whole = f"list_transform([{with_sigma}], lambda y: {small})[1]"
    return f"(CASE WHEN strlen({arg}) = length({arg}) THEN lower({arg}) ELSE {whole} END)"


def _only(characters: str, arg: str) -> str:
    return rf"regexp_matches({arg}, '\A[{_pattern(characters)}]*\z')"


def _mapped(sql: str, single: dict[str, str], several: dict[str, str]) -> str:
    """What one character becomes is not changed any further, so the order does not matter."""
    for one, many in several.items():
        sql = f"replace({sql}, '{one}', '{many}')"
    return f"translate({sql}, '{''.join(single)}', '{''.join(single.values())}')"


def _small_sigmas(arg: str) -> str:
    """Σ is ς at the end of a word: after a letter and not before one; accents and the like are ignored.

    `p` are the pieces between sigmas, `w` is one of them and `i` its index; a sigma is itself a letter for its
    neighbours.
    """
    passed, cased = _pattern(f"[{letter_case.PASSED_OVER}]*"), _pattern(f"[{letter_case.CASED}]")
    before = rf"(regexp_matches(w, '{cased}{passed}\z') OR (i > 1 AND regexp_matches(w, '\A{passed}\z')))"
    next_ = "p[i + 1]"
    after = rf"(regexp_matches({next_}, '\A{passed}{cased}') OR (i + 1 < len(p) AND regexp_matches({next_}, '\A{passed}\z')))"
    sigma = f"CASE WHEN i = len(p) THEN '' WHEN {before} AND NOT {after} THEN 'ς' ELSE 'σ' END"
    words = f"array_to_string(list_transform(p, lambda w, i: w || {sigma}), '')"
    return f"list_transform([string_split({arg}, '{_SIGMA}')], lambda p: {words})[1]"


def _pattern(text: str) -> str:
    return text.replace("'", "''")
