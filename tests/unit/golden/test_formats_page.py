"""docs/FORMATS.md names every format with the versions that the code has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rangelog._topics import cut
from rangelog_cli.local import plan
from rangelog_core import batch, batch_extension, frame, versions
from rangelog_core.versions import TIER_SNAPSHOT_VERSIONS, VersionRange
from rangelog_files import event_file, index_file
from rangelog_pd.consensus.files import hard_state, journal, snapshot_file
from rangelog_pd.consensus.network import handshake
from rangelog_pd.state import snapshot
from rangelog_pd.state import versions as pd_versions
from rangelog_server import formats, identity
from rangelog_server.ranges import state
from rangelog_server.wal import entry

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "FORMATS.md").read_text()


def only(version: int) -> VersionRange:
    """One version, read and written."""
    return VersionRange(version, version)


def of_magic(magic: bytes) -> VersionRange:
    """The version that a magic ends with."""
    return only(int(magic.rstrip(b"\0")[-2:]))


CODE = formats.FORMATS | {
    "frame": only(frame.VERSION),
    "log sidecar": only(entry._SIDECAR_MAGIC[-1]),
    "replica state": state.STATE_VERSIONS,
    "server state": state.SERVER_STATE_VERSIONS,
    "identity": identity.IDENTITY_VERSIONS,
    "cut": only(cut.VERSION),
    "local cluster": only(plan._FORMAT),
    "Raft journal": only(journal._VERSION),
    "Raft vote": of_magic(hard_state._MAGIC),
    "Raft snapshot": VersionRange(snapshot_file._STATIC_VERSION, snapshot_file._VERSION),
    "event-file": only(int(event_file.MAGIC[1:])),
    "event-index": only(int(index_file.MAGIC[1:])),
    "tier snapshot": TIER_SNAPSHOT_VERSIONS,
    "Raft link": of_magic(handshake._MAGIC),
    "PD command": VersionRange(pd_versions.FEATURE_LEVEL_MIN, pd_versions.FEATURE_LEVEL),
    "PD state": only(snapshot.SECTION_VERSION),
}
ROWS = {
    cells[0]: (cells[3], cells[4])
    for cells in ([cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.splitlines())
    if len(cells) == 6
}


def test_every_format_has_its_row() -> None:
    """The table has the formats that the code has, and no others."""
    assert set(ROWS) - {"format", "---", "batch header fields"} == set(CODE)


@pytest.mark.parametrize("name", sorted(CODE))
def test_the_page_has_the_versions_of_the_code(name: str) -> None:
    """What is read, and that the highest is written."""
    assert ROWS[name] == (str(CODE[name]), str(CODE[name].highest))


def test_the_page_lists_tags_kinds_and_bounds() -> None:
    """Every tag of a batch's header, every kind of an entry, and the sizes in the text are the code's."""
    for tag in batch_extension.Tag:
        assert f"{int(tag):,} {tag.name}" in PAGE
    for kind in entry.Kind:
        assert re.search(rf"\b{int(kind)} {kind.name}\b", PAGE), kind
    assert f"tags 1 to {batch_extension.CRITICAL_TAG_MAX:,}" in PAGE
    assert f"{batch.HEADER_BYTES} to {batch.HEADER_BYTES_MAX:,} bytes in all" in PAGE
    assert f"`0x{batch.WHOLE_CRC:08X}`" in PAGE
    assert f"a header of {entry.ENTRY_HEADER_BYTES} bytes" in PAGE
    assert f"begins with {entry.SEGMENT_HEADER_BYTES} bytes" in PAGE
    assert all(f"`{feature}`" in PAGE for feature in versions.FEATURES)
    for magic in (batch.MAGIC, entry.ENTRY_MAGIC, entry.SEGMENT_MAGIC, journal._MAGIC, hard_state._MAGIC):
        assert f"`{magic.rstrip(bytes(1)).decode()}`" in PAGE
