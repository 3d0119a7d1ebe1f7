"""Which range servers are cordoned or being drained, and which do not read encrypted objects.

What holds: the indexes follow from the rows of the servers alone.
"""

from __future__ import annotations

from rangelog_pd.state.tables import mark, row_of
from rangelog_proto.v1 import common_pb2, pd_state_pb2

ENCRYPTION_FORMAT = "encrypted-object"
"""What a range server that reads encrypted objects reports among its formats."""


class ServerModes:
    """The names of servers by mode; active ones that read every format are in no index."""

    def __init__(self) -> None:
        self.cordoned: dict[str, None] = {}
        self.draining: dict[str, None] = {}
        self.without_encryption: dict[str, None] = {}
        """Servers of an earlier release, which take an encrypted object for a damaged one."""

    def changed(
        self, before: pd_state_pb2.RegisteredServer | None, after: pd_state_pb2.RegisteredServer | None
    ) -> None:
        """A row of the servers changed."""
        name, mode = row_of(before, after).server.name, after.mode if after is not None else None
        mark(self.cordoned, name, present=mode == common_pb2.SERVER_MODE_CORDONED)
        mark(self.draining, name, present=mode == common_pb2.SERVER_MODE_DRAINING)
        mark(self.without_encryption, name, present=after is not None and not _reads_encrypted(after))

    def bars(self, server: str) -> bool:
        """Whether a server gets no new replica."""
        return server in self.cordoned or server in self.draining

    def indexes(self) -> list[object]:
        """Return all indexes, for comparison."""
        return [self.cordoned, self.draining, self.without_encryption]


def _reads_encrypted(server: pd_state_pb2.RegisteredServer) -> bool:
    return any(known.format == ENCRYPTION_FORMAT for known in server.server.formats)
