"""The key by which this placement driver signs tokens: made when it is first needed, in memory only.

What holds: the private half is in no file, message, snapshot or log. Whoever leads next makes a key of its own; the public
halves in the state outlive the processes, so tokens count until they expire.
"""

from __future__ import annotations

import base64
import hashlib
import threading

from joserfc import jwt
from joserfc.jwk import OKPKey

from rangelog_proto.v1 import tokens_pb2 as pb
from rangelog_server_common.tokens.verifier import ALGORITHM, TOKEN_TYPE, claims_of


class TokenSigner:
    """The key of one process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._key: OKPKey | None = None
        self._public = pb.TokenKey()

    def public(self) -> pb.TokenKey:
        """Return the public half."""
        with self._lock:
            if self._key is None:
                self._key = OKPKey.generate_key("Ed25519")
                wired = str(self._key.as_dict(private=False)["x"])
                raw = base64.urlsafe_b64decode(wired + "=" * (-len(wired) % 4))
                self._public = pb.TokenKey(key_id=hashlib.sha256(raw).hexdigest()[:16], public_key=raw)
            return self._public

    def sign(self, row: pb.TokenRow, cluster_id: str) -> str | None:
        """Return the text of a token, always the same for the same row; None: another key has signed it."""
        public = self.public()
        if row.key_id != public.key_id or self._key is None:
            return None
        header = {"alg": ALGORITHM, "kid": public.key_id, "typ": TOKEN_TYPE}
        return jwt.encode(header, claims_of(row, cluster_id), self._key, algorithms=[ALGORITHM])
