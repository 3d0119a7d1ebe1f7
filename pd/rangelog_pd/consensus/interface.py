"""What the placement driver needs of consensus, and nothing else.

What holds: commands are applied in one order on every member; a result that `propose` returned was applied by a majority
and survives any minority's loss; after `barrier` returned, the local state holds everything that was acknowledged before
the call. An error of a command is a result; only a command that this program does not know stops the member.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol


class StateMachine(Protocol):
    """A pure, deterministic state. All three methods are called under `Consensus.lock`."""

    def apply(self, index: int, command: bytes) -> bytes:
        """Apply one committed command and return its encoded result.

        Raises UnsupportedVersion for a command of a newer program: then this member stops. Nothing else.
        """

    def freeze(self) -> Iterable[bytes]:
        """Return the whole state as it is now. It is encoded as it is iterated, later, elsewhere and without the lock."""

    def restore(self, data: bytes) -> None:
        """Replace the whole state. Raises Corruption or UnsupportedVersion before anything is changed."""


@dataclass(frozen=True)
class MemberStatus:
    """One member as this one sees it."""

    name: str
    reachable: bool
    leader: bool
    feature_level: int = 0
    """As it announced last; 0: not heard yet."""


@dataclass(frozen=True)
class ConsensusStatus:
    """A picture for people and metrics; decisions take a barrier."""

    name: str
    leader: str | None
    term: int
    applied_index: int
    has_majority: bool
    members: tuple[MemberStatus, ...]


class Consensus(Protocol):
    """Raft, or a stand-in for it in tests. Bound to the event loop it is started on."""

    lock: threading.Lock
    """Readers of the state machine hold it; so does every apply."""

    async def start(self) -> None:
        """Recover from disk and join; returns once the local log is replayed."""

    async def propose(self, command: bytes, *, timeout_s: float) -> bytes:
        """Apply `command` on a majority and return its result.

        Raises NotLeader (nothing was proposed), Unavailable (nothing was proposed), OutcomeUnknown (it may still be
        applied, now or later), InvalidArgument (over COMMAND_BYTES_MAX).
        """

    async def barrier(self, *, timeout_s: float) -> int:
        """Make local reads linearizable; returns the applied index. Raises NotLeader or Unavailable."""

    def leader(self) -> str | None:
        """The name of the member believed to lead: a hint."""

    def is_leader(self) -> bool:
        """Whether this member believes that it leads: a hint."""

    def status(self) -> ConsensusStatus:
        """A picture of the group."""

    async def failed(self) -> BaseException:
        """Wait until consensus has died (damaged or full disk, a defect) and say why; the process must then stop.

        Returns never while all is well, and not because of `close`.
        """

    async def close(self) -> None:
        """Leave cleanly. Idempotent."""
