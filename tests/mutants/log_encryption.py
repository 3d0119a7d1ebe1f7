"""Wrong choices about encrypted logs: a nonce used twice, what is believed, what a missing key is taken for."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, rare

_LOG = "rangelog_server.wal.log"
_CIPHER = "rangelog_server.wal.encryption"
_ENTRY = "rangelog_server.wal.entry"
_FILES = "rangelog_server.wal.files"
_SCAN = "rangelog_server.wal.scan"
_STORE_TEST = "range_server/ranges/test_encrypted_log.py"
_CIPHER_TEST = "range_server/wal/test_encrypted_segments.py"

LOG_ENCRYPTION: tuple[Mutant, ...] = (
    rare(
        "recovered-segment-goes-on",
        "a tail that was cut is written to again under the same key",
        _LOG,
        "        if last is not None and not anew:\n",
        "        if last is not None:\n",
        _STORE_TEST,
    ),
    rare(
        "prepared-segment-goes-on",
        "a segment that seems unused is written to under its old key",
        _LOG,
        "                self._renew_spares()\n",
        "                pass\n",
        _STORE_TEST,
    ),
    rare(
        "file-in-clear-used-again",
        "an encrypted segment has records in clear behind its end",
        _FILES,
        "        if not in_clear or not self.keys.encrypt:\n",
        "        if True:\n",
        _STORE_TEST,
    ),
    rare(
        "start-keeps-the-rest",
        "a log at its capacity grows by a segment with each start",
        _LOG,
        "                self.files.cut(self.segments[last.sequence], last.end)\n",
        "",
        _STORE_TEST,
    ),
    rare(
        "position-not-guarded",
        "one place is encrypted twice, and nobody notices",
        _CIPHER,
        "        if position < self._next_position:\n",
        "        if False:\n",
        _CIPHER_TEST,
    ),
    rare(
        "recovered-cipher-writes",
        "what was read from a header encrypts from the first place on",
        _CIPHER,
        "self._random, next_position=_NEVER)",
        "self._random, next_position=0)",
        _CIPHER_TEST,
    ),
    rare(
        "sidecar-with-an-entrys-nonce",
        "a sidecar's nonce is one that an entry may have",
        _CIPHER,
        "_SIDECAR_NONCES = 1\n",
        "_SIDECAR_NONCES = 0\n",
        _CIPHER_TEST,
    ),
    rare(
        "sidecar-in-clear",
        "metadata of replicas and batches' headers are on the disk in clear",
        _FILES,
        "        if cipher is not None:\n            bound = _ENCRYPTED_SIDECAR_MAGIC",
        "        if False:\n            bound = _ENCRYPTED_SIDECAR_MAGIC",
        _STORE_TEST,
    ),
    rare(
        "header-not-bound",
        "whose entry it is can be changed by who can change its sums",
        _ENTRY,
        "    body = cipher.encrypt(lsn & _POSITION_MASK, payload, bound)\n",
        "    body = cipher.encrypt(lsn & _POSITION_MASK, payload, b'')\n",
        _STORE_TEST,
    ).and_also(
        _CIPHER,
        "self._aead.decrypt(_NONCE.pack(position, 0), body, bound)",
        "self._aead.decrypt(_NONCE.pack(position, 0), body, b'')",
    ),
    rare(
        "clear-entry-among-encrypted",
        "an entry in clear is believed where all are encrypted",
        _SCAN,
        "        if cipher is None and header.version != ENCRYPTED_VERSION:\n",
        "        if header.version != ENCRYPTED_VERSION:\n",
        _STORE_TEST,
    ),
    rare(
        "marker-with-a-payload",
        "an entry whose kind is changed ends the log, and all behind it is forgotten",
        _SCAN,
        " and (cipher is None or not header.length):\n",
        ":\n",
        _STORE_TEST,
    ),
    rare(
        "missing-key-starts-empty",
        "a server whose key is missing takes its log for a damaged one",
        _CIPHER,
        "        if refused is not None:\n            raise refused\n",
        "",
        _CIPHER_TEST,
    ),
    rare(
        "one-copy-of-the-header",
        "damage to one block takes a whole segment away",
        _FILES,
        "        for position in (0, HEADER_COPY_BYTES):\n",
        "        for position in (0,):\n",
        _STORE_TEST,
    ),
    rare(
        "full-log-stays-down",
        "a server at its capacity cannot be started again",
        _LOG,
        "self.files.prepare(next_sequence, beyond=anew)",
        "self.files.prepare(next_sequence)",
        _STORE_TEST,
    ),
    rare(
        "old-keys-for-ever",
        "after a rotation the earlier key is needed as long as there are records",
        "rangelog_server.ranges.compaction",
        "            found = found or wal.stale_segments()\n",
        "",
        _STORE_TEST,
    ),
    rare(
        "empty-segment-tells-its-start",
        "a server whose encryption is switched off is taken for one whose disk was rolled back",
        _LOG,
        "make_lsn(self._current.sequence, SEGMENT_HEADER_BYTES))",
        "make_lsn(self._current.sequence, self._current.start))",
        _STORE_TEST,
    ),
    rare(
        "new-segment-hides-an-older-copy",
        "an older copy of an encrypted log is not found out, and acked records are lost",
        _LOG,
        "                self._found[self._current.sequence] = last.reported_end\n",
        "",
        _STORE_TEST,
    ),
)
"""What a mutant is: edits of production source that stand for one wrong choice."""
