"""Repacks, small and whole: two packers, trims, a deletion of what is replaced, and a reader that has listed objects before.

Three ranges of one record with an object each. Every step of the placement driver is carried out by the product's own
commands, so a state holds its snapshot; around it are the object store, the packers and the reader. Between any two steps
anything else may happen; deadlines pass at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from rangelog_core.errors import RangelogError
from rangelog_core.ids import Incarnation, ReplicaId
from rangelog_pd.state.machine import Machine, response_of
from rangelog_pd.state.tables import copy_of
from rangelog_pd.state.versions import FEATURE_LEVEL
from rangelog_proto.v1 import common_pb2, pd_pb2, pd_state_pb2
from tests.model.conformance_driver import Driver

RANGES = 3
DIGEST = "sha256:" + "ab" * 32
LIVE, GONE = common_pb2.OBJECT_STATE_COMMITTED, common_pb2.OBJECT_STATE_DELETED
PREPARED = common_pb2.OBJECT_STATE_PREPARED
RIGHT, WRONG = "right", "wrong"


@dataclass(frozen=True, slots=True)
class Packer:
    """What one of them is at: its object (0: none), what it read to write it, and whether it has put it."""

    object_id: int = 0
    has_put: bool = False


@dataclass(frozen=True, slots=True)
class RepackState:
    """The placement driver's snapshot; the store by object id; the packers; where the reader stands, and what it has listed."""

    driver: bytes
    store: tuple[tuple[int, str], ...]
    packers: tuple[Packer, ...]
    position: int = 0
    listed: tuple[tuple[int, int, int], ...] = ()
    stuck: bool = False

    @property
    def content(self) -> dict[int, str]:
        """What the store has."""
        return dict(self.store)


