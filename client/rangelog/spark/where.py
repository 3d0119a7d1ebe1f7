"""The option `where`: conditions on offset, timestamp, key and shard that all rows of a data frame fulfil.

    offset >= 1000 AND timestamp < '2026-01-31T12:00:00Z' AND key IN ('a', X'00ff') AND shard = 3

Comparisons joined by AND; a key is text (UTF-8) or X'hex', and is compared with = and IN; a time is ISO 8601, in UTC unless it
names another offset. What holds: a text is a list of conditions in full, or an error.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

from rangelog.spark.filters import OF_KEYS, Condition, Selection, plain
from rangelog_core.errors import ConfigInvalid

TEXT_MAX = 100_000
_TOKEN = re.compile(
    r"\s*(?:(?P<hex>[xX]'[0-9a-fA-F]*')|(?P<text>'(?:[^']|'')*')|(?P<number>-?[0-9]{1,19})"
    r"|(?P<operator><=|>=|<|>|=)|(?P<sign>[(),])|(?P<word>[A-Za-z_]+))"
)
_KINDS = {
    "=": "EqualTo",
    "<": "LessThan",
    "<=": "LessThanOrEqual",
    ">": "GreaterThan",
    ">=": "GreaterThanOrEqual",
}
_COLUMNS = ("offset", "timestamp", "key", "shard")


def parse_where(text: str, *, of_topic: bool) -> Selection:
    """Return the conditions of a text; none for an empty one. Raises ConfigInvalid."""
    selection = Selection()
    if not text.strip():
        return selection
    parser = _Parser(text)
    while True:
        condition = parser.condition()
        if condition.column == "shard" and not of_topic:
            parser.fail("a stream has no column shard")
        selection.add(condition)
        if parser.at_end:
            return selection
        parser.expect("word", "AND")


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text[:TEXT_MAX]
        self._position = 0
        if len(text) > TEXT_MAX:
            self.fail(f"it is longer than {TEXT_MAX} characters")

    @property
    def at_end(self) -> bool:
        return not self._text[self._position :].strip()

    def fail(self, why: str) -> None:
        raise ConfigInvalid(
            "option where is made of comparisons such as offset >= 10 AND timestamp < '2026-01-31T12:00:00Z' AND "
            f"key IN ('a', X'00ff'): {why}"
        )

    def condition(self) -> Condition:
        column = self._next("word").lower()
        if column not in _COLUMNS:
            self.fail(f"{column[:50]!r} is none of {', '.join(_COLUMNS)}")
        kind, token = self._token()
        values: list[Any] = []
        if kind == "word" and token.upper() == "IN":
            name = "In"
            self.expect("sign", "(")
            while not values or self._next("sign", ",", ")") == ",":
                values.append(self._literal(column))
        elif kind == "operator":
            name = _KINDS[token]
            values.append(self._literal(column))
        else:
            self.fail(f"{token[:50]!r} is no comparison")
        if column == "key" and name not in OF_KEYS:
            self.fail("a key is compared with = or IN")
        return Condition(column, name, tuple(values))

    def expect(self, kind: str, *tokens: str) -> None:
        self._next(kind, *tokens)

    def _next(self, kind: str, *tokens: str) -> str:
        found, token = self._token()
        if found != kind or (tokens and token.upper() not in tokens):
            self.fail(f"{' or '.join(tokens) or f'a {kind}'} is expected, not {token[:50]!r}")
        return token

    def _token(self) -> tuple[str, str]:
        found = _TOKEN.match(self._text, self._position)
        if found is None or found.lastgroup is None:
            rest = self._text[self._position :].strip()
            self.fail(f"{rest[:50]!r} is not understood" if rest else "it ends too early")
            raise AssertionError
        self._position = found.end()
        return found.lastgroup, found[found.lastgroup]

    def _literal(self, column: str) -> Any:
        kind, token = self._token()
        value: Any = None
        if kind == "number":
            value = int(token)
        elif kind == "hex" and len(token) % 2:
            value = bytes.fromhex(token[2:-1])
        elif kind == "text":
            value = token[1:-1].replace("''", "'")
            value = _moment(value) if column == "timestamp" else value.encode()
        known = plain(column, value)
        if known is None:
            self.fail(f"{token[:50]} is no {column}")
        return known


def _moment(text: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
