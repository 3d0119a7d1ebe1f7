"""The tokens that were created, the keys that signed them, and the version of what servers must know.

What holds: there is no text of a token and no private key in the state; of a name there is one live token at most; the version
rises with each new key and each revocation, and with nothing else, since a token needs neither to be known.
"""

from __future__ import annotations

from collections.abc import Iterable

from rangelog_core.errors import Corruption, InvalidArgument
from rangelog_core.tokens import check_bounds
from rangelog_pd.state.tables import Table
from rangelog_proto.v1 import tokens_pb2 as pb


class TokenTables:
    """The tokens by id, the live ones by name, and the keys by id."""

    def __init__(self) -> None:
        self.revoked: dict[str, None] = {}
        self.live: dict[str, str] = {}
        """The id of the token of each name that is not revoked. One that has expired is among them until it is forgotten."""
        self.tokens: Table[str, pb.TokenRow] = Table(self._changed)
        self.keys: Table[str, pb.TokenKey] = Table()
        self.version = 0

    def find(self, name: str) -> pb.TokenRow | None:
        """Return the live token of a name, else the one of that id, else the latest of that name."""
        found = self.tokens.find(self.live.get(name, name))
        if found is None:
            of_name = [each for each in self.tokens.values() if each.name == name]
            found = max(of_name, key=lambda each: (each.created_ms, each.token_id), default=None)
        return found

    def forget(self, now_ms: int) -> None:
        """Forget the tokens and keys that are over by then."""
        for row in [each for each in self.tokens.values() if each.expires_ms < now_ms]:
            self.tokens.remove(row.token_id)
        for key in [each for each in self.keys.values() if each.last_expires_ms < now_ms]:
            self.keys.remove(key.key_id)

    def load(self, tokens: Iterable[pb.TokenRow], keys: Iterable[pb.TokenKey], version: int) -> None:
        """Take the rows of a snapshot. Raises Corruption."""
        for key in keys:
            self.keys.put(key.key_id, key)
        for row in tokens:
            try:
                check_bounds(row.only)
            except InvalidArgument as error:
                raise Corruption(f"the snapshot has a malformed token: {error.message}") from error
            if row.key_id not in self.keys:
                raise Corruption("the snapshot has a token, and not the key that signed it")
            self.tokens.put(row.token_id, row)
        if self.keys and not version:
            raise Corruption("the snapshot has keys of tokens, and no version of them")
        self.version = version

    def _changed(self, before: pb.TokenRow | None, after: pb.TokenRow | None) -> None:
        if before is not None:
            self.revoked.pop(before.token_id, None)
            if self.live.get(before.name) == before.token_id:
                del self.live[before.name]
        if after is not None:
            if after.revoked_ms:
                self.revoked[after.token_id] = None
            else:
                self.live[after.name] = after.token_id
