"""From the text of a search to its tree; every complaint has its column and what would be right."""

from __future__ import annotations

import functools
import re
from typing import Any

from lark import Lark, Token, Transformer
from lark.exceptions import UnexpectedCharacters, UnexpectedEOF, UnexpectedInput, UnexpectedToken, VisitError

from webapp.history.search.fields import Unknown, field_of, type_of, value_of
from webapp.history.search.tree import (
    Aggregate,
    And,
    Between,
    Compare,
    Condition,
    Field,
    Like,
    Missing,
    Not,
    OneOf,
    Or,
    Query,
    Text,
)

LONGEST, DEEPEST = 4000, 60
NESTING = re.compile(r'"(?:\\.|[^"\\])*"|[()]|(?<![\w.*-])not(?![\w.*-])', re.I)
GRAMMAR = r"""
start: [either] [group] [order]
?either: both (_OR both)*
?both: negated (_AND negated)*
?negated: _NOT negated -> negation | atom
?atom: "(" either ")"
    | WORD OPERATOR value -> compare
    | WORD _IN "(" value ("," value)* ")" -> one_of
    | WORD _NOT _IN "(" value ("," value)* ")" -> none_of
    | WORD _BETWEEN value _AND value -> between
    | WORD _LIKE value -> like
    | WORD _NOT _LIKE value -> unlike
    | WORD _MISSING -> missing
    | WORD -> text
    | STRING -> quoted
value: WORD UNIT? -> plain
    | STRING -> string
group: _GROUP _BY name ("," name)* [":" aggregate ("," aggregate)*]
name: WORD
aggregate: WORD "(" WORD ")" -> of_field
    | WORD -> bare
order: _ORDER _BY WORD [DIRECTION]
_AND.3: /and(?![\w.*-])/i
_OR.3: /or(?![\w.*-])/i
_NOT.3: /not(?![\w.*-])/i
_IN.3: /in(?![\w.*-])/i
_BETWEEN.3: /between(?![\w.*-])/i
_LIKE.3: /like(?![\w.*-])/i
_MISSING.3: /missing(?![\w.*-])/i
_GROUP.3: /group(?=\s+by\b)/i
_ORDER.3: /order(?=\s+by\b)/i
_BY.3: /by(?![\w.*-])/i
DIRECTION.3: /(asc|desc)(?![\w.*-])/i
OPERATOR: "<=" | ">=" | "!=" | "=" | "<" | ">"
UNIT.2: /(ns|us|µs|ms|min|s|h|d|KiB|MiB|GiB|TiB|kB|KB|MB|GB|TB|B|%)(?![\w.*-])/
STRING: /"(\\.|[^"\\])*"/
WORD: /[^\s()<>=!,:"]+/
%ignore /\s+/
"""
#: What is expected, in words, by the names of the grammar.
EXPECTED = {
    "OPERATOR": "a comparison (= != < <= > >=, in, between, like, missing)",
    "WORD": "a name or a value",
    "STRING": "a value",
    "LPAR": "(",
    "RPAR": ")",
    "COMMA": ",",
    "COLON": ":",
    "UNIT": "a unit",
    "_AND": "and",
    "_OR": "or",
    "_GROUP": "group by",
    "_ORDER": "order by",
    "_BY": "by",
    "$END": "the end",
}
#: Kinds of fields that are keys of a run's spec.
KEYS = ("knob", "option", "param")
FUNCTIONS = ("count", "min", "max", "mean", "median", "std", "interval")


class SearchError(Exception):
    """``column`` (from 1) of the text, what is wrong there, and what would be right."""

    def __init__(self, column: int, what: str, expected: str = "") -> None:
        super().__init__(f"column {column}: {what}" + (f"; expected {expected}" if expected else ""))
        self.column, self.what, self.expected = column, what, expected


@functools.cache
def _parser() -> Lark:
    return Lark(GRAMMAR, parser="lalr", propagate_positions=True, maybe_placeholders=True)


def parse(text: str) -> Query:
    """The search that ``text`` says; raises ``SearchError``."""
    if len(text) > LONGEST:
        raise SearchError(LONGEST, f"the search has {len(text)} characters", f"at most {LONGEST}")
    if _depth(text) > DEEPEST:
        raise SearchError(1, "parentheses or NOTs are too deep", f"at most {DEEPEST}")
    try:
        found: Query = _Tree().transform(_parser().parse(text))
        return found
    except UnexpectedInput as error:
        raise _complaint(error, text) from None
    except VisitError as error:
        if isinstance(error.orig_exc, SearchError):
            raise error.orig_exc from None
        raise


def _depth(text: str) -> int:
    """How deep parentheses and NOTs stand inside each other; what quotes hold counts for nothing."""
    depth = nots = deepest = 0
    for word in NESTING.findall(text):
        if word.lower() == "not":
            nots += 1
        elif word in "()":
            depth, nots = depth + (1 if word == "(" else -1), nots if word == "(" else 0
        deepest = max(deepest, depth + nots)
    return deepest


def _complaint(error: UnexpectedInput, text: str) -> SearchError:
    if isinstance(error, UnexpectedEOF):
        return SearchError(len(text) + 1, "the search ends too early", _in_words(error.expected))
    if isinstance(error, UnexpectedToken):
        at_end = error.token.type == "$END"
        column = len(text) + 1 if at_end else int(error.column)
        what = "the search ends too early" if at_end else f"{str(error.token)!r:.40} does not belong here"
        return SearchError(column, what, _in_words(error.accepts or error.expected))
    if isinstance(error, UnexpectedCharacters):
        what = f"{text[error.pos_in_stream or 0]!r} does not belong here"
        return SearchError(int(error.column), what, _in_words(error.allowed or ()))
    return SearchError(1, "it cannot be read")


