"""Binding of functions over STRING.

In: bound arguments. Out: bound calls. Always: a character is a code point, as in Spark; where a function's meaning
depends on an argument (a pattern, a delimiter, a length of padding), that argument is a literal and has been checked.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from viewkeeper.errors import UnsupportedSql
from viewkeeper.model import types
from viewkeeper.sql.expressions import Call, Expression, Literal
from viewkeeper.sql.operands import Function, Rule, check_count, fixed_text, integer, long, number, strict, text

_INT_MAX = 2**31 - 1
_WIDTH_MAX = 10_000  # of padding and repetition: a row must not grow to gigabytes
_TRIM_NAMES = {"": "trim", "BOTH": "trim", "LEADING": "ltrim", "TRAILING": "rtrim"}


def substring(args: Sequence[Expression]) -> Expression:
    return Function("substring", (text, integer, integer), types.STRING, least=2)(args)


def trim(position: str, arg: Expression, characters: Expression | None) -> Expression:
    """TRIM([BOTH | LEADING | TRAILING] [characters FROM] arg)."""
    name = _TRIM_NAMES[position.upper()]
    args = [text(arg, name)]
    if characters is not None:
        args.append(fixed_text(characters, name))
    return strict(name, args, types.STRING)


def _one_sided_trim(position: str) -> Rule:
    """LTRIM(s), or LTRIM(characters, s): the string comes last."""

    def bind(args: Sequence[Expression]) -> Expression:
        check_count(_TRIM_NAMES[position], args, 1, 2)
        return trim(position, args[-1], args[0] if len(args) == 2 else None)

    return bind


def _btrim(args: Sequence[Expression]) -> Expression:
    check_count("btrim", args, 1, 2)
    return trim("BOTH", args[0], args[1] if len(args) == 2 else None)


def like(arg: Expression, pattern: Expression, escape: Expression | None) -> Expression:
    """The pattern is kept with the backslash as its escape, whichever the user chose."""
    written = str(fixed_text(pattern, "like").value)  # type: ignore[union-attr]
    mark = "\\" if escape is None else str(fixed_text(escape, "like").value)  # type: ignore[union-attr]
    if len(mark) != 1 or mark in "%_":
        raise UnsupportedSql(f"{mark!r} cannot be the ESCAPE of LIKE", "choose one character, but not % or _")
    kept = Literal(_with_backslashes(written, mark), types.STRING)
    return strict("like", [text(arg, "like"), kept], types.BOOLEAN)


def _with_backslashes(pattern: str, mark: str) -> str:
    escaped = re.escape(mark)
    if not re.fullmatch(f"(?:[^{escaped}]|{escaped}[%_{escaped}])*", pattern, flags=re.DOTALL):
        raise UnsupportedSql(f"in the pattern {pattern!r} {mark} stands before something else than %, _ or itself")

    def change(found: re.Match[str]) -> str:
        token = found[0]
        plain = token[1] if len(token) == 2 else token
        return "\\" + plain if (len(token) == 2 and plain in "%_") or plain == "\\" else plain

    return re.sub(f"{escaped}.|.", change, pattern, flags=re.DOTALL)


def _count(name: str, arg: Expression) -> Expression:
    return strict(name, [arg if arg.type == types.BINARY else text(arg, name)], types.INT)


def _counter(name: str) -> Rule:
    def bind(args: Sequence[Expression]) -> Expression:
        check_count(name, args, 1, 1)
        return _count(name, args[0])

    return bind


def _pad(name: str) -> Rule:
    def bind(args: Sequence[Expression]) -> Expression:
        taken = Function(name, (text, number(0, _WIDTH_MAX), text), types.STRING, least=2)(args)
        return taken if len(args) == 3 else _with(taken, Literal(" ", types.STRING))

    return bind


def _with(call: Expression, last: Expression) -> Expression:
    return strict(call.name, (*call.args, last), call.type)  # type: ignore[union-attr]


def _replace(args: Sequence[Expression]) -> Expression:
    taken = Function("replace", (text, text, text), types.STRING, least=2)(args)
    return taken if len(args) == 3 else _with(taken, Literal("", types.STRING))


def locate(args: Sequence[Expression]) -> Expression:
    """LOCATE(part, s[, start])."""
    return Function("locate", (text, text, number(-_INT_MAX, _INT_MAX)), types.INT, least=2)(args)


def _concat_ws(args: Sequence[Expression]) -> Expression:
    """NULL only when the separator is; parts that are NULL are left out."""
    check_count("concat_ws", args, 2, None)
    parts = tuple(text(arg, "concat_ws") for arg in args)
    return Call("concat_ws", parts, types.STRING, args[0].nullable)


def _substring_index(args: Sequence[Expression]) -> Expression:
    """Spark finds delimiters that overlap; one that cannot overlap with itself is simpler."""
    check_count("substring_index", args, 3, 3)
    delimiter = str(fixed_text(args[1], "substring_index").value)  # type: ignore[union-attr]
    if any(delimiter[:size] == delimiter[-size:] for size in range(1, len(delimiter))):
        raise UnsupportedSql(f"substring_index by {delimiter!r} is not supported: it overlaps with itself")
    return Function("substring_index", (text, fixed_text, number(-_INT_MAX, _INT_MAX)), types.STRING)(args)


def _split_part(args: Sequence[Expression]) -> Expression:
    check_count("split_part", args, 3, 3)
    place = args[2]
    if isinstance(place, Literal) and place.value == 0:
        raise UnsupportedSql("split_part counts from 1, or from the end from -1")
    return Function("split_part", (text, text, number(-_INT_MAX, _INT_MAX)), types.STRING)(args)


def _translate(args: Sequence[Expression]) -> Expression:
    taken = Function("translate", (text, fixed_text, fixed_text), types.STRING)(args)
    if "\0" in args[2].text:
        raise UnsupportedSql("translate to the character 0 is not supported", "leave it out to remove a character")
    return taken


NAMED: dict[str, Rule] = {
    **dict.fromkeys(("length", "char_length", "character_length", "len"), _counter("length")),
    "octet_length": _counter("octet_length"),
    "bit_length": _counter("bit_length"),
    "ltrim": _one_sided_trim("LEADING"),
    "rtrim": _one_sided_trim("TRAILING"),
    "btrim": _btrim,
    **dict.fromkeys(("upper", "ucase"), Function("upper", (text,), types.STRING)),
    **dict.fromkeys(("lower", "lcase"), Function("lower", (text,), types.STRING)),
    "replace": _replace,
    "left": Function("left", (text, integer), types.STRING),
    "right": Function("right", (text, integer), types.STRING),
    "lpad": _pad("lpad"),
    "rpad": _pad("rpad"),
    "repeat": Function("repeat", (text, number(-_INT_MAX, _WIDTH_MAX)), types.STRING),
    "reverse": Function("reverse", (text,), types.STRING),
    "instr": Function("instr", (text, text), types.INT),
    "locate": locate,
    "startswith": Function("startswith", (text, text), types.BOOLEAN),
    "endswith": Function("endswith", (text, text), types.BOOLEAN),
    "contains": Function("contains", (text, text), types.BOOLEAN),
    "concat_ws": _concat_ws,
    "substring_index": _substring_index,
    "split_part": _split_part,
    "ascii": Function("ascii", (text,), types.INT),
    "chr": Function("chr", (long,), types.STRING),
    "char": Function("chr", (long,), types.STRING),
    "translate": _translate,
}
