"""Which entries were applied last, by what they mean to a snapshot in the tier.

What holds: this is memory of one member and no part of the state; it knows too much rather than too little, since a refused
command counts as applied.
"""

from __future__ import annotations

_OF_NO_ACCOUNT = frozenset(
    {
        "", "name_cluster", "set_cluster_version", "register_server", "mark_log_end", "mark_log_ends", "set_server_mode",
        "remove_server", "register_broker", "mark_broker_lost", "assign_shards", "replace_replica", "prove_end", "drop_hot",
        "report_consumed", "grant_rights", "revoke_rights", "enforce_rights",
        "set_audit", "note_audit", "mark_audit_written", "create_token", "revoke_token",
    }
)  # fmt: skip
"""A restore needs nothing of these."""
_OF_WRITERS = frozenset(
    {
        "open_writer", "open_writers", "create_range", "seal_range", "seal_ranges", "prepare_object", "prepare_repack",
        "abandon_object", "collect_objects", "take_cuts", "set_cursors",
    }
)  # fmt: skip
"""They come all the time, and manifests and objects show most of what they came to."""


class AppliedEntries:
    """Indexes of entries; 0: none since this process began."""

    def __init__(self) -> None:
        self.last = 0
        self.changing = 0
        """The last one that a restore should know."""
        self.urgent = 0
        """The last one that it should know soon."""

    def note(self, index: int, action: str) -> None:
        """Note an entry."""
        self.last = index
        if action not in _OF_NO_ACCOUNT:
            self.changing = index
            if action not in _OF_WRITERS:
                self.urgent = index

    def restored(self) -> None:
        """Note that the state was replaced, with unknown changes."""
        self.changing = self.urgent = max(self.last, 1)
