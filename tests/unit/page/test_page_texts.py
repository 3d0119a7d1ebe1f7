"""What others have named or written, as text that shows what it is."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rangelog_page.texts import shown, shown_bytes


@pytest.mark.parametrize(
    ("given_text", "expected"),
    [
        ("plain – ünï 日本", "plain – ünï 日本"),
        ("a\u202eb\u2066c", "a\\u202eb\\u2066c"),  # direction
        ("a\u200bb\ufeff", "a\\u200bb\\ufeff"),  # no width
        ("\x00\x1b[31m\x7f", "\\x00\\x1b[31m\\x7f"),
        ("a\u2028b", "a\\u2028b"),
        ("\U000e0041", "\\U000e0041"),  # a tag
        ("\ud800", "\\ud800"),
        ("line\n\tindented", "line\n\tindented"),
        (7, "7"),
    ],
)
def test_characters_that_cannot_be_seen(given_text: object, expected: str) -> None:
    """Each is written as its number; what people write in any language stays."""
    assert shown(given_text) == expected


@given(st.text(max_size=400), st.integers(1, 100))
def test_nothing_unseen_is_left_and_nothing_too_long(text: str, length_max: int) -> None:
    """Of any text; and what is shown is shown the same again."""
    found = shown(text, length_max)
    assert all(each in "\n\t" or unicodedata.category(each) not in ("Cc", "Cf", "Cs", "Co") for each in found)
    assert len(found) <= 10 * length_max + 1 and shown(found, 10_000) == found
    assert found.encode().decode() == found


def test_bytes() -> None:
    """Text stays text, other bytes are digits, and what is too long is cut, also within a character."""
    assert shown_bytes(None) == ("", True) and shown_bytes(b"") == ("", True)
    assert shown_bytes("héllo".encode()) == ("héllo", True)
    assert shown_bytes(b"\xff\x00") == ("ff 00", False)
    assert shown_bytes(b"x" * 5_000, 10) == ("xxxxxxxxxx…", True)
    assert shown_bytes("é".encode() * 5_000, 11) == ("é" * 11 + "…", True)
    assert shown_bytes("日".encode() * 5_000, 10) == ("日" * 10 + "…", True)
    text, is_text = shown_bytes(b"\xff" * 5_000, 30)
    assert (text, is_text) == (" ".join(["ff"] * 10) + "…", False)


@given(st.binary(max_size=300), st.integers(3, 50))
def test_any_bytes(data: bytes, length_max: int) -> None:
    """No bytes are an error."""
    found, is_text = shown_bytes(data, length_max)
    assert isinstance(found, str) and len(found) <= 10 * length_max + 1
    assert not is_text or len(data) > 4 * length_max or data.decode()[:1] is not None
