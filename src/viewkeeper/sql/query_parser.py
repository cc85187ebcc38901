"""Query parser: a text split into statements, a cursor over one statement's tokens, and sqlglot's tree of a query.

In: SQL text. Out: `Cursor`s whose tokens have a position in the text, and trees, read by `ViewSpark`. Always: an error
names line and column of the whole text, and no exception of sqlglot leaves this module. What Spark cannot parse is refused,
also where sqlglot accepts it: an extra comma, a clause without content, a string or a variable as a name. Words in
backticks are names and never a clause.

`ViewSpark` is Spark's SQL with the functions of `PLAIN` left as calls by their names, because sqlglot's own trees lose
meaning: INSTR and LOCATE become one node though Spark evaluates their arguments in different orders, the column in
DATE_TRUNC(month, x) becomes the unit 'month', DATE_SUB a product. A WITH inside a query is printed where it is, because its
names may collide elsewhere. Functions and types keep their spelling, of which sqlglot's nodes drop some.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, TypeVar

import sqlglot
from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError, TokenError
from sqlglot.tokens import Token, TokenType

from viewkeeper.algebra.aggregates import FOREIGN_NAMES, NODES, OF_CONDITIONS
from viewkeeper.errors import DuplicateName, SqlError, UnsupportedSql
from viewkeeper.model.syntax import WRITTEN
from viewkeeper.sql.function_table import NAMED

# Besides the functions of views, those whose refusals show them as written.
PLAIN = frozenset(NAMED) | frozenset(
    "position unix_timestamp to_unix_timestamp from_unixtime date_format to_timestamp".split()
)
# Names that sqlglot knows and Spark does not.
_NOT_SPARK = {*FOREIGN_NAMES, *"iif strpos str_position date_to_date_str time_to_time_str ts_or_ds_to_date_str".split()}
_LEFT_AS_CALLS = PLAIN | _NOT_SPARK
# These have a special syntax besides the call: POSITION(a IN b).
_OWN_SYNTAX = frozenset({"POSITION"})


class ViewSpark(Spark):
    class Parser(Spark.Parser):
        FUNCTIONS = {name: read for name, read in Spark.Parser.FUNCTIONS.items() if name.lower() not in _LEFT_AS_CALLS}
        FUNCTION_PARSERS = {
            name: read
            for name, read in Spark.Parser.FUNCTION_PARSERS.items()
            if name.lower() not in PLAIN or name in _OWN_SYNTAX
        }

        def _parse_function_call(self, *args: object, **options: object) -> exp.Expression | None:
            first = self._curr
            outer, self._called = getattr(self, "_called", ""), first.text
            try:
                found = super()._parse_function_call(*args, **options)
            finally:
                self._called = outer
            called = found
            while isinstance(called, (exp.Window, exp.WithinGroup, exp.Filter)):
                called = called.this
            if isinstance(called, exp.Func):
                called.meta.setdefault(WRITTEN, first.text)
            return found

        def validate_expression(self, expression: exp.Expression, args: list | None = None) -> exp.Expression:
            if args is not None and isinstance(expression, (*NODES, *OF_CONDITIONS)):
                _check_count(expression, self._called.upper(), len(args), self._prev)
            return super().validate_expression(expression, args)

        def _parse_types(self, *args: bool, **options: bool) -> exp.Expression | None:
            first = self._curr
            found = super()._parse_types(*args, **options)
            written = self._find_sql(first, self._prev) if isinstance(found, exp.DataType) else ""
            if written[:1].isalpha():  # the suffix of 1L is a type too, in a token that spans the number
                found.meta[WRITTEN] = written
            return found

    class Generator(Spark.Generator):
        EXPRESSIONS_WITHOUT_NESTED_CTES: ClassVar[frozenset[type]] = frozenset()


Part = TypeVar("Part")


def _check_count(aggregate: exp.Expression, name: str, given: int, at: Token) -> None:
    """Raise unless the aggregate has one argument; the binder says of COUNT, MIN and MAX what to write for several."""
    if given == 0 or (given > 1 and not isinstance(aggregate, (exp.Count, exp.Min, exp.Max))):
        written = f"{name}({'condition' if type(aggregate) in OF_CONDITIONS else 'column'})"
        hint = f"write {written}, or COUNT(*)" if name == "COUNT" else f"write {written}"
        raise SqlError(f"line {at.line}, column {at.col}: {name} takes one argument, not {given}", hint)


_DIGITS_MAX = 1_000
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")


class _Tokenizer(Spark.Tokenizer):
    """Spark's tokens; unlike sqlglot's, the text after SHOW is not one string."""

    COMMANDS: ClassVar[set[TokenType]] = set()


def tokenize(text: str) -> tuple[str, list[Token]]:
    """The tokens of `text`, and the text as sqlglot should read it."""
    try:
        # sqlglot's Spark tokenizer accepts an unclosed comment; Spark refuses it.
        tokens = _Tokenizer(dialect="spark").tokenize(text)
    except (TokenError, ValueError) as error:
        if "invalid characters" in str(error.__cause__):
            hint = "its digits are 0 to 9 and A to F"
            raise SqlError("X'…' holds a character that is not hexadecimal", hint) from error
        raise SqlError("the text ends inside a string, name or comment", "close the quote") from error
    for token in tokens:
        if token.token_type == TokenType.STRING:
            _check_escapes(text[token.start : token.end + 1])
        elif token.token_type == TokenType.NUMBER and len(token.text) > _DIGITS_MAX:  # Python reads 4,300 at most
            raise SqlError(f"a number of {len(token.text):,} digits cannot be read", "DECIMAL holds 38")
    readable = _join_doubled_quotes(text, tokens)
    return readable, tokens if readable == text else _Tokenizer(dialect="spark").tokenize(readable)


def _check_escapes(literal: str) -> None:
    """Octal and Unicode escapes are read differently by sqlglot and Spark; the others alike."""
    for escape in re.findall(r"\\.", literal, flags=re.DOTALL):
        if escape[1] not in "\\'\"nrt%_":
            raise UnsupportedSql(f"the escape {escape} in a string is not supported", "write the character itself")


def _join_doubled_quotes(text: str, tokens: list[Token]) -> str:
    """Spark 4 reads 'it''s' as one string; sqlglot reads two. A backslash of the same width makes them agree."""
    characters = list(text)
    for left, right in pairwise(tokens):
        if left.token_type == right.token_type == TokenType.STRING and left.end + 1 == right.start:
            if text[left.end] == text[right.start]:
                characters[left.end] = "\\"
    return "".join(characters)


@dataclass(frozen=True, slots=True)
class Word:
    """One token, which ends before `end`: `kind` is "name" (quoted), "string", "number", "literal" (X'…' …) or "word"."""

    text: str
    kind: str
    start: int
    end: int


_KINDS = {
    TokenType.IDENTIFIER: "name",
    TokenType.STRING: "string",
    TokenType.NUMBER: "number",
    **dict.fromkeys((TokenType.HEX_STRING, TokenType.RAW_STRING, TokenType.NATIONAL_STRING), "literal"),
}


def _words(text: str, token: Token) -> list[Word]:
    """sqlglot reads some keywords as pairs (PRIMARY KEY); here each word is one."""
    kind = _KINDS.get(token.token_type, "word")
    if kind == "word" and len(token.text.split()) > 1:
        found = re.finditer(r"\w+", text[token.start : token.end + 1])
        return [Word(one[0], kind, token.start + one.start(), token.start + one.end()) for one in found]
    return [Word(token.text, kind, token.start, token.end + 1)]


def split_statements(text: str) -> list[Cursor]:
    """One cursor for each statement of `text`; empty statements are left out."""
    readable, tokens = tokenize(text)
    cursors: list[Cursor] = []
    group: list[Word] = []
    for token in [*tokens, None]:
        if token is not None and token.token_type != TokenType.SEMICOLON:
            group += _words(text, token)
        elif group:
            cursors.append(Cursor(text, readable, group))
            group = []
    return cursors


@dataclass
class Cursor:
    """A position in one statement's tokens; `text` is the user's, `readable` what sqlglot gets."""

    text: str
    readable: str
    tokens: list[Word]
    place: int = 0

    @property
    def done(self) -> bool:
        return self.place >= len(self.tokens)

    @property
    def word(self) -> str:
        """The next token in capitals; empty at the end, and for quoted names and strings."""
        if self.done or self.tokens[self.place].kind in ("name", "string", "literal"):
            return ""
        return self.tokens[self.place].text.upper()

    def take(self, *words: str) -> bool:
        """Step over `words` when they come next."""
        here = self.place
        for word in words:
            if self.word != word:
                self.place = here
                return False
            self.place += 1
        return True

    def take_kind(self) -> str | None:
        """Step over TABLE, VIEW or INDEX, and return which it was, in lower case."""
        return next((kind for kind in ("table", "view", "index") if self.take(kind.upper())), None)

    def expect(self, *words: str, hint: str | None = None) -> None:
        for word in words:
            if not self.take(word):
                raise self.error(f"expected {word}, found {self.found}", hint)

    def name(self, what: str) -> str:
        """The next token as the name of a `what`."""
        if self.done or self.tokens[self.place].kind in ("string", "number", "literal"):
            hint = 'quote names with backticks; "x" is a string in Spark SQL'
            raise self.error(f"expected the name of {with_article(what)}, found {self.found}", hint)
        token = self.tokens[self.place]
        self.place += 1
        check_name(token.text, what)
        if self.word == ".":
            raise UnsupportedSql(f"{what} {token.text} is qualified", f"a {what} has a name of one part")
        return token.text

    def names(self, what: str) -> tuple[str, ...]:
        """A list of names in parentheses."""
        self.expect("(")
        names = self.listed(lambda: self.name(what))
        self.expect(")")
        return tuple(names)

    def listed(self, read: Callable[[], Part]) -> list[Part]:
        """What `read` reads, once and again after each comma."""
        found = [read()]
        while self.take(","):
            found.append(read())
        return found

    def finish(self, hint: str | None = None) -> None:
        if not self.done:
            raise self.error(f"unexpected {self.found}", hint)

    @property
    def found(self) -> str:
        if self.done:
            return "the end of the statement"
        token = self.tokens[self.place]
        return self.text[token.start : token.end]

    def error(self, fact: str, hint: str | None = None) -> SqlError:
        token = self.tokens[min(self.place, len(self.tokens) - 1)]
        offset = token.end if self.done else token.start
        line = self.text.count("\n", 0, offset) + 1
        column = offset - self.text.rfind("\n", 0, offset)
        return SqlError(f"line {line}, column {column}: {fact}", hint)

    def rest(self) -> str:
        """The user's characters from here to the end of the statement."""
        if self.done:
            raise self.error("the statement ends too early")
        return self.text[self.tokens[self.place].start : self.tokens[-1].end]

    def parse_rest(self) -> exp.Expression:
        """What sqlglot makes of the characters from here on."""
        self.rest()
        return parse_tree(self.readable, start=self.tokens[self.place].start, stop=self.tokens[-1].end)


