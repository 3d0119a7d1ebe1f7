"""Every step of the tier model: disks and servers, the placement driver's reconciliation, uploads, deletions, a reader.

Each step is one that the product takes at once: a command of the placement driver, one request to the store, one
directive carried out. Between any two of them anything else may happen. A wrong choice is a condition left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import tier_state as t
from tier_state import Instance

Step = tuple[str, bytes]
ACKS = 2


class TierModel:
    """The successors of a state. Offsets into it: `servers` and `objects` are where their columns begin, `at` scalars."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.wrong = instance.wrong
        self.at = instance.scalars_at
        self.servers = list(range(0, instance.objects_at, t.SERVER_WIDTH))
        self.objects = list(range(instance.objects_at, instance.scalars_at, t.OBJECT_WIDTH))

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

    def _with(self, state: bytes | bytearray, *changes: tuple[int, int]) -> bytearray:
        changed = bytearray(state)
        for place, value in changes:
            changed[place] = value
        return changed

    def _spend(self, state: bytes, budget: int) -> tuple[int, int]:
        return self.at + budget, state[self.at + budget] - 1

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
        """The promise's bound: the next disk only after the last one's damage is found, and repaired to stay."""
        repaired = self.instance.whole_members(state) >= 3
        unfound = any(state[at + t.DATA] == t.ROTTEN for at in self.servers)
        leaving = any(state[at + t.MEMBER] and state[at + t.ORDERS] & t.DROP for at in self.servers)
        return state[self.at + t.FAULTS] == self.instance.faults or (repaired and not unfound and not leaving)

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
            yield (
                f"{name}'s place goes to s{number}",
                self._with(state, *spent, (server + t.MEMBER, t.NO_MEMBER), (target + t.MEMBER, t.LIVE)),
            )

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

    # ---- uploads

    def _give_up(self, changed: bytearray, server: int) -> None:
        """What this server has prepared becomes a tombstone."""
        if changed[server + t.OWNED]:
            changed[self.objects[changed[server + t.OWNED] - 1] + t.STATE] = t.GIVEN_UP
            changed[server + t.OWNED] = 0

    def _upload(self, state: bytes, server: int, name: str) -> Iterator[tuple[str, bytearray]]:
        step, task = state[server + t.STEP], state[server + t.TASK]
        end = [(server + t.STEP, t.IDLE), (server + t.TASK, 0)]
        if step == t.IDLE:
            if self._may_upload(state, server):
                yield f"{name} is told to upload", self._with(state, (server + t.STEP, t.ORDERED))
        elif step == t.ORDERED:
            yield from self._prepare(state, server, name)
        elif step == t.PREPARED:
            yield from self._build(state, server, name)
        elif step in (t.BUILT, t.BUILT_WRONG):
            yield from self._put(state, server, name)
        elif step in (t.SENT, t.SENT_WRONG):
            content = state[self.objects[task - 1] + t.CONTENT]
            if self.wrong == "commit-without-verify" or content == (t.RIGHT if step == t.SENT else t.WRONG):
                yield f"{name} verified o{task - 1}", self._with(state, (server + t.STEP, t.VERIFIED))
            elif content == t.NOTHING or self.wrong == "spoiled-key-retried-for-ever":
                yield f"{name} cannot verify o{task - 1}", self._with(state, *end)
            else:
                yield f"{name} finds o{task - 1} spoiled", self._with(state, (server + t.STEP, t.IDLE))
        else:
            changed = self._with(state, *end)
            if self._commit(changed, server, self.objects[task - 1], task):
                yield f"{name} commits o{task - 1}", changed
            else:
                yield f"{name}'s commit of o{task - 1} is refused", changed

    def _may_upload(self, state: bytes, server: int) -> bool:
        if state[server + t.MEMBER] != t.LIVE or state[server + t.VIEW] != t.WHOLE:
            return False
        if state[self.at + t.TIERED] >= self.instance.spans:
            return False
        others = [at for at in self.servers if at != server and state[at + t.OWNED] and state[at + t.UP] == t.IS_UP]
        return not others or bool(state[self.at + t.LATES])

    def _prepare(self, state: bytes, server: int, name: str) -> Iterator[tuple[str, bytearray]]:
        refused = f"{name} may not prepare", self._with(state, (server + t.STEP, t.IDLE), (server + t.TASK, 0))
        tiered, spoiled = state[self.at + t.TIERED], state[server + t.TASK]
        if state[server + t.MEMBER] != t.LIVE or tiered >= self.instance.spans:
            yield refused
            return
        spent: list[tuple[int, int]] = []
        mine = state[server + t.OWNED]
        if mine and mine != spoiled:
            yield (
                f"{name} is given o{mine - 1} again",
                self._with(state, (server + t.STEP, t.PREPARED), (server + t.TASK, mine)),
            )
            return
        racing = self.wrong == "two-commits-of-one-span"
        if not racing and any(at != server and state[at + t.OWNED] for at in self.servers):
            yield refused
            if not state[self.at + t.LATES]:
                return
            spent.append(self._spend(state, t.LATES))  # the other's deadline is over
        number = next((n for n, item in enumerate(self.objects) if state[item + t.STATE] == t.UNUSED), None)
        if number is None:
            return
        changed = self._with(state, *spent, (server + t.STEP, t.PREPARED), (server + t.TASK, number + 1))
        for at in self.servers:
            if at == server or not racing:
                self._give_up(changed, at)
        changed[server + t.OWNED] = number + 1
        changed[self.objects[number] + t.STATE], changed[self.objects[number] + t.SPAN] = t.IS_PREPARED, tiered
        yield f"{name} prepares o{number}", changed

    def _build(self, state: bytes, server: int, name: str) -> Iterator[tuple[str, bytearray]]:
        data = state[server + t.DATA]
        end = [(server + t.STEP, t.IDLE), (server + t.TASK, 0)]
        if data == t.WHOLE:
            yield f"{name} builds its object", self._with(state, (server + t.STEP, t.BUILT))
        elif data == t.ROTTEN and self.wrong == "upload-without-checksum":
            yield f"{name} builds its object from rot", self._with(state, (server + t.STEP, t.BUILT_WRONG))
        elif data == t.ROTTEN:
            yield f"{name} finds the rot as it builds", self._with(state, (server + t.DATA, t.QUARANTINED), *end)
        else:
            yield f"{name} has nothing to build from", self._with(state, *end)

    def _put(self, state: bytes, server: int, name: str) -> Iterator[tuple[str, bytearray]]:
        """Only a key that holds nothing takes an object. The answer may be lost, or the object itself, or come late."""
        number = state[server + t.TASK] - 1
        item = self.objects[number]
        right = state[server + t.STEP] == t.BUILT
        sent = (server + t.STEP, t.SENT if right else t.SENT_WRONG)
        end = [(server + t.STEP, t.IDLE), (server + t.TASK, 0)]
        landed = (item + t.CONTENT, t.RIGHT if right else t.WRONG)
        if self.wrong == "key-reuse":
            yield from self._put_over(state, server, name)
        elif state[item + t.CONTENT]:
            yield f"o{number} is there already", self._with(state, sent)
        else:
            yield f"{name} puts o{number}", self._with(state, sent, landed)
            if state[self.at + t.SPOILS]:
                yield (
                    f"{name} puts o{number}, the store keeps it WRONG",
                    self._with(state, sent, (item + t.CONTENT, t.WRONG), self._spend(state, t.SPOILS)),
                )
        if state[self.at + t.LOSSES] and not state[item + t.CONTENT]:
            spent = self._spend(state, t.LOSSES)
            yield f"{name}'s put of o{number}: landed, answer LOST", self._with(state, spent, landed, *end)
            if not state[item + t.FLIGHT]:
                late = (item + t.FLIGHT, t.PUT_RIGHT if right else t.PUT_WRONG)
                yield f"{name}'s put of o{number} is LATE", self._with(state, spent, late, *end)

    def _put_over(self, state: bytes, server: int, name: str) -> Iterator[tuple[str, bytearray]]:
        """The wrong way: one key for a span, whoever uploads it, and what is there is replaced."""
        span = state[self.objects[state[server + t.TASK] - 1] + t.SPAN]
        for content in (t.RIGHT, t.WRONG) if state[self.at + t.SPOILS] else (t.RIGHT,):
            changed = self._with(state, (server + t.STEP, t.SENT))
            if content == t.WRONG:
                changed[self.at + t.SPOILS] -= 1
            for item in self.objects:
                if state[item + t.STATE] != t.UNUSED and state[item + t.SPAN] == span:
                    if state[item + t.CONTENT] not in (t.NOTHING, content):
                        changed[self.at + t.GHOST] |= t.KEY_CHANGED
                    changed[item + t.CONTENT] = content
            yield f"{name} puts what is {('right', 'wrong')[content - 1]} under the span's key", changed

    def _commit(self, changed: bytearray, server: int, item: int, task: int) -> bool:
        known = changed[item + t.STATE] == t.IS_PREPARED and changed[server + t.OWNED] == task
        follows = changed[item + t.SPAN] == changed[self.at + t.TIERED]
        if self.wrong == "two-commits-of-one-span":
            follows = True
        if not known or not follows:
            return False
        changed[item + t.STATE], changed[server + t.OWNED] = t.COMMITTED, 0
        changed[self.at + t.TIERED] = changed[item + t.SPAN] + 1
        return True

    # ---- objects

    def _at_work(self, state: bytes, number: int) -> bool:
        """Whether an upload under this key may still reach the store. The grace after its deadline rules that out."""
        if self.wrong == "delete-without-grace":
            return False
        writing = (t.PREPARED, t.BUILT, t.BUILT_WRONG)
        busy = any(state[at + t.TASK] == number + 1 and state[at + t.STEP] in writing for at in self.servers)
        return busy or state[self.objects[number] + t.FLIGHT] in (t.PUT_RIGHT, t.PUT_WRONG)

    def _object(self, state: bytes, item: int, name: str) -> Iterator[tuple[str, bytearray]]:
        kind, flight, number = state[item + t.STATE], state[item + t.FLIGHT], self.objects.index(item)
        if flight in (t.PUT_RIGHT, t.PUT_WRONG):
            landed = t.RIGHT if flight == t.PUT_RIGHT else t.WRONG
            content = state[item + t.CONTENT] or landed
            yield f"the late put of {name} lands", self._with(state, (item + t.FLIGHT, 0), (item + t.CONTENT, content))
            yield f"the late put of {name} is lost", self._with(state, (item + t.FLIGHT, 0))
        elif flight == t.DELETE:
            after = t.DELETED if kind in (t.GIVEN_UP, t.TRIMMED_AWAY) else 0
            yield f"{name} is deleted", self._with(state, (item + t.CONTENT, t.NOTHING), (item + t.FLIGHT, after))
            yield f"the delete of {name} is lost", self._with(state, (item + t.FLIGHT, 0))
        elif flight == t.DELETED:
            yield f"{name} is collected", self._with(state, (item + t.STATE, t.COLLECTED), (item + t.FLIGHT, 0))
        elif kind == t.TRIMMED_AWAY or (kind == t.GIVEN_UP and not self._at_work(state, number)):
            changed = self._with(state, (item + t.FLIGHT, t.DELETE))
            if self.wrong == "collect-before-delete":
                changed[item + t.STATE] = t.COLLECTED
            yield f"{name} is to be deleted", changed
        elif kind == t.IS_PREPARED:
            yield from self._abandon(state, item, name)

    def _abandon(self, state: bytes, item: int, name: str) -> Iterator[tuple[str, bytearray]]:
        owner = next((at for at in self.servers if state[at + t.OWNED] == self.objects.index(item) + 1), None)
        spent: list[tuple[int, int]] = []
        if owner is not None and state[owner + t.UP] == t.IS_UP and not state[self.at + t.HOT_DROPPED]:
            if not state[self.at + t.LATES]:
                return
            spent.append(self._spend(state, t.LATES))
        if self.wrong == "delete-a-committed-object" and not state[item + t.FLIGHT]:
            yield f"{name} is out of time, and to be deleted", self._with(state, *spent, (item + t.FLIGHT, t.DELETE))
            return
        changed = self._with(state, *spent, (item + t.STATE, t.GIVEN_UP))
        if owner is not None:
            changed[owner + t.OWNED] = 0
        yield f"{name} is given up", changed

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
