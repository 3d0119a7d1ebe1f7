"""stub: filled once the tier library is there."""

from __future__ import annotations

from pathlib import Path

from rangelog._transport.pd_client import PdClient
from rangelog.errors import Unavailable
from rangelog_proto.v1 import pd_pb2 as pb
from rangelog_server.data_plane import DataPlane
from rangelog_server.identity import Identity
from rangelog_server.ranges.store import Store


class TierWork:
    """Uploads and deletions."""

    def __init__(
        self, pd: PdClient, identity: Identity, store: Store, plane: DataPlane, temporary: Path, url: str
    ) -> None:
        self._url = url

    def learned_url(self, url: str) -> None:
        """The placement driver's word where objects go; the setting wins."""
        self._url = self._url or url

    async def upload_range(self, directive: pb.Directive) -> None:
        """Upload."""
        raise Unavailable("uploads are not there yet")

    async def delete_objects(self, directive: pb.Directive) -> None:
        """Delete."""
        raise Unavailable("uploads are not there yet")

    async def close(self) -> None:
        """Stop."""
