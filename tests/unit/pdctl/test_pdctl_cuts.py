"""Places in a topic as users type them: words, times, checkpoints, and files with cuts."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import click
import pytest

from pdctl.topics.places import CUT_BYTES_MAX, CutFileType, PlaceType, parse_cut
from rangelog import Cut
from rangelog_core.errors import InvalidArgument, UnsupportedVersion

WORDS = ("earliest", "latest")


def test_a_printed_cut_is_read_again() -> None:
    """Also where a tool has spread it over lines, and for as many shards as a topic may have."""
    cut = Cut(7, dict.fromkeys(range(3000), (1 << 63) - 1))
    assert parse_cut(cut.to_json().encode()) == cut
    assert parse_cut(json.dumps(json.loads(cut.to_json()), indent=2).encode()) == cut


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"{}",
        b'{"shards": {"0": 1}}',
        b'{"cut":1,"topic_id":7,"offsets":{}}',
        b'{"cut":1,"topic_id":7,"offsets":{"0":-1}}',
        b"[" * 100_000,
        b"\xff",
        b'{"cut":1,"topic_id":7,"offsets":{"0":1}}' + b" " * CUT_BYTES_MAX,
    ],
)
def test_what_is_no_cut_is_refused(data: bytes) -> None:
    """With one message, whatever the bytes are."""
    with pytest.raises(InvalidArgument, match="cut"):
        parse_cut(data)


def test_a_cut_of_a_later_version_is_no_mistake_of_the_user() -> None:
    """The message names what to do."""
    with pytest.raises(UnsupportedVersion, match="upgrade"):
        parse_cut(b'{"cut":2}')


def test_places(tmp_path: Path) -> None:
    """A word, a time with its zone, a checkpoint where they are allowed, and otherwise a file with a cut."""
    place = PlaceType(WORDS, checkpoints=True)
    assert place.convert("latest", None, None) == "latest"
    assert place.convert("2026-01-31T12:00Z", None, None) == datetime(2026, 1, 31, 12, tzinfo=UTC)
    with pytest.raises(click.BadParameter, match="has no time zone"):
        place.convert("2026-01-31T12:00", None, None)
    assert place.convert("checkpoint:daily", None, None) == "checkpoint:daily"
    file = tmp_path / "latest"
    file.write_text(Cut(7, {0: 5}).to_json())
    assert place.convert(str(file), None, None) == CutFileType().convert(str(file), None, None) == Cut(7, {0: 5})
    file.write_text("{")
    with pytest.raises(InvalidArgument, match="pdctl topic cut"):
        place.convert(str(file), None, None)


@pytest.mark.parametrize("text", ["", "first", "checkpoint:x", "2026-13-01", "/nowhere/at/all"])
def test_what_is_no_place_is_refused(text: str) -> None:
    """A usage error, with and without files."""
    for kind in (PlaceType(WORDS), PlaceType(WORDS, files=False)):
        with pytest.raises(click.UsageError):
            kind.convert(text, None, None)
