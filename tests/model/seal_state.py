"""What the model of a seal knows in one state, as a byte string, and what must hold in every state.

A column for each replica, then scalars. Replicas have no names: their columns are kept in a fixed order.
"""

from __future__ import annotations

from dataclasses import dataclass

from rangelog.protocol.quorum import confirmed_offset

# ---- a replica's column: records held as bits
LOG, DURABLE, FENCE, DISK, ACKED, KNOWN = range(6)
ANSWER = 6  # + recoverer: kind, offset << 3, TARGET while a copy to it is wanted
HEARD = 8  # by a reader, as it gathers a proof: the durable offset + 1; 0: not asked
TARGET = 64
WIDTH = 9
SOUND, LOST, TORN, DAMAGED = range(4)  # DISK; TORN: a damaged tail was cut; DAMAGED: nothing is trusted

# ---- scalars; of PHASE and CHOSEN there are two each
FROZEN, END, EPOCH, PHASE, CHOSEN, DISKS, RESTARTS, GHOST, SERVED, FLOOR = 0, 1, 2, 3, 5, 7, 8, 9, 10, 11
TAKEN = 12  # the highest floor that the writer took for confirmed, and went on from
ASKED = 13  # ends that the writer asked for before it went on, as bits; kept only where it matters
SCALARS = 14
NONE = 255  # no offset
IDLE, SEALING, DECIDED, TOLD, REFUSED = range(5)
GHOSTS = {1: "END-CHANGED", 2: "BELIEF", 4: "FLOOR-ABOVE-END", 8: "SHORT-BUT-EXACT", 16: "CONFIRM-WENT-BACK"}
"""What a step alone can show, by its bit in GHOST."""
END_CHANGED, BELIEF, FLOOR_ABOVE_END, SHORT, WENT_BACK = GHOSTS
WRITER_EPOCH = 1
LEVELS = (3, 4)

AT_ONCE, IN_TURN = "at once", "in turn"


@dataclass(frozen=True, slots=True)
class Seal:
    """One small instance. `disks`: lost, or damaged where `rot` says so; `restarts`: power lost at one replica.

    `reader`: readers go beyond what the writer said is acked. They ask the replicas, A of them or more, at one moment
    (AT_ONCE), or one after another, so that anything may happen between two answers (IN_TURN); then the placement driver.
    `goes_on`: the placement driver may have no place for the next range: then the writer goes on with the one it has.
    """

    records: int = 2
    replicas: int = 3
    acks: int = 2
    recoverers: int = 1
    disks: int = 0
    rot: bool = False
    restarts: int = 0
    active: bool = False
    reader: str = ""
    goes_on: bool = False
    wrong: str = ""

    @property
    def scalars_at(self) -> int:
        """Where the scalars begin."""
        return self.replicas * WIDTH

    def initial(self) -> bytes:
        """An open, empty range."""
        state = bytearray(self.scalars_at + SCALARS)
        for at in range(0, self.scalars_at, WIDTH):
            state[at + FENCE] = WRITER_EPOCH
        at = self.scalars_at
        state[at + FROZEN] = state[at + END] = state[at + CHOSEN] = state[at + CHOSEN + 1] = NONE
        state[at + EPOCH], state[at + DISKS], state[at + RESTARTS] = WRITER_EPOCH, self.disks, self.restarts
        return bytes(state)

    def canonical(self, state: bytes | bytearray) -> bytes:
        """Return the state with the replicas in a fixed order."""
        end = self.scalars_at
        return b"".join(sorted(bytes(state[at : at + WIDTH]) for at in range(0, end, WIDTH))) + bytes(state[end:])

    def confirmed(self, state: bytes | bytearray) -> int:
        """What the writer's callers were told is safe; an ack that was sent counts as delivered where nothing hangs on it.

        A writer that seals confirms nothing more, except the floor that it was refused with.
        """
        if not self.active:
            return self._acked_by_enough(state, ACKED)
        frozen = state[self.scalars_at + FROZEN]
        if frozen != NONE and self.wrong != "no-freeze":
            return frozen
        return max(self._acked_by_enough(state, KNOWN), state[self.scalars_at + TAKEN])

    def told_to_replicas(self, state: bytes | bytearray) -> int:
        """The confirm offset that the writer tells the replicas, which believe it."""
        if self.wrong == "confirm-while-frozen":
            return self._acked_by_enough(state, KNOWN)
        return self.confirmed(state)

    def _acked_by_enough(self, state: bytes | bytearray, which: int) -> int:
        return confirmed_offset((state[at + which] for at in range(0, self.scalars_at, WIDTH)), self.acks)

    def invariant(self, state: bytes) -> str:
        """Name what is broken, or nothing."""
        at, confirmed = self.scalars_at, self.confirmed(state)
        held = 0
        for column in range(0, at, WIDTH):
            held |= state[column + LOG]
        if held & below(confirmed) != below(confirmed):
            return "ACKED-LOST"
        end, served = state[at + END], state[at + SERVED]
        if end != NONE:
            if confirmed > end:
                return "ACKED-TRUNCATED"
            if held & below(end) != below(end):
                return "SEALED-HOLE"
            if served > end:
                return "DIRTY-READ"
        if held & below(served) != below(served):
            return "SERVED-LOST"
        ghost = state[at + GHOST]
        return next(name for bit, name in GHOSTS.items() if ghost & bit) if ghost else ""

    def goal(self, state: bytes) -> bool:
        """The range is sealed."""
        return state[self.scalars_at + END] != NONE


def below(offset: int) -> int:
    """Return the bits of all records below an offset."""
    return (1 << offset) - 1


def replaced(state: bytes | bytearray, *changes: tuple[int, int]) -> bytearray:
    """Return a copy of the state with these places changed."""
    changed = bytearray(state)
    for place, value in changes:
        changed[place] = value
    return changed
