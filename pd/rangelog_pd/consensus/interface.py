"""The interface of consensus for the placement driver.

What holds: commands are applied in one order on every member; a command whose result `propose` returned is held by a majority
and survives any minority's loss; after `barrier` has returned, the local state includes every command that was acknowledged
before the call. An error of a command is a result; only a command that this program does not know stops the member.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from rangelog_core.errors import PreconditionFailed


class MemberRemoved(PreconditionFailed):
    """This member was removed from its group, and stops."""


class StateMachine(Protocol):
    """A pure, deterministic state. All three methods are called under `Consensus.lock`."""

    def apply(self, index: int, command: bytes) -> bytes:
        """Apply one committed command and return its encoded result.

        Raises UnsupportedVersion for a command of a newer program, which stops this member, and no other error.
        """

    def freeze(self) -> Iterable[bytes]:
        """Return the current state. It is encoded while it is iterated, later, on another thread and without the lock."""

    def restore(self, data: bytes) -> None:
        """Replace the whole state. Raises Corruption or UnsupportedVersion before anything is changed."""


@dataclass(frozen=True)
class MemberStatus:
    """The state of one member, as this member knows it."""

    name: str
    reachable: bool
    leader: bool
    feature_level: int = 0
    """The level that the member announced last; 0: none yet."""
    raft_address: str = ""
    api_address: str = ""
    voter: bool = True
    """Whether it elects and counts; else it is a learner, which is being added."""
    replaces: str = ""
    """The member that goes once this one votes."""
    acknowledged_index: int = 0
    """How much of the log it is known to have; 0: this member does not lead, or does not know."""


@dataclass(frozen=True)
class ConsensusStatus:
    """The state of the group, for people and metrics; decisions use a barrier."""

    name: str
    leader: str | None
    term: int
    applied_index: int
    has_majority: bool
    members: tuple[MemberStatus, ...]
    group: bytes = b""
    """The identity of the group."""
    configuration_index: int = 0
    """The entry that named the members; 0: they are those of the start."""
    last_index: int = 0


class Consensus(Protocol):
    """Raft, or a stand-in for it in tests. Bound to the event loop it is started on."""

    lock: threading.Lock
    """The lock that readers of the state machine and every apply hold."""

    async def start(self) -> None:
        """Recover from disk and join the group; return once the local log is replayed."""

    async def propose(self, command: bytes, *, timeout_s: float) -> bytes:
        """Apply `command` on a majority and return its result.

        Raises NotLeader (the command was not proposed), Unavailable (not proposed), OutcomeUnknown (it may still be
        applied, now or later), InvalidArgument (over COMMAND_BYTES_MAX).
        """

    async def barrier(self, *, timeout_s: float) -> int:
        """Make local reads linearizable; return the applied index. Raises NotLeader or Unavailable."""

    async def add_member(
        self, name: str, raft_address: str, api_address: str, *, replaces: str = "", timeout_s: float
    ) -> int:
        """Ask the leader to add a member, first as a learner; return the entry that did, once it is committed.

        The learner votes once it has caught up; then the member that it replaces, if one is named, is removed. The leader of
        that time does both, and `status` shows them. Raises as `propose`, InvalidArgument, MemberNotFound, PreconditionFailed.
        """

    async def remove_member(self, name: str, *, timeout_s: float) -> int:
        """Ask the leader to remove a member; return the entry that did, once it is committed. Raises as `add_member`."""

    async def transfer_leadership(self, name: str | None, *, timeout_s: float) -> str:
        """Ask the leader to hand over to `name`, or to any member; return who leads then. Raises as `add_member`."""

    def leader(self) -> str | None:
        """Return the name of the probable leader: a hint."""

    def is_leader(self) -> bool:
        """Whether this member is probably the leader: a hint."""

    def status(self) -> ConsensusStatus:
        """Return the state of the group."""

    async def failed(self) -> BaseException:
        """Wait until consensus has failed (damaged or full disk, a defect) and return the reason; the process must then stop.

        Never returns while consensus works, nor because of `close`.
        """

    async def close(self) -> None:
        """Leave the group cleanly. Idempotent."""
