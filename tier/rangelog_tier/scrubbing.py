"""Compares what the object store has with what the placement driver's state says, and repairs what can be repaired.

What holds: the listing of the store and the objects of the state are read in step, by key, so memory does not depend on their
number. Nothing is found by one look: what seems missing is asked for by itself, and counts only if the state still has it
afterwards; what the state does not have was listed before the state was asked. Only objects whose id this cluster has given
out and forgotten again are orphans; they are removed once they are older than a grace, after a second look at the state. What
is prepared, what is a tombstone, and what lies outside of the streams' folders (manifests, snapshots) is left alone. An object
that is missing or damaged is uploaded again only where the placement driver knows of whole hot copies. A scrub ends once the
tier is another one than it looks at: what later stores have would seem to be missing.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from rangelog_core.errors import ObjectNotFound, PreconditionFailed, RangelogError
from rangelog_core.net.pd_client import PdClient
from rangelog_core.object_keys import STREAMS, object_of_key, stream_prefix
from rangelog_proto.v1 import common_pb2
from rangelog_proto.v1 import tier_pb2 as pb
from rangelog_tier.object_store import ObjectInfo, ObjectStore, ObjectTooShort
from rangelog_tier.scrub_sources import CommittedObjects, KnownStreams, StoreListing
from rangelog_tier.storing import stored_digest

GRACE_MS_DEFAULT = 86_400_000
MISSING, DAMAGED, ORPHAN, FOREIGN = "missing", "damaged", "orphan", "foreign"
_BATCH = 200

_Result = TypeVar("_Result")
_PREPARED, _COMMITTED = common_pb2.OBJECT_STATE_PREPARED, common_pb2.OBJECT_STATE_COMMITTED


@dataclass(frozen=True, slots=True)
class ScrubFinding:
    """One object that is not as it should be. `done`: what was done about it; empty: nothing."""

    kind: str
    key: str
    object_id: int
    size_bytes: int
    detail: str
    done: str = ""


@dataclass(slots=True)
class ScrubCounts:
    """The objects that were seen. `young`: not in the state, within the grace; `deleted`: tombstones whose object is still
    stored."""

    stored: int = 0
    committed: int = 0
    prepared: int = 0
    expired: int = 0
    deleted: int = 0
    young: int = 0
    found: dict[str, int] = field(default_factory=lambda: dict.fromkeys((MISSING, DAMAGED, ORPHAN, FOREIGN), 0))


class TierScrub:
    """One comparison. For one event loop; the store is called on threads."""

    def __init__(
        self,
        pd: PdClient,
        store: ObjectStore,
        *,
        tier_url: str,
        timeout_s: float,
        grace_ms: int = GRACE_MS_DEFAULT,
        verify: bool = False,
        repair: bool = False,
    ) -> None:
        """`tier_url`: what the placement driver called the tier before the store was opened. `verify`: read each object and
        compare its digest. `repair`: remove orphans, have lost objects uploaded again.
        """
        self._pd = pd
        self._tier = pd
        self._store = store
        self._tier_url = tier_url
        self._timeout_s = timeout_s
        self._grace_ms = grace_ms
        self._verify = verify
        self._repair = repair
        self._given_up: dict[int, None] = {}  # object ids, in the range of the last repair
        self.counts = ScrubCounts()

    async def run(self, stream: common_pb2.Stream | None = None) -> AsyncIterator[ScrubFinding]:
        """Yield what is not as it should be, of one stream or of all.

        Raises PreconditionFailed (the tier was changed meanwhile), and the errors of store and placement driver.
        """
        listing = StoreListing(self._store, stream_prefix(stream.stream_id) if stream is not None else STREAMS)
        compared = KnownStreams()
        while (info := await listing.peek()) is not None:
            stream_id = listing.stream_id
            if stream_id is None:
                self.counts.stored += 1
                yield self._note(ScrubFinding(FOREIGN, info.key, 0, info.size_bytes, "in no stream's folder"))
                await listing.take()
                continue
            committed = CommittedObjects(self._pd, stream_id, self._timeout_s)
            async for found in self._compare(listing, stream_id, committed):
                yield found
            if committed.known:
                compared.add(stream_id)
        async for each in compared.others(self._pd, self._timeout_s, stream):
            async for found in self._compare(listing, each, CommittedObjects(self._pd, each, self._timeout_s)):
                yield found

    async def _compare(
        self, listing: StoreListing, stream_id: int, committed: CommittedObjects
    ) -> AsyncIterator[ScrubFinding]:
        """Go through one stream's folder and its committed objects in step."""
        unknown: list[ObjectInfo] = []
        absent: list[common_pb2.Object] = []
        while True:
            info = await listing.peek_of(stream_id)
            row = await committed.peek()
            if info is None and row is None:
                break
            if row is None or (info is not None and info.key < row.key):
                unknown.append(await listing.take())
                self.counts.stored += 1
            elif info is None or row.key < info.key:
                absent.append(await committed.take())
            else:
                await listing.take()
                self.counts.stored += 1
                self.counts.committed += 1
                for found in await self._look_at_stored(info, await committed.take()):
                    yield found
            if max(len(unknown), len(absent)) >= _BATCH:
                for found in [*await self._look_at_unknown(unknown), *await self._look_at_absent(absent)]:
                    yield found
                unknown, absent = [], []
        for found in [*await self._look_at_unknown(unknown), *await self._look_at_absent(absent)]:
            yield found

    # ---- looks

    async def _look_at_stored(self, info: ObjectInfo, row: common_pb2.Object) -> list[ScrubFinding]:
        """Compare a committed object that is stored."""
        problem = ""
        if info.size_bytes != row.size_bytes:
            problem = f"{info.size_bytes} bytes instead of {row.size_bytes}"
        elif self._verify:
            try:
                digest = await _on_a_thread(lambda: stored_digest(self._store, row.key, row.size_bytes))
            except ObjectNotFound:
                return await self._look_at_absent([row])
            except ObjectTooShort:
                digest = ""
            problem = "" if digest == row.digest else "its digest differs"
        if not problem or not await self._still_committed([row]):
            return []
        found = ScrubFinding(DAMAGED, row.key, row.object_id, info.size_bytes, problem)
        return [self._note(await self._with_reupload(found))]

    async def _look_at_absent(self, rows: Sequence[common_pb2.Object]) -> list[ScrubFinding]:
        """Ask for objects that the listing lacked: the state may have lost them meanwhile, or they came after the listing."""
        gone: list[common_pb2.Object] = []
        found: list[ScrubFinding] = []
        for row in rows:
            self.counts.committed += 1
            try:
                info = await _on_a_thread(lambda row=row: self._store.head(row.key))  # type: ignore[misc]
            except ObjectNotFound:
                gone.append(row)
            else:
                found += await self._look_at_stored(info, row)
        for row in await self._still_committed(gone):
            missing = ScrubFinding(MISSING, row.key, row.object_id, row.size_bytes, "not in the store")
            found.append(self._note(await self._with_reupload(missing)))
        return found

    async def _look_at_unknown(self, infos: Sequence[ObjectInfo]) -> list[ScrubFinding]:
        """Classify stored objects that are not committed objects of their stream."""
        if not infos:
            return []
        answer = await self._find(each for each in map(_object_id, infos) if each)
        rows = {each.object_id: each for each in answer.objects}
        found: list[ScrubFinding] = []
        orphans: list[ScrubFinding] = []
        for info in infos:
            object_id = _object_id(info)
            row = rows.get(object_id)
            if row is not None and row.key == info.key:
                found += await self._look_at_known(info, row, answer.time_ms)
            elif row is not None or not 0 < object_id < answer.next_object_id:
                detail = "another program's or cluster's: this cluster never gave its id out under this key"
                found.append(self._note(ScrubFinding(FOREIGN, info.key, object_id, info.size_bytes, detail)))
            elif not info.stored_ms or answer.time_ms - info.stored_ms < self._grace_ms:
                self.counts.young += 1
            else:
                orphans.append(ScrubFinding(ORPHAN, info.key, object_id, info.size_bytes, "the state has forgotten it"))
        return found + [self._note(each) for each in await self._without_orphans(orphans)]

    async def _look_at_known(self, info: ObjectInfo, row: common_pb2.Object, time_ms: int) -> list[ScrubFinding]:
        if row.state == _COMMITTED:  # after the listing of the state
            self.counts.committed += 1
            return await self._look_at_stored(info, row)
        if row.state == _PREPARED:
            self.counts.prepared += 1
            self.counts.expired += row.prepare_deadline_ms < time_ms
        else:
            self.counts.deleted += 1
        return []

    # ---- repairs

    async def _without_orphans(self, orphans: Sequence[ScrubFinding]) -> list[ScrubFinding]:
        """Remove orphans, if that is wanted, after a second look: an object that the state has by now is not an orphan."""
        if not self._repair or not orphans:
            return list(orphans)
        known = {each.object_id for each in (await self._find(each.object_id for each in orphans)).objects}
        after: list[ScrubFinding] = []
        for each in orphans:
            if each.object_id in known:
                continue
            await _on_a_thread(lambda each=each: self._store.delete(each.key))  # type: ignore[misc]
            after.append(_with_done(each, "removed"))
        return after

    async def _with_reupload(self, found: ScrubFinding) -> ScrubFinding:
        """Ask that a lost object be uploaded again, if that is wanted and possible; note what came of it."""
        if not self._repair:
            return found
        if found.object_id in self._given_up:
            return _with_done(found, "is uploaded again")
        request = pb.ReuploadObjectRequest(request_id=uuid.uuid4().hex, object_id=found.object_id)
        try:
            answer = await self._tier.call(request, pb.ReuploadObjectResponse, timeout_s=self._timeout_s)
        except RangelogError as error:
            return _with_done(found, f"not repaired: {error.message}")
        self._given_up = dict.fromkeys(each.object_id for each in answer.objects)
        return _with_done(found, "is uploaded again")

    # ---- inside

    async def _still_committed(self, rows: Sequence[common_pb2.Object]) -> list[common_pb2.Object]:
        """Return those that count now: what was trimmed, repacked or given up meanwhile may be missing."""
        if not rows:
            return []
        answer = await self._find(each.object_id for each in rows)
        now = {each.object_id for each in answer.objects if each.state == _COMMITTED}
        return [each for each in rows if each.object_id in now or each.object_id in self._given_up]

    async def _find(self, object_ids: Iterable[int]) -> pb.FindObjectsResponse:
        request = pb.FindObjectsRequest(object_ids=object_ids)
        answer = await self._tier.call(request, pb.FindObjectsResponse, timeout_s=self._timeout_s)
        if answer.tier_url and answer.tier_url != self._tier_url:  # empty: of an earlier program
            raise PreconditionFailed("the tier got another URL while this was running: run it again")
        return answer

    def _note(self, found: ScrubFinding) -> ScrubFinding:
        self.counts.found[found.kind] += 1
        return found


def _object_id(info: ObjectInfo) -> int:
    """Return the id in an object's key; 0: the key is not an object's."""
    found = object_of_key(info.key)
    return found if found is not None and found < 1 << 63 else 0


def _with_done(found: ScrubFinding, done: str) -> ScrubFinding:
    return ScrubFinding(found.kind, found.key, found.object_id, found.size_bytes, found.detail, done)


async def _on_a_thread(work: Callable[[], _Result]) -> _Result:
    return await asyncio.to_thread(work)