def quoted(name: str) -> str:
    """The name as a statement takes it: in backticks if it is an SQL keyword."""
    (token,) = tokenize(name)[1]
    return name if token.token_type == TokenType.VAR else f"`{name}`"


def refuse_duplicates(names: Sequence[str], where: str, hint: str) -> None:
    seen: set[str] = set()
    for name in names:
        if name.lower() in seen:
            raise DuplicateName(f"{where} names column {name} twice", hint)
        seen.add(name.lower())


def with_article(what: str) -> str:
    return f"an {what}" if what[0] in "aeiou" else f"a {what}"


def check_name(name: str, what: str) -> None:
    if not _NAME.fullmatch(name):
        hint = "a name is a letter a to z or _, then such letters, digits or _, at most 64 in all"
        raise SqlError(f"{name!r} cannot be the name of {with_article(what)}", hint)


def parse_tree(readable: str, *, start: int, stop: int) -> exp.Expression:
    """The tree of `readable[start:stop]`; what precedes it becomes blanks, so that line and column stay right."""
    blank = re.sub(r"[^\n]", " ", readable[:start])
    try:
        trees = sqlglot.parse(blank + readable[start:stop], read=ViewSpark)
    except ParseError as error:
        first = error.errors[0]
        near = f" near {first['highlight']!r}" if first.get("highlight") else ""
        fact = re.sub(r"<class '[\w.]*?(\w+)'>", r"\1", str(first["description"])).rstrip(".")
        fact = re.sub(r"<Token .*SENTINEL.*>", "the end of the statement", fact)
        fact = re.sub(r"Required keyword: '\w+' missing for (\w+)", lambda found: _lacking(found[1]), fact)
        fact = re.sub(r"The number of provided arguments \((\d+)\).*\((\d+)\)", r"\1 arguments, of at most \2", fact)
        where = f"line {first['line']}, column {first['col']}"
        raise SqlError(f"{where}: cannot read the statement{near}: {fact}") from error
    except ArithmeticError as error:  # an exponent of twenty digits
        raise SqlError("a number of the statement cannot be read as DECIMAL", "DECIMAL holds 38 digits") from error
    except (TokenError, RecursionError, ValueError) as error:
        raise SqlError("the statement cannot be read", "is it nested very deeply?") from error
    if len(trees) != 1 or trees[0] is None:
        raise SqlError("one statement was expected here")
    return trees[0]


