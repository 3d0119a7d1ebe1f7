"""Every step of the tier model: disks and servers, the placement driver's reconciliation, a reader; and the uploads.

Each step is one that the product takes at once: a command of the placement driver, one request to the store, one
directive carried out. Between any two of them anything else may happen. A wrong choice is a condition left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tests.model import tier_state as t
from tests.model.tier_uploads import Uploads

Step = tuple[str, bytes]
ACKS = 2


class TierModel(Uploads):
    """The successors of a state."""

    def successors(self, state: bytes) -> Iterator[Step]:
        """Every step that can be taken from here."""
        for label, changed in self._all(state):
            yield label, self.instance.canonical(changed)

    def told(self, path: Sequence[bytes]) -> list[str]:
        """Return the labels of a path of folded states, with each server under one name throughout."""
        fold, state, labels = self.instance.canonical, path[0], []
        for target in path[1:]:
            label, changed = next(step for step in self._all(state) if fold(step[1]) == target)
            labels.append(label)
            state = bytes(changed)
        return labels

    def _all(self, state: bytes) -> Iterator[tuple[str, bytearray]]:
        for number, server in enumerate(self.servers):
            yield from self._faults(state, server, f"s{number}")
            if state[server + t.UP] == t.IS_UP:
                yield from self._heartbeat(state, server, f"s{number}")
                yield from self._directives(state, server, f"s{number}")
                if self.instance.tier:
                    yield from self._upload(state, server, f"s{number}")
            if state[server + t.MEMBER]:
                yield from self._replace(state, server, f"s{number}")
        yield from self._range(state)
        for number, item in enumerate(self.objects):
            yield from self._object(state, item, f"o{number}")
        if self.instance.reader:
            yield from self._read(state)

    # ---- faults

    def _faults(self, state: bytes, server: int, name: str) -> Iterator[tuple[str, bytearray]]:
        up, data = state[server + t.UP], state[server + t.DATA]
        cleared = [
            (server + t.ORDERS, state[server + t.ORDERS] & t.PLANNED),
            (server + t.STEP, t.IDLE),
            (server + t.TASK, 0),
        ]
        matters = data != t.ABSENT and not state[self.at + t.HOT_DROPPED] and not state[self.at + t.TRIMMED]
        if state[self.at + t.FAULTS] and matters and self._may_fail(state):
            spent = self._spend(state, t.FAULTS)
            yield (
                f"{name} LOSES ITS DISK",
                self._with(state, spent, (server + t.DATA, t.ABSENT), (server + t.UP, t.DISK_GONE), *cleared),
            )
            if self.instance.rot and data == t.WHOLE:
                yield f"{name}'s replica ROTS", self._with(state, spent, (server + t.DATA, t.ROTTEN))
        if up == t.IS_UP:
            if state[self.at + t.DOWNS]:
                yield (
                    f"{name} stops",
                    self._with(state, self._spend(state, t.DOWNS), (server + t.UP, t.IS_DOWN), *cleared),
                )
            if data == t.ROTTEN:
                yield f"{name} finds the rot", self._with(state, (server + t.DATA, t.QUARANTINED))
        elif up == t.IS_DOWN:
            yield f"{name} starts", self._with(state, (server + t.UP, t.IS_UP))
        elif self.wrong == "count-a-lost-incarnation-as-whole":
            yield (
                f"{name} starts with an empty disk, as if nothing had been",
                self._with(state, (server + t.UP, t.IS_UP)),
            )
        else:
            changed = self._with(state, (server + t.UP, t.IS_UP), (server + t.VIEW, t.ABSENT))
            if state[server + t.MEMBER] == t.LIVE:
                changed[server + t.MEMBER] = t.LOST
            self._give_up(changed, server)
            yield f"{name} starts with an empty disk, as a new incarnation", changed

    def _may_fail(self, state: bytes) -> bool:
        """The promise's bound: the next disk only after the last one's damage is known, and repaired to stay."""
        repaired = self.instance.whole_members(state) >= 3
        unknown = any(
            state[at + t.DATA] == t.ROTTEN or (state[at + t.DATA] == t.QUARANTINED and state[at + t.VIEW] == t.WHOLE)
            for at in self.servers
        )
        leaving = any(state[at + t.MEMBER] and state[at + t.ORDERS] & t.DROP for at in self.servers)
        return state[self.at + t.FAULTS] == self.instance.faults or (repaired and not unknown and not leaving)

    # ---- replicas

    def _wanted(self, state: bytes, server: int) -> int:
        """Which directive this server's heartbeat is answered with: DROP, COPY or none."""
        data = state[server + t.VIEW]
        gone = state[self.at + t.HOT_DROPPED] or state[self.at + t.TRIMMED]
        if state[server + t.MEMBER] != t.LIVE:
            if data == t.ABSENT:
                return 0
            return t.DROP if gone or self._whole_by_report(state) >= self._enough() else 0
        sources = any(other != server and state[other + t.VIEW] == t.WHOLE for other in self.servers)
        if data == t.WHOLE or not sources:
            return 0
        return t.DROP if data == t.QUARANTINED else t.COPY

    def _enough(self) -> int:
        return 0 if self.wrong == "drop-superfluous-too-early" else ACKS

    def _whole_by_report(self, state: bytes) -> int:
        """Members that count as whole: by what they last said, however long ago."""
        return sum(state[at + t.MEMBER] == t.LIVE and state[at + t.VIEW] == t.WHOLE for at in self.servers)

    def _heartbeat(self, state: bytes, server: int, name: str) -> Iterator[tuple[str, bytearray]]:
        reported = self._with(state, (server + t.VIEW, t.REPORT[state[server + t.DATA]]))
        if self.wrong == "count-a-lost-incarnation-as-whole" and state[server + t.DATA] == t.ABSENT:
            reported[server + t.VIEW] = state[server + t.VIEW]  # nothing changed since it reported, it believes
        wanted = self._wanted(bytes(reported), server)
        late = state[server + t.ORDERS] & t.DROP if self.instance.late_drops else 0
        reported[server + t.ORDERS] = state[server + t.ORDERS] & t.PLANNED | wanted | late
        if (wanted | late) & t.DROP and self.wrong != "count-what-is-being-dropped":
            reported[server + t.VIEW] = t.ABSENT  # it may be gone at any moment, and counts for nothing
        told = {t.DROP: ", told to drop", t.COPY: ", told to copy"}.get(wanted, "")
        yield f"{name} reports{told}", reported
        if late and not wanted:
            yield (
                f"{name}'s old directive is withdrawn",
                self._with(reported, (server + t.ORDERS, state[server + t.ORDERS] & t.PLANNED)),
            )

    def _directives(self, state: bytes, server: int, name: str) -> Iterator[tuple[str, bytearray]]:
        orders, data = state[server + t.ORDERS], state[server + t.DATA]
        if orders & t.DROP:
            yield (
                f"{name} drops its replica",
                self._with(state, (server + t.DATA, t.ABSENT), (server + t.ORDERS, orders & t.PLANNED)),
            )
        if not orders & t.COPY:
            return
        if data == t.QUARANTINED:
            yield f"{name} drops its damaged replica to copy anew", self._with(state, (server + t.DATA, t.ABSENT))
        if data not in (t.ABSENT, t.PARTIAL):
            return
        for source in self.servers:
            if source == server or state[source + t.UP] != t.IS_UP:
                continue
            if state[source + t.DATA] == t.WHOLE:
                done = orders & ~t.COPY if data == t.PARTIAL else orders
                yield (
                    f"{name} copies record {data}",
                    self._with(state, (server + t.DATA, data + 1), (server + t.ORDERS, done)),
                )
            elif state[source + t.DATA] == t.ROTTEN:
                yield f"{name} copies from rot: noticed", self._with(state, (source + t.DATA, t.QUARANTINED))
            elif state[source + t.DATA] == t.PARTIAL and self.wrong == "repair-from-partial":
                yield (
                    f"{name} copies from a partial replica, to its end",
                    self._with(state, (server + t.DATA, t.SHORT), (server + t.ORDERS, orders & ~t.COPY)),
                )

    def _replace(self, state: bytes, server: int, name: str) -> Iterator[tuple[str, bytearray]]:
        """A member that is lost, or seems to be, gives its place to a server that is up."""
        spent: list[tuple[int, int]] = []
        if state[server + t.MEMBER] == t.LIVE and state[server + t.UP] == t.IS_UP:
            if not state[self.at + t.SUSPICIONS]:
                return
            spent.append(self._spend(state, t.SUSPICIONS))
        for number, target in enumerate(self.servers):
            same = target == server and state[server + t.MEMBER] == t.LOST
            if state[target + t.UP] != t.IS_UP or not (same or state[target + t.MEMBER] == t.NO_MEMBER):
                continue
            changed = self._with(state, *spent, (server + t.MEMBER, t.NO_MEMBER), (target + t.MEMBER, t.LIVE))
            if not same:
                changed[server + t.VIEW] = t.ABSENT  # held for dead: what it said counts no more, until it reports
            yield f"{name}'s place goes to s{number}", changed

    # ---- the range at the placement driver

    def _range(self, state: bytes) -> Iterator[tuple[str, bytearray]]:
        if state[self.at + t.TRIMMED]:
            return
        if self.instance.trim:
            changed = self._unhosted(state, t.TRIMMED)
            for item in self.objects:
                kind = changed[item + t.STATE]
                changed[item + t.STATE] = {t.COMMITTED: t.TRIMMED_AWAY, t.IS_PREPARED: t.GIVEN_UP}.get(kind, kind)
            yield "the range is trimmed", changed
        if state[self.at + t.HOT_DROPPED]:
            return
        covered = state[self.at + t.TIERED] == self.instance.spans
        if self.wrong == "drop-hot-before-commit":
            covered = any(state[item + t.STATE] == t.IS_PREPARED for item in self.objects)
        if self.instance.tier and covered and not self.instance.hot_stays:
            yield "the hot copies are given up", self._unhosted(state, t.HOT_DROPPED)
        members = sum(state[at + t.MEMBER] != t.NO_MEMBER for at in self.servers)
        if members < 3 and state[self.at + t.TIERED] < self.instance.spans:
            for number, target in enumerate(self.servers):
                if state[target + t.UP] == t.IS_UP and state[target + t.MEMBER] == t.NO_MEMBER:
                    yield f"s{number} becomes a member too", self._with(state, (target + t.MEMBER, t.LIVE))

    def _unhosted(self, state: bytes, flag: int) -> bytearray:
        changed = self._with(state, (self.at + flag, 1))
        for at in self.servers:
            changed[at + t.MEMBER] = t.NO_MEMBER
            changed[at + t.OWNED] = changed[at + t.OWNED] if flag == t.HOT_DROPPED else 0
        return changed

    # ---- a reader

    def _read(self, state: bytes) -> Iterator[tuple[str, bytearray]]:
        plan = state[self.at + t.READER]
        if plan == t.PLAN_NONE:
            if state[self.at + t.TRIMMED]:
                return
            changed = self._with(
                state, (self.at + t.READER, t.PLAN_COLD if state[self.at + t.HOT_DROPPED] else t.PLAN_HOT)
            )
            for at in self.servers:
                changed[at + t.ORDERS] |= t.PLANNED if state[at + t.MEMBER] == t.LIVE else 0
            yield "a reader asks where the range is", changed
            return
        planned = [at for at in self.servers if state[at + t.ORDERS] & t.PLANNED]
        changed = self._with(
            state,
            (self.at + t.READER, t.PLAN_NONE),
            *((at + t.ORDERS, state[at + t.ORDERS] & ~t.PLANNED) for at in planned),
        )
        served, rotten = self._served(state, planned, cold=plan == t.PLAN_COLD)
        if rotten and self.wrong == "serve-without-checksum":
            changed[self.at + t.GHOST] |= t.WRONG_BYTES
        elif not served:
            members = [at for at in self.servers if state[at + t.MEMBER] == t.LIVE]
            again, _ = self._served(state, members, cold=bool(state[self.at + t.HOT_DROPPED]))
            if again and self.wrong == "reader-not-re-resolving":
                changed[self.at + t.GHOST] |= t.READER_STUCK
        yield "the reader reads by its plan", changed

    def _served(self, state: bytes, hot: list[int], *, cold: bool) -> tuple[bool, bool]:
        """Whether this plan serves the range; and whether rot would be served."""
        if cold:
            kept = [item for item in self.objects if state[item + t.STATE] == t.COMMITTED]
            return len(kept) == self.instance.spans and all(state[item + t.CONTENT] for item in kept), False
        up = [state[at + t.DATA] for at in hot if state[at + t.UP] == t.IS_UP]
        return t.WHOLE in up, t.ROTTEN in up
