"""The objects of the tier walks: keys from the placement driver, contents in a store that is a dictionary."""

from __future__ import annotations

from rangelog_proto.v1 import common_pb2, pd_pb2, pd_state_pb2
from tests.model import tier_state as t
from tests.model.conformance_driver import Driver

END = 2
TTL_MS = 60_000
RIGHT, WRONG = b"what was sent", b"something else"
DIGEST = "sha256:" + "ab" * 32
_STATES = {
    t.IS_PREPARED: common_pb2.OBJECT_STATE_PREPARED,
    t.COMMITTED: common_pb2.OBJECT_STATE_COMMITTED,
    t.GIVEN_UP: common_pb2.OBJECT_STATE_DELETED,
    t.TRIMMED_AWAY: common_pb2.OBJECT_STATE_DELETED,
}


class Objects:
    """Numbered as the model does: in the order of their keys."""

    def __init__(self, driver: Driver, spans: int) -> None:
        self._driver = driver
        self._spans = spans
        self._ids: list[int] = []
        self._keys: list[str] = []
        self._store: dict[str, bytes] = {}

    def border(self, span: int) -> int:
        """Where a span begins."""
        return span * END // self._spans

    def key(self, item: int) -> str:
        """Return an object's key."""
        return self._keys[item]

    def content(self, item: int) -> bytes | None:
        """What the store holds under an object's key."""
        return self._store.get(self._keys[item])

    def pass_deadlines(self) -> None:
        """Every upload at hand is out of time."""
        self._driver.wall_ms += TTL_MS + 1

    def prepare(self, server: common_pb2.Replica, spoiled: int) -> int:
        """Ask for a key; `spoiled`: the number, from 1, of an object of its own that cannot be used. Raises as the driver."""
        found = self._driver.machine.state.range(1, 0)
        span = next(n for n in range(self._spans + 1) if self.border(n) == found.tiered_end_offset)
        request = pd_pb2.PrepareObjectRequest(
            stream_id=1,
            range_index=0,
            start_offset=self.border(span),
            end_offset=self.border(span + 1),
            server=server.server,
            incarnation=server.incarnation,
            spoiled_object_id=self._ids[spoiled - 1] if spoiled else 0,
        )
        timed = pd_state_pb2.TimedPrepareObject(request=request, deadline_ms=self._driver.wall_ms + TTL_MS)
        given = self._driver.do(pd_pb2.PrepareObjectResponse, prepare_object=timed).object
        if given.object_id not in self._ids:
            assert given.key not in self._keys, "a key is never handed out twice"
            self._ids.append(given.object_id)
            self._keys.append(given.key)
        return self._ids.index(given.object_id)

    def put(self, item: int, *, wrong: bool = False) -> None:
        """Store it, unless there is something already."""
        self._store.setdefault(self._keys[item], WRONG if wrong else RIGHT)

    def difference(self, item: int) -> bool:
        """Whether something else is stored than what was sent."""
        return self._store[self._keys[item]] != RIGHT

    def commit(self, item: int, server: common_pb2.Replica) -> None:
        """Say that it is stored and verified. Raises as the driver."""
        request = pd_pb2.CommitObjectRequest(
            object_id=self._ids[item],
            server=server.server,
            incarnation=server.incarnation,
            size_bytes=len(RIGHT),
            digest=DIGEST,
            epoch=1,
        )
        self._driver.do(pd_pb2.CommitObjectResponse, commit_object=request)

    def give_up(self, item: int) -> None:
        """The driver abandons an upload."""
        command = pd_state_pb2.AbandonObject(object_id=self._ids[item])
        self._driver.do(pd_pb2.ListTasksResponse, abandon_object=command)

    def give_up_all_of(self, server: str, incarnation: int) -> None:
        """Those of a server that is gone."""
        for item, object_id in enumerate(self._ids):
            found = self._driver.machine.state.objects.get(object_id)
            if found is not None and (found.server, found.incarnation) == (server, incarnation):
                self.give_up(item)

    def delete(self, item: int) -> None:
        """Remove it from the store."""
        self._store.pop(self._keys[item], None)

    def collect(self, item: int) -> None:
        """The driver forgets it."""
        command = pd_state_pb2.CollectObjects(object_ids=[self._ids[item]])
        self._driver.do(pd_pb2.ListTasksResponse, collect_objects=command)

    def compare(self, item: int, state: int, content: int, to_delete: set[str]) -> None:
        """Assert that the driver and the store have of it what the model has."""
        if state == t.UNUSED:
            assert item >= len(self._ids)
            return
        held = {t.NOTHING: None, t.RIGHT: RIGHT, t.WRONG: WRONG}[content]
        assert self.content(item) == held, f"what is stored of o{item}"
        found = self._driver.machine.state.objects.get(self._ids[item])
        assert (found.state if found is not None else None) == _STATES.get(state), f"the state of o{item}"
        if state in (t.IS_PREPARED, t.COMMITTED):
            assert self._keys[item] not in to_delete, f"o{item} would be deleted"
