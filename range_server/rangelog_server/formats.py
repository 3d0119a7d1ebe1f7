"""The formats that a range server reads and writes, as its registration reports them to the placement driver."""

from __future__ import annotations

from rangelog_core import batch
from rangelog_core.rights import RIGHTS_FORMAT
from rangelog_core.versions import (
    DATA_PLANE_VERSIONS,
    ENCRYPTION_VERSIONS,
    LEAVE_WANTED_VERSIONS,
    MANIFEST_VERSIONS,
    OBJECT_VERSIONS,
    REPACK_VERSIONS,
    VersionRange,
)
from rangelog_proto.v1 import common_pb2
from rangelog_server.wal import entry

FORMATS: dict[str, VersionRange] = {
    "data-plane": DATA_PLANE_VERSIONS,
    "record-batch": VersionRange(batch.VERSION, batch.VERSION),
    "log-segment": entry.SEGMENT_VERSIONS,
    "log-entry": entry.ENTRY_VERSIONS,
    "tiered-object": OBJECT_VERSIONS,
    "encrypted-object": ENCRYPTION_VERSIONS,
    "manifest": MANIFEST_VERSIONS,
    "repack": REPACK_VERSIONS,
    "leave-wanted": LEAVE_WANTED_VERSIONS,
}
"""The versions that are read, by the format's name in docs/FORMATS.md; the highest version is written."""


def reported_formats() -> list[common_pb2.FormatVersions]:
    """Return the formats for a registration, and that this server asks for rights."""
    known = FORMATS | {RIGHTS_FORMAT: VersionRange(1, 1)}
    return [
        common_pb2.FormatVersions(format=name, lowest=versions.lowest, highest=versions.highest)
        for name, versions in known.items()
    ]
