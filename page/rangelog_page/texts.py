"""Names and bytes of others as text that is safe to look at. Pure.

What holds: a text that is shown has no control character, no character that turns the direction of writing or has no width, and
no more than the given length; so what one reads is what is there. Markup is escaped elsewhere, by the templates.
"""

from __future__ import annotations

import unicodedata

TEXT_LENGTH_MAX = 300
VALUE_LENGTH_MAX = 2_000
_UNSEEN = {"Cc", "Cf", "Co", "Cs", "Cn", "Zl", "Zp"}
"""Categories of Unicode: control, format (among them those of direction and width), private, halves, unassigned, separators."""


def shown(text: object, length_max: int = TEXT_LENGTH_MAX) -> str:
    """Return a text for the page: what cannot be seen is written as its number, what is too long is cut.

    >>> shown("a\\u202eb"), shown("x" * 9, 4)
    ('a\\\\u202eb', 'xxxx…')
    """
    given = str(text)
    cut = given[:length_max]
    found = cut if cut.isprintable() else "".join(_written(each) for each in cut)  # the first is for speed alone
    return found + "…" if len(given) > length_max else found


def shown_bytes(data: bytes | None, length_max: int = VALUE_LENGTH_MAX) -> tuple[str, bool]:
    """Return bytes as text, and whether they are UTF-8; the others are hexadecimal digits. None is an empty text.

    >>> shown_bytes(b"\\xff\\x00"), shown_bytes("é".encode())
    (('ff 00', False), ('é', True))
    """
    if data is None:
        return "", True
    try:
        # A character has up to four bytes: no more is decoded than is shown. A cut within one is not an error of the data.
        head = data[: 4 * length_max + 4]
        text = head.decode() if len(head) == len(data) else _head_text(head)
        return shown(text if len(head) == len(data) else text + " ", length_max), True
    except UnicodeDecodeError:
        head = data[: length_max // 3]
        return head.hex(" ") + ("…" if len(data) > len(head) else ""), False


def _head_text(head: bytes) -> str:
    try:
        return head.decode()
    except UnicodeDecodeError as error:
        if error.start >= len(head) - 3:
            return head[: error.start].decode()
        raise


def _written(character: str) -> str:
    if character in "\n\t":
        return character
    if unicodedata.category(character) not in _UNSEEN:
        return character
    number = ord(character)
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"