@dataclass(frozen=True, slots=True)
class Repacking:
    """One instance. `wrong`: the wrong choice."""

    wrong: str = ""
    keys: int = 2  # that packers are given, in all
    packers: int = 2
    spoils: bool = False  # the store keeps something else than was sent
    trims: bool = False
    reader: bool = False

    def initial(self) -> RepackState:
        """Three ranges in the tier; the reader has listed nothing."""
        servers = [ReplicaId(name, Incarnation(1)) for name in ("a", "b", "c")]
        driver = Driver(servers, 2, tiered=True)
        for index in range(RANGES):
            seal = pd_pb2.SealRangeRequest(
                stream_id=1, range_index=index, epoch=1, end_offset=index + 1, create_next=True
            )
            placed = pd_state_pb2.PlacedSealRange(request=seal, replicas=driver.members)
            driver.do(pd_pb2.SealRangeResponse, seal_range=placed)
            prepare = pd_pb2.PrepareObjectRequest(
                stream_id=1, range_index=index, start_offset=index, end_offset=index + 1, server="a", incarnation=1
            )
            timed = pd_state_pb2.TimedPrepareObject(request=prepare, deadline_ms=1 << 40)
            given = driver.do(pd_pb2.PrepareObjectResponse, prepare_object=timed).object
            commit = pd_pb2.CommitObjectRequest(
                object_id=given.object_id, server="a", incarnation=1, size_bytes=5, digest=DIGEST, epoch=1
            )
            driver.do(pd_pb2.CommitObjectResponse, commit_object=commit)
        store = tuple((number + 1, RIGHT) for number in range(RANGES))
        position = 0 if self.reader else RANGES
        return RepackState(driver.machine.snapshot(), store, (Packer(),) * self.packers, position)

    # ---- what must hold

    def invariant(self, state: RepackState) -> str:
        """Name what is broken, or nothing."""
        objects, trim = _objects(state.driver)
        content = state.content
        live = [each for each in objects if each.state == LIVE]
        for each in live:
            if content.get(each.object_id) != RIGHT:
                return "COMMITTED-WRONG" if each.object_id in content else "COMMITTED-MISSING"
        for offset in range(trim, RANGES):
            holders = sum(each.start_offset <= offset < each.end_offset for each in live)
            if holders != 1:
                return "RECORD-TWICE" if holders else "RECORD-LOST"
        known = {each.object_id for each in objects}
        late = {packer.object_id for packer in state.packers if not packer.has_put}
        if any(each not in known and each not in late for each in content):
            return "GARBAGE-FOR-EVER"
        return "READER-STUCK" if state.stuck else ""

    def goal(self, state: RepackState) -> bool:
        """The reader is through, nothing is half done, and the store has what counts, no more."""
        objects, _ = _objects(state.driver)
        idle = all(not packer.object_id for packer in state.packers)
        clean = {each.object_id for each in objects} == set(state.content) and all(
            each.state == LIVE for each in objects
        )
        return idle and clean and state.position == RANGES

    # ---- steps

    def successors(self, state: RepackState) -> Iterator[tuple[str, RepackState]]:
        """Every step that can be taken from here."""
        objects, trim = _objects(state.driver)
        for number, packer in enumerate(state.packers):
            yield from self._pack(state, number, packer, objects)
        if self.trims and trim < RANGES - 1:
            trimmed = self._told(state, trim_stream=pd_pb2.TrimStreamRequest(name="s", trim_offset=trim + 1))
            if trimmed is not None:
                yield f"a trim to {trim + 1}", trimmed
        for each in objects:
            yield from self._collect(state, each)
        yield from self._read(state, objects, trim)

    def _pack(
        self, state: RepackState, number: int, packer: Packer, objects: tuple[common_pb2.Object, ...]
    ) -> Iterator[tuple[str, RepackState]]:
        name = f"p{number}"
        if not packer.object_id:
            if _keys(state.driver) < self.keys:
                yield from self._prepare(state, number, objects)
            return
        if not packer.has_put:
            for content in (RIGHT, WRONG) if self.spoils else (RIGHT,):
                stored = tuple(
                    sorted((state.content | {packer.object_id: state.content.get(packer.object_id, content)}).items())
                )
                done = self._with(state, number, replace(packer, has_put=True))
                yield f"{name} stores o{packer.object_id}, {content}", replace(done, store=stored)
        elif state.content.get(packer.object_id) == RIGHT or self.wrong == "unverified":
            commit = pd_pb2.CommitRepackRequest(object_id=packer.object_id, packer=name, size_bytes=9, digest=DIGEST)
            told = self._told(state, commit_repack=commit)
            if told is not None:
                yield f"{name} commits o{packer.object_id}", self._with(told, number, Packer())
        yield f"{name} gives up", self._with(state, number, Packer())

    def _prepare(
        self, state: RepackState, number: int, objects: tuple[common_pb2.Object, ...]
    ) -> Iterator[tuple[str, RepackState]]:
        live = sorted((each for each in objects if each.state == LIVE), key=lambda each: each.start_offset)
        for low in range(len(live)):
            for high in range(low + 2, len(live) + 1):
                ids = [each.object_id for each in live[low:high]]
                request = pd_pb2.PrepareRepackRequest(stream_id=1, object_ids=ids, packer=f"p{number}")
                timed = pd_state_pb2.TimedPrepareRepack(request=request, deadline_ms=0)  # others may have it at once
                told = self._told(state, prepare_repack=timed)
                if told is None:
                    continue
                made = max(each.object_id for each in _objects(told.driver)[0])
                yield f"p{number} prepares {ids} as o{made}", self._with(told, number, Packer(made))

    def _collect(self, state: RepackState, each: common_pb2.Object) -> Iterator[tuple[str, RepackState]]:
        writing = any(packer.object_id == each.object_id and not packer.has_put for packer in state.packers)
        if each.state == PREPARED:
            given_up = self._told(state, abandon_object=pd_state_pb2.AbandonObject(object_id=each.object_id))
            if given_up is not None:
                yield f"o{each.object_id} is given up", given_up
        elif each.state == GONE and (not writing or self.wrong == "collect-under-the-packer"):
            content = tuple(one for one in state.store if one[0] != each.object_id)
            collected = self._told(state, collect_objects=pd_state_pb2.CollectObjects(object_ids=[each.object_id]))
            assert collected is not None
            yield f"o{each.object_id} is deleted", replace(collected, store=content)

    def _read(
        self, state: RepackState, objects: tuple[common_pb2.Object, ...], trim: int
    ) -> Iterator[tuple[str, RepackState]]:
        if state.position == RANGES:
            return
        position = max(state.position, trim)
        covering = [each for each in state.listed if each[0] <= position < each[1]]
        missing = bool(covering) and covering[0][2] not in state.content
        if not covering or (missing and self.wrong != "list-once"):
            live = [each for each in objects if each.state == LIVE and each.end_offset > position]
            listed = tuple(sorted((each.start_offset, each.end_offset, each.object_id) for each in live))
            if listed != state.listed:
                yield "the reader lists", replace(state, listed=listed)
        elif missing:
            yield "the reader finds nothing", replace(state, stuck=True)
        else:
            yield "the reader reads", replace(state, position=position + 1)

    @staticmethod
    def _with(state: RepackState, number: int, packer: Packer) -> RepackState:
        packers = list(state.packers)
        packers[number] = packer
        return replace(state, packers=tuple(packers))

    def _told(self, state: RepackState, **action: Any) -> RepackState | None:
        """Have the placement driver carry out a command; None: it refuses."""
        machine = Machine()
        machine.restore(state.driver)
        before = {each.object_id: each for each in machine.state.objects.values()}
        if self.wrong == "replace-what-is-gone" and "commit_repack" in action:
            _change(machine, action["commit_repack"].object_id, replaces=lambda ids: [
                each for each in ids if each in before and before[each].state == LIVE
            ])  # fmt: skip
        try:
            response = _do(machine, **action)
        except RangelogError:
            return None
        if self.wrong == "keep-the-replaced" and "commit_repack" in action:
            for object_id in before[action["commit_repack"].object_id].replaces:
                machine.state.put_object(before[object_id])
        if self.wrong == "keep-with-the-first-range" and "prepare_repack" in action:
            made = pd_pb2.PrepareRepackResponse.FromString(response).object
            _change(machine, made.object_id, first=before[made.replaces[0]].range_index)
        return replace(state, driver=machine.snapshot())


