"""Which range servers are cordoned or being drained.

What holds: both indexes follow from the rows of the servers alone.
"""

from __future__ import annotations

from rangelog_proto.v1 import common_pb2, pd_state_pb2


class ServerModes:
    """The names of servers by mode; active ones are in no index."""

    def __init__(self) -> None:
        self.cordoned: dict[str, None] = {}
        self.draining: dict[str, None] = {}

    def changed(
        self, before: pd_state_pb2.RegisteredServer | None, after: pd_state_pb2.RegisteredServer | None
    ) -> None:
        """A row of the servers changed."""
        row = after if after is not None else before
        assert row is not None
        for index, mode in (
            (self.cordoned, common_pb2.SERVER_MODE_CORDONED),
            (self.draining, common_pb2.SERVER_MODE_DRAINING),
        ):
            if after is not None and after.mode == mode:
                index[row.server.name] = None
            else:
                index.pop(row.server.name, None)

    def bars(self, server: str) -> bool:
        """Whether a server gets no new replica."""
        return server in self.cordoned or server in self.draining

    def indexes(self) -> list[object]:
        """Return all indexes, for comparison."""
        return [self.cordoned, self.draining]
