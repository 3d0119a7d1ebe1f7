"""JSON pointers, which name a part of a JSON value: RFC 6901. No I/O."""

from __future__ import annotations

from typing import Any

from rangelog.errors import InvalidArgument

LENGTH_MAX = 200


def parse_pointer(text: str) -> tuple[str, ...]:
    """Return the parts of a pointer. Raises InvalidArgument.

    >>> parse_pointer("/customer/a~1b")
    ('customer', 'a/b')
    """
    if len(text) > LENGTH_MAX or not text.startswith("/"):
        raise InvalidArgument(f"a JSON pointer begins with / and has {LENGTH_MAX} characters at most: /customer/id")
    return tuple(part.replace("~1", "/").replace("~0", "~") for part in text[1:].split("/"))


def key_at(value: Any, pointer: tuple[str, ...]) -> bytes | None:
    """Return the text or number at a pointer as a record's key; None: nothing is there, or null.

    Raises InvalidArgument where something else is there.

    >>> key_at({"customer": {"id": 7}}, ("customer", "id"))
    b'7'
    """
    for part in pointer:
        if isinstance(value, dict):
            value = value.get(part)
        elif isinstance(value, list) and part.isascii() and part.isdigit() and len(part) <= 9:
            value = value[int(part)] if int(part) < len(value) else None
        else:
            return None
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise InvalidArgument(
            f"the key at /{'/'.join(pointer)} is a text or a whole number, not {type(value).__name__}"
        )
    try:
        return str(value).encode()
    except UnicodeEncodeError:
        raise InvalidArgument(f"the key at /{'/'.join(pointer)} is not valid Unicode") from None