def _change(
    machine: Machine,
    object_id: int,
    *,
    replaces: Callable[[Sequence[int]], list[int]] | None = None,
    first: int | None = None,
) -> None:
    """Change a row of an object, for a wrong choice."""
    row = machine.state.objects.find(object_id)
    if row is None:
        return
    changed = copy_of(row)
    if replaces is not None:
        kept = replaces(changed.replaces)
        del changed.replaces[:]
        changed.replaces.extend(kept or [0])
    if first is not None:
        changed.range_index = first
    machine.state.put_object(changed)


def _do(machine: Machine, **action: Any) -> bytes:
    """Apply a command without a look at the invariants: the model has its own. Raises what the command ends in."""
    command = pd_state_pb2.Command(version=FEATURE_LEVEL, now_ms=1_000_000, **action)
    return response_of(machine.apply(1, command.SerializeToString()))


@cache
def _keys(snapshot: bytes) -> int:
    """How many keys were given to packers."""
    machine = Machine()
    machine.restore(snapshot)
    return machine.state.next_object_id - 1 - RANGES


@cache
def _objects(snapshot: bytes) -> tuple[tuple[common_pb2.Object, ...], int]:
    """All rows of objects, and the trim offset."""
    machine = Machine()
    machine.restore(snapshot)
    return tuple(machine.state.objects.values()), machine.state.streams[1].trim_offset
