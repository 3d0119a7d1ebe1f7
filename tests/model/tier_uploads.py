"""The steps of uploads and of objects: prepare, build, put, verify, commit; give up, delete, collect."""

from __future__ import annotations

from collections.abc import Iterator

from tests.model import tier_state as t
from tests.model.tier_state import Instance


class Uploads:
    """The tier's half of the model. Offsets into a state: `servers` and `objects` begin their columns, `at` the scalars."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.wrong = instance.wrong
        self.at = instance.scalars_at
        self.servers = list(range(0, instance.objects_at, t.SERVER_WIDTH))
        self.objects = list(range(instance.objects_at, instance.scalars_at, t.OBJECT_WIDTH))

    def _with(self, state: bytes | bytearray, *changes: tuple[int, int]) -> bytearray:
        changed = bytearray(state)
        for place, value in changes:
            changed[place] = value
        return changed

    def _spend(self, state: bytes, budget: int) -> tuple[int, int]:
        return self.at + budget, state[self.at + budget] - 1

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

    @staticmethod
    def _may_renew(state: bytes, owner: int) -> bool:
        """Whether the owner of an upload is still there to finish it, or to ask for its key again before its deadline."""
        at_work = state[owner + t.TASK] == state[owner + t.OWNED] and state[owner + t.STEP] >= t.PREPARED
        return state[owner + t.UP] == t.IS_UP and (at_work or state[owner + t.MEMBER] == t.LIVE)

    def _abandon(self, state: bytes, item: int, name: str) -> Iterator[tuple[str, bytearray]]:
        owner = next((at for at in self.servers if state[at + t.OWNED] == self.objects.index(item) + 1), None)
        spent: list[tuple[int, int]] = []
        if owner is not None and self._may_renew(state, owner) and not state[self.at + t.HOT_DROPPED]:
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
