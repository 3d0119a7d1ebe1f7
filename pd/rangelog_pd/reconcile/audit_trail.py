"""The notes that the leader has still to put into the audit log: outcomes of calls that have begun, and refusals. Times in ms.

What holds: an outcome is kept until a command has it. The first refusal of a caller's call is an entry; equal ones within
REFUSALS_MS after it are counted, and are one more entry. Refusals beyond what is remembered are counted as dropped, in the next
entry. So a caller that is refused makes at most one entry a minute for each call.

Of one leader, in memory: what a leader that dies has not noted is an entry without an outcome.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from rangelog_proto.v1 import audit_pb2 as pb

REFUSALS_MS = 60_000.0
REFUSED_MAX = 500
"""Callers' calls that are remembered."""
NOTES_MAX = 500
"""Taken at once."""


class RefusedCall(NamedTuple):
    """Who was refused which call. `through`: the broker that made it for the principal. `code` is that of the error."""

    principal: str
    call: str
    code: str
    through: str = ""


@dataclass(slots=True)
class _Refused:
    peer: str
    detail: str
    due_ms: float
    count: int = 1


@dataclass(slots=True)
class AuditTrail:
    """See the module."""

    _outcomes: deque[pb.AuditNote] = field(default_factory=deque)
    _refused: dict[RefusedCall, _Refused] = field(default_factory=dict)
    _dropped_count: int = 0

    def clear(self) -> None:
        """Begin another term."""
        self._outcomes.clear()
        self._refused.clear()
        self._dropped_count = 0

    def ended(self, note: pb.AuditNote) -> None:
        """Keep an outcome until it is taken."""
        self._outcomes.append(note)

    def refused(self, refusal: RefusedCall, peer: str, detail: str, now_ms: float) -> None:
        """Note a refusal. `detail`: the message of the error."""
        known = self._refused.get(refusal)
        if known is not None:
            known.count += 1
            known.peer, known.detail = peer, detail
        elif len(self._refused) < REFUSED_MAX:
            self._refused[refusal] = _Refused(peer, detail, now_ms)
        else:
            self._dropped_count += 1

    def take(self, now_ms: float) -> list[pb.AuditNote]:
        """Return what is due, at most NOTES_MAX; `put_back` what could not be noted."""
        taken: list[pb.AuditNote] = []
        while self._outcomes and len(taken) < NOTES_MAX:
            taken.append(self._outcomes.popleft())
        for key, each in list(self._refused.items()):
            if len(taken) >= NOTES_MAX:
                break
            if now_ms < each.due_ms:
                continue
            if not each.count:
                del self._refused[key]
                continue
            taken.append(
                pb.AuditNote(
                    principal=key.principal, peer=each.peer, call=key.call, outcome=key.code, detail=each.detail,
                    count=each.count if each.count > 1 else 0, dropped_count=self._dropped_count, through=key.through,
                )
            )  # fmt: skip
            self._dropped_count, each.count, each.due_ms = 0, 0, now_ms + REFUSALS_MS
        return taken

    def put_back(self, notes: Sequence[pb.AuditNote]) -> None:
        """Keep notes that no command has, in their order."""
        self._outcomes.extendleft(reversed(notes))
