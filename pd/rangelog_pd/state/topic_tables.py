"""The tables of namespaces, topics, shards and unfinished work, with their indexes.

What holds: every index follows from the rows. A page of topics, of current shards or of changed shards costs what it
contains, however many there are.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable

from rangelog_core.errors import TopicNotFound
from rangelog_core.key_ranges import KeyRange, key_range_from_bytes
from rangelog_core.name_errors import no_namespace, no_shard, no_topic
from rangelog_pd.state.indexes import Names
from rangelog_pd.state.tables import Hook, ShardKey, Table, mark, row_of
from rangelog_pd.state.tag_index import TagIndex
from rangelog_proto.v1 import topic_pb2

_DELETING = topic_pb2.TOPIC_STATE_DELETING
_OWNERS_GO_ON = (topic_pb2.TOPIC_STATE_SCALING, topic_pb2.TOPIC_STATE_SEALING)


def full_name(namespace: str, name: str) -> str:
    """Return the name under which a topic is found: neither part can contain the separator."""
    return f"{namespace}/{name}"


def key_range_of(shard: topic_pb2.Shard) -> KeyRange:
    """Return the keys of a shard."""
    return key_range_from_bytes(shard.key_range.low, shard.key_range.high)


class ShardMap:
    """The shards of one topic in each order in which they are listed."""

    def __init__(self) -> None:
        self.ids: dict[int, None] = {}
        """All shards, in order of id."""
        self.current: list[tuple[bytes, int]] = []
        """(first key, id) of the current shards, in order of keys."""
        self.changed: list[tuple[int, int]] = []
        """(map version in which it became current or ended, id) of all shards, in order."""

    def changed_since(self, map_version: int, after: tuple[int, int], size: int) -> list[tuple[int, int]]:
        """Return up to `size` entries of `changed` above a map version, behind the entry `after`."""
        first = bisect_right(self.changed, max(after, (map_version + 1, -1)))
        return self.changed[first : first + size]

    def current_behind(self, first_key: bytes, size: int) -> list[int]:
        """Return up to `size` current shards in order of keys, those whose first key is above; no bytes: from the first."""
        first = bisect_left(self.current, (first_key + b"\0", 0)) if first_key else 0
        return [shard_id for _, shard_id in self.current[first : first + size]]


class ShardMaps:
    """The shard maps of all topics."""

    def __init__(self) -> None:
        self._maps: dict[int, ShardMap] = {}

    def of(self, topic_id: int) -> ShardMap:
        """Return the shard map of a topic; an empty one for a topic without shards. Callers must not change it."""
        return self._maps.get(topic_id) or ShardMap()

    def all(self) -> dict[int, tuple[list[int], list[tuple[bytes, int]], list[tuple[int, int]]]]:
        """Return all, for comparison."""
        return {topic_id: (list(each.ids), each.current, each.changed) for topic_id, each in self._maps.items()}

    def changed(self, before: topic_pb2.Shard | None, after: topic_pb2.Shard | None) -> None:
        """A row of the shards changed."""
        row = row_of(before, after)
        found = self._maps.get(row.topic_id)
        if found is None:
            found = self._maps[row.topic_id] = ShardMap()
        if before is not None:
            _remove(found.changed, _change_of(before))
            if not before.ended_version:
                _remove(found.current, (before.key_range.low, before.shard_id))
        if after is not None:
            found.ids[after.shard_id] = None
            insort(found.changed, _change_of(after))
            if not after.ended_version:
                insort(found.current, (after.key_range.low, after.shard_id))
            return
        found.ids.pop(row.shard_id, None)
        if not found.ids:
            del self._maps[row.topic_id]


class TopicTables:
    """All rows about topics."""

    def __init__(self, note: Hook[topic_pb2.Topic | topic_pb2.Shard], *shard_hooks: Hook[topic_pb2.Shard]) -> None:
        """`note`: the hook that notes changes for followers; `shard_hooks`: those of other tables' indexes."""
        self.next_topic_id = 1
        self.names: Names[topic_pb2.Topic] = Names(_full_name_of, _topic_id_of)
        self.namespace_names: Names[topic_pb2.Namespace] = Names(_namespace_of, _no_id)
        self.tags = TagIndex(_full_name_of)
        self.maps = ShardMaps()
        self.unfinished: dict[int, None] = {}
        """Topics of which some shards are still to be trimmed, configured or deleted: the leader goes on with them."""
        self.changing: dict[int, None] = {}
        """The same, and the topics that are scaled or sealed: owners of shards go on with these."""
        self.plans: dict[int, None] = {}
        """Topics that are being scaled."""
        self.retained: dict[int, None] = {}
        """Topics with a retention."""
        self.namespaces: Table[str, topic_pb2.Namespace] = Table(self.namespace_names.changed)
        self.topics: Table[int, topic_pb2.Topic] = Table(
            self.names.changed, self.tags.changed, self._topic_changed, note
        )
        self.shards: Table[ShardKey, topic_pb2.Shard] = Table(self.maps.changed, *shard_hooks, note)
        self.work: Table[int, topic_pb2.TopicWork] = Table(self._work_changed)

    # ---- finding

    def namespace(self, name: str) -> topic_pb2.Namespace:
        """Return a namespace. Raises NamespaceNotFound."""
        found = self.namespaces.find(name)
        if found is None:
            raise no_namespace(name)
        return found

    def topic(self, topic_id: int) -> topic_pb2.Topic:
        """Return a topic by id. Raises TopicNotFound."""
        found = self.topics.find(topic_id)
        if found is None:
            raise TopicNotFound(f"no topic with id {topic_id}: it was deleted, or never was")
        return found

    def referred(self, reference: topic_pb2.TopicReference) -> topic_pb2.Topic:
        """Return a topic by id, or by namespace and name. Raises TopicNotFound."""
        if reference.topic_id:
            return self.topic(reference.topic_id)
        topic_id = self.names.get(full_name(reference.namespace, reference.name))
        if topic_id is None:
            raise no_topic(full_name(reference.namespace, reference.name))
        return self.topics[topic_id]

    def shard(self, topic_id: int, shard_id: int) -> topic_pb2.Shard:
        """Return a shard. Raises ShardNotFound."""
        found = self.shards.find((topic_id, shard_id))
        if found is None:
            topic = self.topics.find(topic_id)
            raise no_shard(_full_name_of(topic) if topic is not None else str(topic_id), shard_id)
        return found

    # ---- changing

    def put_topic(self, changed: topic_pb2.Topic) -> None:
        """Insert or replace a topic, under its next version."""
        changed.version += 1
        self.topics.put(changed.topic_id, changed)

    def put_shard(self, changed: topic_pb2.Shard) -> None:
        """Insert or replace a shard."""
        self.shards.put((changed.topic_id, changed.shard_id), changed)

    def put_work(self, changed: topic_pb2.TopicWork) -> None:
        """Replace a topic's work; a row without work is removed."""
        if changed.HasField("scale") or changed.to_trim or changed.HasField("configure_from"):
            self.work.put(changed.topic_id, changed)
        else:
            self.work.remove(changed.topic_id)

    def work_of(self, topic_id: int) -> topic_pb2.TopicWork:
        """Return a topic's work as a copy, for a change and `put_work`."""
        return self.work.copy(topic_id) if topic_id in self.work else topic_pb2.TopicWork(topic_id=topic_id)

    def load(
        self,
        namespaces: Iterable[topic_pb2.Namespace],
        topics: Iterable[topic_pb2.Topic],
        shards: Iterable[topic_pb2.Shard],
        work: Iterable[topic_pb2.TopicWork],
    ) -> None:
        """Put all rows of a snapshot as they are."""
        for namespace in namespaces:
            self.namespaces.put(namespace.name, namespace)
        for topic in topics:
            self.topics.put(topic.topic_id, topic)
        for shard in shards:
            self.put_shard(shard)
        for each in work:
            self.work.put(each.topic_id, each)

    # ---- indexes

    def _topic_changed(self, before: topic_pb2.Topic | None, after: topic_pb2.Topic | None) -> None:
        topic_id = row_of(before, after).topic_id
        self._note_work(topic_id)
        retention = after.config.retention if after is not None and after.state != _DELETING else None
        retains = retention is not None and (retention.age_ms or retention.shard_size_bytes or retention.consumed)
        mark(self.retained, topic_id, present=bool(retains))

    def _work_changed(self, before: topic_pb2.TopicWork | None, after: topic_pb2.TopicWork | None) -> None:
        topic_id = row_of(before, after).topic_id
        self._note_work(topic_id)
        mark(self.plans, topic_id, present=after is not None and after.HasField("scale"))

    def _note_work(self, topic_id: int) -> None:
        topic, work = self.topics.find(topic_id), self.work.find(topic_id)
        to_do = work is not None and (bool(work.to_trim) or work.HasField("configure_from"))
        unfinished = topic is not None and (topic.state == _DELETING or to_do)
        mark(self.unfinished, topic_id, present=unfinished)
        changing = unfinished or (topic is not None and topic.state in _OWNERS_GO_ON)
        mark(self.changing, topic_id, present=changing)

    def indexes(self) -> list[object]:
        """Return all indexes, for comparison."""
        names = [self.names.ids(), self.namespace_names.ids()]
        rows = [self.unfinished, self.changing, self.plans, self.retained]
        return [*names, self.tags.all(), self.maps.all(), *rows]


def _remove(
    entries: list[tuple[bytes, int]] | list[tuple[int, int]], entry: tuple[bytes, int] | tuple[int, int]
) -> None:
    del entries[bisect_left(entries, entry)]  # type: ignore[type-var]


def _change_of(shard: topic_pb2.Shard) -> tuple[int, int]:
    return max(shard.created_version, shard.ended_version), shard.shard_id


def _full_name_of(topic: topic_pb2.Topic) -> str:
    return full_name(topic.namespace, topic.name)


def _topic_id_of(topic: topic_pb2.Topic) -> int:
    return topic.topic_id


def _namespace_of(namespace: topic_pb2.Namespace) -> str:
    return namespace.name


def _no_id(namespace: topic_pb2.Namespace) -> int:
    return 0
