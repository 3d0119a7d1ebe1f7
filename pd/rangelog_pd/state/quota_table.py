"""The quotas of clients and of name prefixes, and the version of all of them.

What holds: one quota for each principal and each prefix, and it limits something; the version rises with each change.
"""

from __future__ import annotations

from collections.abc import Iterable

from rangelog_core.errors import Corruption, InvalidArgument
from rangelog_core.quotas import check_quota, key_of
from rangelog_pd.state.tables import Table
from rangelog_proto.v1 import quotas_pb2 as pb


class QuotaTable:
    """The quotas by principal and prefix."""

    def __init__(self) -> None:
        self.quotas: Table[tuple[str, str], pb.Quota] = Table()
        self.version = 0

    def load(self, quotas: Iterable[pb.Quota], version: int) -> None:
        """Take the rows of a snapshot. Raises Corruption."""
        for each in quotas:
            try:
                check_quota(each)
            except InvalidArgument as error:
                raise Corruption(f"the snapshot has a malformed quota: {error.message}") from error
            self.quotas.put(key_of(each), each)
        if self.quotas and not version:
            raise Corruption("the snapshot has quotas, and no version of them")
        self.version = version
