"""The lines of the audit log, and the check of their chain. No I/O.

What holds: a line is one JSON object in one form: keys sorted, no spaces, ASCII only. Its field `previous` is the SHA-256 of
the line before it, and that of the first is 64 zeros. So the hash of the last line proves that all of them are as they were
written, in order and without a gap.

The scheme is the hash chain of B. Schneier and J. Kelsey, "Secure Audit Logs to Support Computer Forensics" (1999), without
its keys: the head is with the placement drivers, not with who holds the log.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass

from rangelog_core.errors import Corruption

FIRST_PREVIOUS = bytes(32)
LINE_BYTES_MAX = 32_768
_FIELDS_NEEDED = {"sequence": int, "time_ms": int, "previous": str, "call": str, "outcome": str}


def encode_line(sequence: int, time_ms: int, previous: bytes, fields: Mapping[str, str | int]) -> bytes:
    """Return a line. `fields` with a value of "" or 0 are left out.

    >>> encode_line(1, 5, FIRST_PREVIOUS, {"call": "CreateStream", "outcome": "OK", "count": 0})[:40]
    b'{"call":"CreateStream","outcome":"OK","p'
    """
    content: dict[str, str | int] = {name: value for name, value in fields.items() if value}
    content |= {"sequence": sequence, "time_ms": time_ms, "previous": previous.hex()}
    return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode("ascii")


def hash_line(line: bytes) -> bytes:
    """Return the SHA-256 of a line, without its end."""
    return hashlib.sha256(line).digest()


def parse_line(line: bytes) -> dict[str, str | int]:
    """Return the fields of a line. Raises Corruption for anything that `encode_line` does not write."""
    if len(line) > LINE_BYTES_MAX:
        raise Corruption(f"a line of {len(line):,} bytes; no entry is longer than {LINE_BYTES_MAX:,}")
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        raise Corruption("a line that is not JSON") from None
    if not isinstance(found, dict) or any(type(found.get(name)) is not kind for name, kind in _FIELDS_NEEDED.items()):
        raise Corruption("a line that is no entry of an audit log")
    if any(type(value) not in (str, int) for value in found.values()):
        raise Corruption("a line with a field that no entry has")
    return found


@dataclass(slots=True)
class ChainCheck:
    """Checks lines one after the other.

    Example: `check = ChainCheck(); check.add(line); …; check.end(last_sequence, last_hash)`.
    """

    sequence: int = 0
    """Of the last line that was added."""
    hash: bytes = FIRST_PREVIOUS

    def add(self, line: bytes) -> dict[str, str | int]:
        """Check the next line and return its fields. Raises Corruption, which says what is wrong where."""
        where = f"after entry {self.sequence}" if self.sequence else "at the start"
        try:
            fields = parse_line(line)
        except Corruption as error:
            raise Corruption(f"{where}: {error.message}") from None
        sequence = int(fields["sequence"])
        if sequence > self.sequence + 1:
            raise Corruption(f"{where}: entries {self.sequence + 1} to {sequence - 1} are missing")
        if sequence <= self.sequence:
            raise Corruption(f"{where}: entry {sequence} comes again, or out of order")
        if fields["previous"] != self.hash.hex():
            raise Corruption(
                f"entry {self.sequence} or what entry {sequence} says of it was changed: their hashes differ"
                if self.sequence
                else f"entry {sequence} says that another entry came before it"
            )
        self.sequence, self.hash = sequence, hash_line(line)
        return fields

    def end(self, last_sequence: int, last_hash: bytes) -> None:
        """Check that the last line is that of the placement drivers. Raises Corruption."""
        if self.sequence < last_sequence:
            raise Corruption(
                f"the log was cut: it ends with entry {self.sequence}, and entry {last_sequence} was written"
            )
        if self.sequence > last_sequence:
            raise Corruption(f"entry {self.sequence} is beyond the last one that was written, {last_sequence}")
        if self.hash != last_hash:
            raise Corruption(
                f"entry {self.sequence}, the last one, was changed: its hash is not that of the placement drivers"
            )
