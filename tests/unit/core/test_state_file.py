"""The file of a saved state: every change of it is seen."""

from __future__ import annotations

import struct
from pathlib import Path

import google_crc32c
import pytest

from rangelog_core import state_file
from rangelog_core.errors import Corruption, InvalidArgument, UnsupportedVersion

WHOLE = b"".join(state_file.encode(b"header", [b"st", b"", b"ate"]))


def test_header_and_state_come_back(tmp_path: Path) -> None:
    """From bytes and from a file; an empty state is one too."""
    assert state_file.decode(WHOLE, source="x") == (b"header", b"state")
    (tmp_path / "saved").write_bytes(WHOLE)
    assert state_file.read(tmp_path / "saved") == (b"header", b"state")
    assert state_file.decode(b"".join(state_file.encode(b"", [])), source="x") == (b"", b"")


@pytest.mark.parametrize("position", range(len(WHOLE)))
def test_every_flipped_bit_is_corruption(position: int) -> None:
    """Wherever it is: in the head, the header, the state or the tail."""
    damaged = bytearray(WHOLE)
    damaged[position] ^= 0x40
    with pytest.raises(Corruption):
        state_file.decode(bytes(damaged), source="x")


def test_every_other_length_is_corruption() -> None:
    """A file that was cut, and one that goes on."""
    for length in range(len(WHOLE)):
        with pytest.raises(Corruption):
            state_file.decode(WHOLE[:length], source="x")
    with pytest.raises(Corruption):
        state_file.decode(WHOLE + b"\0", source="x")


def test_a_later_version_is_named_as_such() -> None:
    """A whole file of another program is not damage."""
    later = bytearray(WHOLE)
    struct.pack_into("<I", later, 8, 2)
    struct.pack_into("<I", later, len(later) - 12, google_crc32c.value(bytes(later[:-12])))
    with pytest.raises(UnsupportedVersion):
        state_file.decode(bytes(later), source="x")


def test_a_header_is_bounded() -> None:
    """Both ways."""
    with pytest.raises(InvalidArgument):
        list(state_file.encode(b"x" * (state_file.HEADER_BYTES_MAX + 1), []))