def and_parts(node: exp.Expression) -> list[exp.Expression]:
    """The parts of a conjunction; a loop, because a long one is nested deeply."""
    found: list[exp.Expression] = []
    waiting = [node]
    while waiting:
        part = waiting.pop()
        inner = part.unnest()
        if isinstance(inner, exp.And):
            waiting += [inner.expression, inner.this]
        else:
            found.append(part)
    return found


def _lacking(node: str) -> str:
    """What is missing of a node of sqlglot, by the node's class."""
    name = next((kind.sql_name() for kind in exp.ALL_FUNCTIONS if kind.__name__ == node), None)
    return "an operand is missing" if name is None else f"{name} lacks an argument"


# after these something must follow that is not a clause
_WANT_MORE = {
    **dict.fromkeys(("SELECT", "SELECT DISTINCT", "BY"), "an expression"),
    **dict.fromkeys(("FROM", "JOIN"), "a table"),
    **dict.fromkeys(("ON", "WHERE", "HAVING", "AND", "OR"), "a condition"),
    ",": "something to follow the comma",
}
_CLAUSES = frozenset(
    ["FROM", "WHERE", "HAVING", "UNION", "INTERSECT", "EXCEPT", "JOIN", "ON", "AND", "OR", ")", ",", ""]
)
_CLAUSES_OF_TWO = frozenset({("GROUP", "BY"), ("ORDER", "BY")})


