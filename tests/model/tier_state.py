"""The state of the tier model: one sealed range of two records, its servers, its objects; and what must hold of it.

A state is a byte string: a column for each server, a column for each object, then scalars. Nothing in a server's column
points to another server, so states that differ only in the servers' names are one after `canonical`.
"""

from __future__ import annotations

from dataclasses import dataclass

# ---- a server's column
DATA, MEMBER, UP, VIEW, ORDERS, STEP, TASK, OWNED = range(8)
SERVER_WIDTH = 8
ABSENT, PARTIAL, WHOLE, QUARANTINED, ROTTEN, SHORT = range(6)  # DATA; SHORT: holds part, and takes it for all
NO_MEMBER, LIVE, LOST = range(3)  # MEMBER; LOST: a member by an incarnation that is gone
IS_DOWN, IS_UP, DISK_GONE = range(3)
DROP, COPY, PLANNED = 1, 2, 4  # ORDERS: directives in hand; and whether the reader's plan names this server
IDLE, ORDERED, PREPARED, BUILT, BUILT_WRONG, VERIFIED, SENT, SENT_WRONG = range(8)  # STEP of its upload
REPORT = bytes([ABSENT, PARTIAL, WHOLE, QUARANTINED, WHOLE, WHOLE])  # what a server says of its DATA

# ---- an object's column
STATE, CONTENT, FLIGHT, SPAN = range(4)
OBJECT_WIDTH = 4
UNUSED, IS_PREPARED, COMMITTED, GIVEN_UP, TRIMMED_AWAY, COLLECTED = range(6)
NOTHING, RIGHT, WRONG = range(3)  # CONTENT of its key in the store
PUT_RIGHT, PUT_WRONG, DELETE, DELETED = 1, 2, 3, 4  # FLIGHT: what is on its way to the store, or done there

# ---- scalars
TIERED, HOT_DROPPED, TRIMMED, FAULTS, SUSPICIONS, DOWNS, LATES, SPOILS, LOSSES, READER, GHOST = range(11)
SCALARS = 11
PLAN_NONE, PLAN_HOT, PLAN_COLD = range(3)
KEY_CHANGED, WRONG_BYTES, READER_STUCK = 1, 2, 4  # GHOST
GHOSTS = {KEY_CHANGED: "KEY-CHANGED", WRONG_BYTES: "WRONG-BYTES", READER_STUCK: "READER-STUCK"}


@dataclass(frozen=True, slots=True)
class Instance:
    """One small instance: how often what may go wrong, and which wrong choice is made (empty: none)."""

    servers: int = 4
    members: str = "WWP"  # what the members hold at first: whole, partial, absent
    tier: bool = True
    spans: int = 2  # objects that cover the range
    keys: int = 3  # how many may be handed out
    faults: int = 0  # disks lost or rotten: the first at any time, the next only after repair
    rot: bool = False
    suspicions: int = 0  # a living server taken for dead
    downs: int = 0
    lates: int = 0  # deadlines that pass under a living uploader
    spoils: int = 0  # the store keeps something else than was sent
    losses: int = 0  # puts that get lost, or come late
    hot_stays: bool = False
    trim: bool = False
    reader: bool = False
    late_drops: bool = False  # a directive to drop is still carried out when its server is a member again
    wrong: str = ""

    @property
    def objects_at(self) -> int:
        """Where the objects' columns begin."""
        return self.servers * SERVER_WIDTH

    @property
    def scalars_at(self) -> int:
        """Where the scalars begin."""
        return self.objects_at + self.keys * OBJECT_WIDTH

    def initial(self) -> bytes:
        """The end was committed a moment ago: two replicas are whole."""
        state = bytearray(self.scalars_at + SCALARS)
        for server in range(self.servers):
            at = server * SERVER_WIDTH
            state[at + UP] = IS_UP
            if server < len(self.members):
                state[at + DATA] = state[at + VIEW] = "APW".index(self.members[server])
                state[at + MEMBER] = LIVE
        budgets = (self.faults, self.suspicions, self.downs, self.lates, self.spoils, self.losses)
        state[self.scalars_at + FAULTS : self.scalars_at + FAULTS + len(budgets)] = bytes(budgets)
        return self.canonical(state)

    def canonical(self, state: bytes | bytearray) -> bytes:
        """Return the state with the servers in a fixed order."""
        end = self.objects_at
        columns = sorted(bytes(state[at : at + SERVER_WIDTH]) for at in range(0, end, SERVER_WIDTH))
        return b"".join(columns) + bytes(state[end:])

    def whole_members(self, state: bytes) -> int:
        """Count the living members that truly hold everything."""
        return sum(
            state[at + MEMBER] == LIVE and state[at + DATA] == WHOLE for at in range(0, self.objects_at, SERVER_WIDTH)
        )

    # ---- what must hold

    def invariant(self, state: bytes) -> str:
        """Name what is broken, or nothing."""
        scalars = state[self.scalars_at :]
        if scalars[GHOST]:
            return next(name for bit, name in GHOSTS.items() if scalars[GHOST] & bit)
        return self._objects_broken(state, scalars) or self._records_lost(state, scalars)

    def _objects_broken(self, state: bytes, scalars: bytes) -> str:
        covered = 0
        for at in range(self.objects_at, self.scalars_at, OBJECT_WIDTH):
            kind, content = state[at + STATE], state[at + CONTENT]
            if kind == COMMITTED:
                if content != RIGHT:
                    return "COMMITTED-WRONG" if content else "COMMITTED-MISSING"
                if covered >> state[at + SPAN] & 1:
                    return "SPAN-TWICE"
                covered |= 1 << state[at + SPAN]
            elif kind == COLLECTED and content and state[at + FLIGHT] != DELETE:
                return "GARBAGE-FOR-EVER"
        if not scalars[TRIMMED] and covered != (1 << scalars[TIERED]) - 1:
            return "NOT-TILED"
        return ""

    def _records_lost(self, state: bytes, scalars: bytes) -> str:
        if scalars[TRIMMED]:
            return ""
        held = sum(1 << record for record in range(2) if record * self.spans // 2 < scalars[TIERED])
        for at in range(0, self.objects_at, SERVER_WIDTH):
            data = state[at + DATA]
            if data == WHOLE:
                return ""
            held |= data in (PARTIAL, SHORT)
        return "" if held == 3 else "RECORD-LOST"

    def goal(self, state: bytes) -> bool:
        """Tiered and repaired, or trimmed; and nothing is left over."""
        scalars = state[self.scalars_at :]
        left = any(
            state[at + STATE] in (IS_PREPARED, GIVEN_UP, TRIMMED_AWAY)
            for at in range(self.objects_at, self.scalars_at, OBJECT_WIDTH)
        )
        if left:
            return False
        if scalars[TRIMMED] or scalars[HOT_DROPPED]:
            return not any(state[at + DATA] for at in range(0, self.objects_at, SERVER_WIDTH))
        tiered = scalars[TIERED] == self.spans or not self.tier
        return tiered and self.whole_members(state) >= min(3, self.servers)
