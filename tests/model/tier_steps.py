"""Every step of the tier model: disks and servers, the placement driver's reconciliation, uploads, deletions, a reader.

Each step is one that the product takes at once: a command of the placement driver, one request to the store, one
directive carried out. Between any two of them anything else may happen. A wrong choice is a condition left out.
"""

from __future__ import annotations

from collections.abc import Iterator

from tier_state import (
    ABSENT, BUILT, BUILT_WRONG, COLLECTED, COMMITTED, CONTENT, COPY, DATA, DELETE, DELETED, DISK_GONE, DOWNS, DROP,
    FAULTS, FLIGHT, GHOST, GIVEN_UP, HOT_DROPPED, IDLE, IS_DOWN, IS_PREPARED, IS_UP, KEY_CHANGED, LATES, LIVE, LOSSES,
    LOST, MEMBER, NO_MEMBER, NOTHING, OBJECT_WIDTH, ORDERED, ORDERS, OWNED, PARTIAL, PLAN_COLD, PLAN_HOT, PLAN_NONE,
    PLANNED, PREPARED, PUT_RIGHT, PUT_WRONG, QUARANTINED, READER, READER_STUCK, REPORT, RIGHT, ROTTEN, SENT, SENT_WRONG,
    SERVER_WIDTH, SHORT, SPAN, SPOILS, STATE, STEP, SUSPICIONS, TASK, TIERED, TRIMMED, TRIMMED_AWAY, UNUSED, UP,
    VERIFIED, VIEW, WHOLE, WRONG, WRONG_BYTES, Instance,
)  # fmt: skip

Step = tuple[str, bytes]
ACKS = 2