def parse_query(text: str) -> exp.Expression:
    """The tree of one SELECT."""
    cursors = split_statements(text)
    if len(cursors) != 1:
        raise SqlError(f"a view has one SELECT, not {len(cursors)}")
    return read_query(cursors[0])


def read_query(cursor: Cursor) -> exp.Expression:
    """The tree of the query that begins at the cursor and ends the statement."""
    if any(word.kind == "word" and word.text == "|>" for word in cursor.tokens):
        raise UnsupportedSql("|> is not supported", "write the query with SELECT")
    _refuse_gaps(cursor)
    tree = cursor.parse_rest()
    for node in tree.find_all(exp.Parameter, exp.Placeholder):
        raise SqlError(f"{node.sql(dialect='spark')} is a variable, and a query has none", "write the name or value")
    for node in tree.find_all(exp.Identifier):
        if node.args.get("quoted") and cursor.text[node.meta.get("start", 0)] in "'\"":
            raise SqlError(f"the string {node.name!r} stands where a name belongs", "quote names with backticks")
    return tree


def _refuse_gaps(cursor: Cursor) -> None:
    """Raise where an expression, a condition or a table is missing."""
    start, tokens = cursor.place, cursor.tokens[cursor.place :]
    words = [word.text.upper() if word.kind == "word" else "a name or value" for word in tokens]
    is_number = [word.kind == "number" for word in tokens]
    words += ["", ""]  # the end of the text counts as a clause
    for index, word in enumerate(words[:-2]):
        following = words[index + 1]
        before = f"{words[index - 1]} {word}" if index and word == "DISTINCT" else word
        is_limit = following == "LIMIT" and is_number[index + 2 : index + 3] == [True]
        ends = following in _CLAUSES or (following, words[index + 2]) in _CLAUSES_OF_TWO or is_limit
        ends = ends and (before, following) != ("SELECT DISTINCT", "ON")  # which is refused for what it is
        if (before in _WANT_MORE and ends) or (word == "(" and following == ","):
            cursor.place = start + index + 1
            wanted = _WANT_MORE.get(before, "an expression")
            raise cursor.error(f"expected {wanted}, found {cursor.found}")
