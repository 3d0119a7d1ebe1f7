"""Versions: those of the data plane that this program supports, how two sides agree on one, how an unknown one is refused.

What holds: a connection uses the highest version that both sides support, and only features that both announce; without a
common version the error names both ranges and the side that is behind.
"""

from __future__ import annotations

from typing import NamedTuple

from rangelog_core.errors import ProtocolViolation, UnsupportedVersion


class VersionRange(NamedTuple):
    """All versions from `lowest` to `highest`, both included; versions count from 1."""

    lowest: int
    highest: int

    def __str__(self) -> str:
        return f"{self.lowest}" if self.lowest == self.highest else f"{self.lowest} to {self.highest}"


FEATURE_LEVEL = 14
"""Of this program: raised whenever placement drivers can propose what earlier ones do not apply the same way (what a level
means never changes afterwards). All processes report it."""

LEVEL_CHANGES = {
    2: "many seals in one command, updates that expect a version, checks of a leader by its followers",
    3: "a new range takes the place of the empty sealed ranges before it",
    4: "namespaces, topics, brokers",
    5: "objects of the tier are repacked by hand",
    6: "drains, moves, placement by zones and labels, cursors, restores, changes of members",
    7: "small objects are packed and trimmed rows leave by themselves, the loss of an open range can be accepted",
    8: "rights of clients",
    9: "the audit log",
    10: "objects of the tier are encrypted where servers have keys; tokens of clients",
    11: "quotas of clients and of name prefixes",
    12: "brokers have a version of their own, which journals follow",
    13: "hosts of range servers and brokers",
    14: "records that are submitted under a name are in a topic once",
}
"""By feature level: what the cluster does from this cluster version on."""

DATA_PLANE_VERSIONS = VersionRange(1, 1)
"""Versions of the messages after Hello. Hello and its reply have the same form in every version."""

OBJECT_VERSIONS = VersionRange(1, 2)
"""Versions of tiered objects (tier/parquet.py): all are read, the highest is written."""

MANIFEST_VERSIONS = VersionRange(1, 2)
"""Versions of a stream's manifest (manifest.py): all are read; 2 is written for a stream with repacked objects, else 1."""

REPACK_VERSIONS = VersionRange(1, 1)
"""Versions of the directive to repack objects: a range server that reports none does not get it."""

LEAVE_WANTED_VERSIONS = VersionRange(1, 1)
"""Versions of the directive to ask a writer to leave a range: a range server that reports none would refuse its appends."""

ENCRYPTION_VERSIONS = VersionRange(1, 1)
"""Versions of encrypted objects (tier/object_cipher.py): while a range server reports none, no object is encrypted."""

LEVEL_ENCRYPTION = 10
"""The cluster version from which on objects are encrypted: before, some placement drivers do not know which are."""

LEVEL_BROKERS = 12
"""The cluster version from which on brokers register with their level, and the broker version from which on journals go by its
rules: members of groups are told apart by when they joined, sessions have secret numbers and a share of the results each."""

LEVEL_SUBMISSIONS = 14
"""The broker version from which on owners of shards take submissions: an earlier one opens no shard whose log has any."""

TIER_SNAPSHOT_VERSIONS = VersionRange(1, 1)
"""Versions of a placement driver's snapshot in the tier (tier_snapshot.py)."""

BATCH_HEADER_EXTENSION = "batch-header-extension"
"""A range server takes batches whose header has an extension."""

FEATURES: frozenset[str] = frozenset({BATCH_HEADER_EXTENSION})
"""The features that this program announces, as a client and as a range server."""


def announced(lowest: int, highest: int) -> VersionRange:
    """Return the range that a peer announced; `lowest` 0: it supports `highest` only. Raises ProtocolViolation."""
    found = VersionRange(lowest or highest, highest)
    if not 0 < found.lowest <= found.highest:
        raise ProtocolViolation(f"the peer announces the protocol versions {lowest} to {highest}")
    return found


def agreed(client: VersionRange, server: VersionRange) -> int:
    """Return the highest version of the data plane that both sides support. Raises UnsupportedVersion."""
    version = min(client.highest, server.highest)
    if version < max(client.lowest, server.lowest):
        behind = "client" if client.highest < server.lowest else "range server"
        raise UnsupportedVersion(
            f"no common version of the data plane: the client supports {client}, the range server {server}: "
            f"upgrade the {behind}"
        )
    return version


def unsupported(what: str, found: int, known: VersionRange, side: str) -> UnsupportedVersion:
    """Return the error for undamaged data of another version. `side`: the program to upgrade, such as "this server"."""
    return UnsupportedVersion(f"{what} is of version {found}, this program reads {known}: upgrade {side}")