def _in_words(expected: Any) -> str:
    """The likeliest first: a comparison after a name, what joins conditions after a value."""
    words = [said for name, said in EXPECTED.items() if name in set(expected)]
    if EXPECTED["WORD"] in words and EXPECTED["STRING"] in words:
        words.remove(EXPECTED["STRING"])
    return " or ".join(words[:5])


class _Tree(Transformer):  # type: ignore[type-arg]
    """From lark's tree to ours, names and values looked up."""

    def start(self, parts: list[Any]) -> Query:
        condition, group, order = parts
        fields, aggregates = group or ((), ())
        column, descending = order or (None, False)
        return Query(condition, fields, aggregates, column, descending)

    def either(self, parts: list[Condition]) -> Condition:
        return Or(tuple(parts))

    def both(self, parts: list[Condition]) -> Condition:
        return And(tuple(parts))

    def negation(self, parts: list[Condition]) -> Condition:
        return Not(parts[0])

    def compare(self, parts: list[Any]) -> Condition:
        field, operator = _field(parts[0]), str(parts[1])
        if type_of(field) == "text" and operator not in ("=", "!="):
            raise SearchError(parts[1].column, f"{field} is text", "= or !=, in, like, missing")
        return Compare(field, operator, _value(field, parts[2]))

    def one_of(self, parts: list[Any]) -> Condition:
        field = _field(parts[0])
        return OneOf(field, tuple(_value(field, part) for part in parts[1:]))

    def none_of(self, parts: list[Any]) -> Condition:
        return Not(self.one_of(parts))

    def between(self, parts: list[Any]) -> Condition:
        field = _field(parts[0])
        if type_of(field) == "text":
            raise SearchError(field.at, f"{field} is text", "= or !=, in, like, missing")
        return Between(field, _value(field, parts[1]), _value(field, parts[2]))

    def like(self, parts: list[Any]) -> Condition:
        field = _field(parts[0])
        if type_of(field) != "text":
            raise SearchError(field.at, f"{field} is no text", "a comparison or between")
        return Like(field, parts[1][0])

    def unlike(self, parts: list[Any]) -> Condition:
        return Not(self.like(parts))

    def missing(self, parts: list[Any]) -> Condition:
        return Missing(_field(parts[0]))

    def text(self, parts: list[Token]) -> Condition:
        return Text(str(parts[0]))

    def quoted(self, parts: list[Token]) -> Condition:
        return Text(_unquote(parts[0]))

    def plain(self, parts: list[Token]) -> tuple[str, int]:
        unit = f" {parts[1]}" if len(parts) > 1 and parts[1] is not None else ""
        return f"{parts[0]}{unit}", int(parts[0].column or 0)

    def string(self, parts: list[Token]) -> tuple[str, int]:
        return _unquote(parts[0]), int(parts[0].column or 0)

    def name(self, parts: list[Token]) -> Field:
        return _field(parts[0])

    def of_field(self, parts: list[Token]) -> Aggregate:
        field = _field(parts[1])
        if str(parts[0]) not in FUNCTIONS[1:]:
            raise SearchError(int(parts[0].column or 0), f"{parts[0]} is none", ", ".join(FUNCTIONS))
        if field.kind != "metric":
            raise SearchError(field.at, f"{field} is no metric", "a metric in the parentheses")
        return Aggregate(str(parts[0]), field)

    def bare(self, parts: list[Token]) -> Aggregate:
        if str(parts[0]) != "count":
            raise SearchError(int(parts[0].column or 0), f"{parts[0]} alone", "count, or min(step_time)")
        return Aggregate("count")

    def group(self, parts: list[Any]) -> tuple[tuple[Field, ...], tuple[Aggregate, ...]]:
        fields = tuple(part for part in parts if isinstance(part, Field))
        for field in fields:
            if field.kind not in KEYS and not (field.kind == "column" and type_of(field) == "text"):
                expected = "policy, hardware, state ..., a knob, an option or a parameter"
                raise SearchError(field.at, f"{field} is nothing to group by", expected)
        return fields, tuple(part for part in parts if isinstance(part, Aggregate)) or (Aggregate("count"),)

    def order(self, parts: list[Any]) -> tuple[Field, bool]:
        field = _field(parts[0])
        if field.kind not in ("column", "metric"):
            raise SearchError(field.at, f"{field} is nothing to sort by", "a column or a metric")
        return field, parts[1] is not None and str(parts[1]).lower() == "desc"


def _field(token: Token) -> Field:
    try:
        return field_of(str(token), int(token.column or 0))
    except Unknown as unknown:
        near = f"perhaps {' or '.join(unknown.near)}" if unknown.near else "policy, step_time, knob.…"
        raise SearchError(int(token.column or 0), f"nothing is called {str(token)!r:.60}", near) from None


def _value(field: Field, told: tuple[str, int]) -> Any:
    text, column = told
    try:
        return value_of(field, text)
    except ValueError as error:
        raise SearchError(column, f"{text!r:.40} is not that", str(error)) from None


def _unquote(token: Token) -> str:
    return str(token)[1:-1].replace('\\"', '"').replace("\\\\", "\\")