class TierModel:
    """The successors of a state. Offsets into it: `servers` and `objects` are where their columns begin, `at` scalars."""

    def __init__(self, instance: Instance, *, canonical: bool) -> None:
        self.instance = instance
        self.wrong = instance.wrong
        self.at = instance.scalars_at
        self.servers = list(range(0, instance.objects_at, SERVER_WIDTH))
        self.objects = list(range(instance.objects_at, instance.scalars_at, OBJECT_WIDTH))
        self._fold = canonical

    def successors(self, state: bytes) -> Iterator[Step]:
        """Every step that can be taken from here."""
        for label, changed in self._all(state):
            yield label, self.instance.canonical(changed) if self._fold else bytes(changed)

    def _all(self, state: bytes) -> Iterator[tuple[str, bytearray]]:
        for number, server in enumerate(self.servers):
            yield from self._faults(state, server, f"s{number}")
            if state[server + UP] == IS_UP:
                yield from self._heartbeat(state, server, f"s{number}")
                yield from self._directives(state, server, f"s{number}")
                if self.instance.tier:
                    yield from self._upload(state, server, f"s{number}")
            if state[server + MEMBER]:
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
        up, data = state[server + UP], state[server + DATA]
        cleared = [(server + ORDERS, state[server + ORDERS] & PLANNED), (server + STEP, IDLE), (server + TASK, 0)]
        matters = data != ABSENT and not state[self.at + HOT_DROPPED] and not state[self.at + TRIMMED]
        if state[self.at + FAULTS] and matters and self._may_fail(state):
            spent = self._spend(state, FAULTS)
            yield (
                f"{name} LOSES ITS DISK",
                self._with(state, spent, (server + DATA, ABSENT), (server + UP, DISK_GONE), *cleared),
            )
            if self.instance.rot and data == WHOLE:
                yield f"{name}'s replica ROTS", self._with(state, spent, (server + DATA, ROTTEN))
        if up == IS_UP:
            if state[self.at + DOWNS]:
                yield f"{name} stops", self._with(state, self._spend(state, DOWNS), (server + UP, IS_DOWN), *cleared)
            if data == ROTTEN:
                yield f"{name} finds the rot", self._with(state, (server + DATA, QUARANTINED))
        elif up == IS_DOWN:
            yield f"{name} starts", self._with(state, (server + UP, IS_UP))
        else:
            changed = self._with(state, (server + UP, IS_UP), (server + VIEW, ABSENT))
            if state[server + MEMBER] == LIVE:
                changed[server + MEMBER] = LOST
            self._give_up(changed, server)
            yield f"{name} starts with an empty disk, as a new incarnation", changed

    def _may_fail(self, state: bytes) -> bool:
        """The promise's bound: the next disk only after the last one's replica is there again."""
        return state[self.at + FAULTS] == self.instance.faults or self.instance.whole_members(state) >= 3

    # ---- replicas

    def _wanted(self, state: bytes, server: int) -> int:
        """Which directive this server's heartbeat is answered with: DROP, COPY or none."""
        data = REPORT[state[server + DATA]]
        gone = state[self.at + HOT_DROPPED] or state[self.at + TRIMMED]
        if state[server + MEMBER] != LIVE:
            if data == ABSENT:
                return 0
            return DROP if gone or self._whole_by_report(state) >= self._enough() else 0
        sources = any(other != server and state[other + VIEW] == WHOLE for other in self.servers)
        if data == WHOLE or not sources:
            return 0
        return DROP if data == QUARANTINED else COPY

    def _enough(self) -> int:
        return 0 if self.wrong == "drop-superfluous-too-early" else ACKS

    def _whole_by_report(self, state: bytes) -> int:
        """Members that count as whole: by what they last said, however long ago."""
        count = 0
        for at in self.servers:
            if state[at + MEMBER] == LIVE and state[at + VIEW] == WHOLE:
                count += 1
            elif state[at + MEMBER] == LOST and self.wrong == "count-a-lost-incarnation-as-whole":
                count += 1
        return count

    def _heartbeat(self, state: bytes, server: int, name: str) -> Iterator[tuple[str, bytearray]]:
        reported = self._with(state, (server + VIEW, REPORT[state[server + DATA]]))
        wanted = self._wanted(bytes(reported), server)
        late = state[server + ORDERS] & DROP if self.instance.late_drops else 0
        reported[server + ORDERS] = state[server + ORDERS] & PLANNED | wanted | late
        told = {DROP: ", told to drop", COPY: ", told to copy"}.get(wanted, "")
        yield f"{name} reports{told}", reported
        if late and not wanted:
            yield (
                f"{name}'s old directive is withdrawn",
                self._with(reported, (server + ORDERS, state[server + ORDERS] & PLANNED)),
            )

    def _directives(self, state: bytes, server: int, name: str) -> Iterator[tuple[str, bytearray]]:
        orders, data = state[server + ORDERS], state[server + DATA]
        if orders & DROP:
            yield (
                f"{name} drops its replica",
                self._with(state, (server + DATA, ABSENT), (server + ORDERS, orders & PLANNED)),
            )
        if not orders & COPY:
            return
        if data == QUARANTINED:
            yield f"{name} drops its damaged replica to copy anew", self._with(state, (server + DATA, ABSENT))
        if data not in (ABSENT, PARTIAL):
            return
        for source in self.servers:
            if source == server or state[source + UP] != IS_UP:
                continue
            if state[source + DATA] == WHOLE:
                done = orders & ~COPY if data == PARTIAL else orders
                yield (
                    f"{name} copies record {data}",
                    self._with(state, (server + DATA, data + 1), (server + ORDERS, done)),
                )
            elif state[source + DATA] == ROTTEN:
                yield f"{name} copies from rot: noticed", self._with(state, (source + DATA, QUARANTINED))
            elif state[source + DATA] == PARTIAL and self.wrong == "repair-from-partial":
                yield (
                    f"{name} copies from a partial replica, to its end",
                    self._with(state, (server + DATA, SHORT), (server + ORDERS, orders & ~COPY)),
                )

    def _replace(self, state: bytes, server: int, name: str) -> Iterator[tuple[str, bytearray]]:
        """A member that is lost, or seems to be, gives its place to a server that is up."""
        spent: list[tuple[int, int]] = []
        if state[server + MEMBER] == LIVE and state[server + UP] == IS_UP:
            if not state[self.at + SUSPICIONS]:
                return
            spent.append(self._spend(state, SUSPICIONS))
        for number, target in enumerate(self.servers):
            same = target == server and state[server + MEMBER] == LOST
            if state[target + UP] != IS_UP or not (same or state[target + MEMBER] == NO_MEMBER):
                continue
            yield (
                f"{name}'s place goes to s{number}",
                self._with(state, *spent, (server + MEMBER, NO_MEMBER), (target + MEMBER, LIVE)),
            )

    # ---- the range at the placement driver

    def _range(self, state: bytes) -> Iterator[tuple[str, bytearray]]:
        if state[self.at + TRIMMED]:
            return
        if self.instance.trim:
            changed = self._unhosted(state, TRIMMED)
            for item in self.objects:
                kind = changed[item + STATE]
                changed[item + STATE] = {COMMITTED: TRIMMED_AWAY, IS_PREPARED: GIVEN_UP}.get(kind, kind)
            yield "the range is trimmed", changed
        if state[self.at + HOT_DROPPED]:
            return
        covered = state[self.at + TIERED] == self.instance.spans
        if self.wrong == "drop-hot-before-commit":
            covered = any(state[item + STATE] == IS_PREPARED for item in self.objects)
        if self.instance.tier and covered and not self.instance.hot_stays:
            yield "the hot copies are given up", self._unhosted(state, HOT_DROPPED)
        members = sum(state[at + MEMBER] != NO_MEMBER for at in self.servers)
        if members < 3 and state[self.at + TIERED] < self.instance.spans:
            for number, target in enumerate(self.servers):
                if state[target + UP] == IS_UP and state[target + MEMBER] == NO_MEMBER:
                    yield f"s{number} becomes a member too", self._with(state, (target + MEMBER, LIVE))

    def _unhosted(self, state: bytes, flag: int) -> bytearray:
        changed = self._with(state, (self.at + flag, 1))
        for at in self.servers:
            changed[at + MEMBER] = NO_MEMBER
            changed[at + OWNED] = changed[at + OWNED] if flag == HOT_DROPPED else 0
        return changed

    # ---- uploads

    def _give_up(self, changed: bytearray, server: int) -> None:
        """What this server has prepared becomes a tombstone."""
        if changed[server + OWNED]:
            changed[self.objects[changed[server + OWNED] - 1] + STATE] = GIVEN_UP
            changed[server + OWNED] = 0

    def _upload(self, state: bytes, server: int, name: str) -> Iterator[tuple[str, bytearray]]:
        step, task = state[server + STEP], state[server + TASK]
        end = [(server + STEP, IDLE), (server + TASK, 0)]
        if step == IDLE:
            if self._may_upload(state, server):
                yield f"{name} is told to upload", self._with(state, (server + STEP, ORDERED))
        elif step == ORDERED:
            yield from self._prepare(state, server, name)
        elif step == PREPARED:
            yield from self._build(state, server, name)
        elif step in (BUILT, BUILT_WRONG):
            yield from self._put(state, server, name)
        elif step in (SENT, SENT_WRONG):
            content = state[self.objects[task - 1] + CONTENT]
            if self.wrong == "commit-without-verify" or content == (RIGHT if step == SENT else WRONG):
                yield f"{name} verified o{task - 1}", self._with(state, (server + STEP, VERIFIED))
            elif content == NOTHING or self.wrong == "spoiled-key-retried-for-ever":
                yield f"{name} cannot verify o{task - 1}", self._with(state, *end)
            else:
                yield f"{name} finds o{task - 1} spoiled", self._with(state, (server + STEP, IDLE))
        else:
            changed = self._with(state, *end)
            if self._commit(changed, server, self.objects[task - 1], task):
                yield f"{name} commits o{task - 1}", changed
            else:
                yield f"{name}'s commit of o{task - 1} is refused", changed

    def _may_upload(self, state: bytes, server: int) -> bool:
        if state[server + MEMBER] != LIVE or state[server + VIEW] != WHOLE:
            return False
        if state[self.at + TIERED] >= self.instance.spans:
            return False
        others = [at for at in self.servers if at != server and state[at + OWNED] and state[at + UP] == IS_UP]
        return not others or bool(state[self.at + LATES])

    def _prepare(self, state: bytes, server: int, name: str) -> Iterator[tuple[str, bytearray]]:
        refused = f"{name} may not prepare", self._with(state, (server + STEP, IDLE), (server + TASK, 0))
        tiered, spoiled = state[self.at + TIERED], state[server + TASK]
        if state[server + MEMBER] != LIVE or tiered >= self.instance.spans:
            yield refused
            return
        spent: list[tuple[int, int]] = []
        mine = state[server + OWNED]
        if mine and mine != spoiled:
            yield (
                f"{name} is given o{mine - 1} again",
                self._with(state, (server + STEP, PREPARED), (server + TASK, mine)),
            )
            return
        racing = self.wrong == "two-commits-of-one-span"
        if not racing and any(at != server and state[at + OWNED] for at in self.servers):
            yield refused
            if not state[self.at + LATES]:
                return
            spent.append(self._spend(state, LATES))  # the other's deadline is over
        number = next((n for n, item in enumerate(self.objects) if state[item + STATE] == UNUSED), None)
        if number is None:
            return
        changed = self._with(state, *spent, (server + STEP, PREPARED), (server + TASK, number + 1))
        for at in self.servers:
            if at == server or not racing:
                self._give_up(changed, at)
        changed[server + OWNED] = number + 1
        changed[self.objects[number] + STATE], changed[self.objects[number] + SPAN] = IS_PREPARED, tiered
        yield f"{name} prepares o{number}", changed

    def _build(self, state: bytes, server: int, name: str) -> Iterator[tuple[str, bytearray]]:
        data = state[server + DATA]
        end = [(server + STEP, IDLE), (server + TASK, 0)]
        if data == WHOLE:
            yield f"{name} builds its object", self._with(state, (server + STEP, BUILT))
        elif data == ROTTEN and self.wrong == "upload-without-checksum":
            yield f"{name} builds its object from rot", self._with(state, (server + STEP, BUILT_WRONG))
        elif data == ROTTEN:
            yield f"{name} finds the rot as it builds", self._with(state, (server + DATA, QUARANTINED), *end)
        else:
            yield f"{name} has nothing to build from", self._with(state, *end)

    def _put(self, state: bytes, server: int, name: str) -> Iterator[tuple[str, bytearray]]:
        """Only a key that holds nothing takes an object. The answer may be lost, or the object itself, or come late."""
        number = state[server + TASK] - 1
        item = self.objects[number]
        right = state[server + STEP] == BUILT
        sent = (server + STEP, SENT if right else SENT_WRONG)
        end = [(server + STEP, IDLE), (server + TASK, 0)]
        landed = (item + CONTENT, RIGHT if right else WRONG)
        if self.wrong == "key-reuse":
            yield from self._put_over(state, server, name)
        elif state[item + CONTENT]:
            yield f"o{number} is there already", self._with(state, sent)
        else:
            yield f"{name} puts o{number}", self._with(state, sent, landed)
            if state[self.at + SPOILS]:
                yield (
                    f"{name} puts o{number}, the store keeps it WRONG",
                    self._with(state, sent, (item + CONTENT, WRONG), self._spend(state, SPOILS)),
                )
        if state[self.at + LOSSES] and not state[item + CONTENT]:
            spent = self._spend(state, LOSSES)
            yield f"{name}'s put of o{number}: landed, answer LOST", self._with(state, spent, landed, *end)
            if not state[item + FLIGHT]:
                late = (item + FLIGHT, PUT_RIGHT if right else PUT_WRONG)
                yield f"{name}'s put of o{number} is LATE", self._with(state, spent, late, *end)

    def _put_over(self, state: bytes, server: int, name: str) -> Iterator[tuple[str, bytearray]]:
        """The wrong way: one key for a span, whoever uploads it, and what is there is replaced."""
        span = state[self.objects[state[server + TASK] - 1] + SPAN]
        for content in (RIGHT, WRONG) if state[self.at + SPOILS] else (RIGHT,):
            changed = self._with(state, (server + STEP, SENT))
            if content == WRONG:
                changed[self.at + SPOILS] -= 1
            for item in self.objects:
                if state[item + STATE] != UNUSED and state[item + SPAN] == span:
                    if state[item + CONTENT] not in (NOTHING, content):
                        changed[self.at + GHOST] |= KEY_CHANGED
                    changed[item + CONTENT] = content
            yield f"{name} puts what is {('right', 'wrong')[content - 1]} under the span's key", changed

    def _commit(self, changed: bytearray, server: int, item: int, task: int) -> bool:
        known = changed[item + STATE] == IS_PREPARED and changed[server + OWNED] == task
        follows = changed[item + SPAN] == changed[self.at + TIERED]
        if self.wrong == "two-commits-of-one-span":
            follows = True
        if not known or not follows:
            return False
        changed[item + STATE], changed[server + OWNED] = COMMITTED, 0
        changed[self.at + TIERED] = changed[item + SPAN] + 1
        return True

    # ---- objects

    def _at_work(self, state: bytes, number: int) -> bool:
        """Whether an upload under this key may still reach the store. The grace after its deadline rules that out."""
        if self.wrong == "delete-without-grace":
            return False
        writing = (PREPARED, BUILT, BUILT_WRONG)
        busy = any(state[at + TASK] == number + 1 and state[at + STEP] in writing for at in self.servers)
        return busy or state[self.objects[number] + FLIGHT] in (PUT_RIGHT, PUT_WRONG)

    def _object(self, state: bytes, item: int, name: str) -> Iterator[tuple[str, bytearray]]:
        kind, flight, number = state[item + STATE], state[item + FLIGHT], self.objects.index(item)
        if flight in (PUT_RIGHT, PUT_WRONG):
            landed = RIGHT if flight == PUT_RIGHT else WRONG
            content = state[item + CONTENT] or landed
            yield f"the late put of {name} lands", self._with(state, (item + FLIGHT, 0), (item + CONTENT, content))
            yield f"the late put of {name} is lost", self._with(state, (item + FLIGHT, 0))
        elif flight == DELETE:
            after = DELETED if kind in (GIVEN_UP, TRIMMED_AWAY) else 0
            yield f"{name} is deleted", self._with(state, (item + CONTENT, NOTHING), (item + FLIGHT, after))
            yield f"the delete of {name} is lost", self._with(state, (item + FLIGHT, 0))
        elif flight == DELETED:
            yield f"{name} is collected", self._with(state, (item + STATE, COLLECTED), (item + FLIGHT, 0))
        elif kind == TRIMMED_AWAY or (kind == GIVEN_UP and not self._at_work(state, number)):
            changed = self._with(state, (item + FLIGHT, DELETE))
            if self.wrong == "collect-before-delete":
                changed[item + STATE] = COLLECTED
            yield f"{name} is to be deleted", changed
        elif kind == IS_PREPARED:
            yield from self._abandon(state, item, name)

    def _abandon(self, state: bytes, item: int, name: str) -> Iterator[tuple[str, bytearray]]:
        owner = next((at for at in self.servers if state[at + OWNED] == self.objects.index(item) + 1), None)
        spent: list[tuple[int, int]] = []
        if owner is not None and state[owner + UP] == IS_UP and not state[self.at + HOT_DROPPED]:
            if not state[self.at + LATES]:
                return
            spent.append(self._spend(state, LATES))
        if self.wrong == "delete-a-committed-object" and not state[item + FLIGHT]:
            yield f"{name} is out of time, and to be deleted", self._with(state, *spent, (item + FLIGHT, DELETE))
            return
        changed = self._with(state, *spent, (item + STATE, GIVEN_UP))
        if owner is not None:
            changed[owner + OWNED] = 0
        yield f"{name} is given up", changed

    # ---- a reader

    def _read(self, state: bytes) -> Iterator[tuple[str, bytearray]]:
        plan = state[self.at + READER]
        if plan == PLAN_NONE:
            if state[self.at + TRIMMED]:
                return
            changed = self._with(state, (self.at + READER, PLAN_COLD if state[self.at + HOT_DROPPED] else PLAN_HOT))
            for at in self.servers:
                changed[at + ORDERS] |= PLANNED if state[at + MEMBER] == LIVE else 0
            yield "a reader asks where the range is", changed
            return
        planned = [at for at in self.servers if state[at + ORDERS] & PLANNED]
        changed = self._with(
            state, (self.at + READER, PLAN_NONE), *((at + ORDERS, state[at + ORDERS] & ~PLANNED) for at in planned)
        )
        served, rotten = self._served(state, planned, cold=plan == PLAN_COLD)
        if rotten and self.wrong == "serve-without-checksum":
            changed[self.at + GHOST] |= WRONG_BYTES
        elif not served:
            members = [at for at in self.servers if state[at + MEMBER] == LIVE]
            again, _ = self._served(state, members, cold=bool(state[self.at + HOT_DROPPED]))
            if again and self.wrong == "reader-not-re-resolving":
                changed[self.at + GHOST] |= READER_STUCK
        yield "the reader reads by its plan", changed

    def _served(self, state: bytes, hot: list[int], *, cold: bool) -> tuple[bool, bool]:
        """Whether this plan serves the range; and whether rot would be served."""
        if cold:
            kept = [item for item in self.objects if state[item + STATE] == COMMITTED]
            return len(kept) == self.instance.spans and all(state[item + CONTENT] for item in kept), False
        up = [state[at + DATA] for at in hot if state[at + UP] == IS_UP]
        return WHOLE in up, ROTTEN in up
