"""Where the key of a line is: none, one for all lines, in front of a separator, or in a field of a JSON object.

What holds: a line without a key where one is expected is an error.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from pdctl.units import quoted
from rangelog_core.errors import InvalidArgument

Keyed = tuple[bytes | None, bytes]
"""Key and value of a record."""
LineKeys = Callable[[bytes], Keyed]
"""From a line to the record. Raises InvalidArgument."""


def same_key(key: bytes | None) -> LineKeys:
    """All lines have this key, or none."""
    return lambda line: (key, line)


def key_before(separator: bytes) -> LineKeys:
    """The key is what stands before the first separator, the value what stands behind it."""

    def split(line: bytes) -> Keyed:
        key, found, value = line.partition(separator)
        if not found:
            raise InvalidArgument(f"there is no separator {quoted(separator.decode(errors='backslashreplace'))}")
        return key, value

    return split


def key_in_field(field: str) -> LineKeys:
    """The line is a JSON object, and the value of the record; the key is the text of one of its fields."""

    def find(line: bytes) -> Keyed:
        try:
            found = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InvalidArgument("this is not JSON") from error
        key = found.get(field) if isinstance(found, dict) else None
        if key is None:
            raise InvalidArgument(f"this is not a JSON object with the field {quoted(field)}")
        text = key if isinstance(key, str) else json.dumps(key, ensure_ascii=False, separators=(",", ":"))
        return text.encode("utf-8", "surrogatepass"), line

    return find
