"""Administration of topics: `client.topics`."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from typing import Literal

from rangelog._arguments import checked_arguments
from rangelog._metadata import CALL_TIMEOUT_S, Metadata, backoff
from rangelog._topics.cut import Cut
from rangelog._topics.cuts import CutFinder, ShardReaders
from rangelog._topics.messages import topic_config_message, topic_info
from rangelog._topics.time_windows import TimeWindows
from rangelog._topics.topic_calls import TopicCalls, by_id, by_name
from rangelog._topics.values import ShardInfo, TopicConfig, TopicConfigChange, TopicInfo, Watermark
from rangelog._topics.watches import TopicShards, topic_shards
from rangelog._topics.watermark_calls import JournalCaller, WatermarkCalls
from rangelog_core.errors import (
    InvalidArgument,
    NamespaceExists,
    NamespaceNotFound,
    PreconditionFailed,
    RequestTimeout,
    ShardEnded,
    StreamNotFound,
    TopicExists,
    TopicNotFound,
    Unavailable,
)
from rangelog_core.ids import check_name
from rangelog_core.key_ranges import KeyRange, check_tiling, equal_key_ranges
from rangelog_core.limits import COMMAND_SHARDS_MAX
from rangelog_core.name_errors import no_shard
from rangelog_core.net.data_connection import DataConnections
from rangelog_core.record import ms_of
from rangelog_core.topic_kinds import check_kind
from rangelog_core.topic_names import DEFAULT_NAMESPACE, TopicName, parse_topic_name
from rangelog_proto.v1 import topic_pb2 as pb

CutPlace = Literal["head", "tail"] | datetime
Shards = int | Sequence[KeyRange]

SCALE_TIMEOUT_S = 60.0
DEFAULT_TOPIC_CONFIG = TopicConfig()
NO_TAGS: Mapping[str, str] = {}
"""Nobody changes it."""


@checked_arguments
class Topics:
    """The topics of a cluster: `client.topics`.

    A topic's name is "namespace/name"; a bare name is in the namespace "default". Every method may raise InvalidArgument for a
    bad name, Unauthorized, Unavailable and RequestTimeout. Times are in seconds.

    Example:
        ```python
        await client.topics.create("flights", shards=4)
        async for topic in client.topics.list():
            print(topic.name, topic.shard_count)
        ```
    """

    def __init__(
        self,
        metadata: Metadata,
        connections: DataConnections,
        shard_readers: ShardReaders,
        owner_calls: JournalCaller | None = None,
    ) -> None:
        self._metadata = metadata
        self._connections = connections
        self._shard_readers = shard_readers
        self._calls = TopicCalls(metadata.pd)
        self._watermark_calls = WatermarkCalls(owner_calls) if owner_calls is not None else None

    # ---- namespaces

    async def create_namespace(self, name: str, *, exist_ok: bool = False, timeout_s: float = CALL_TIMEOUT_S) -> None:
        """Create a namespace; with `exist_ok` it may exist already. Raises NamespaceExists, OutcomeUnknown."""
        try:
            await self._calls.create_namespace(check_name("namespace", name), timeout_s)
        except NamespaceExists:
            if not exist_ok:
                raise

    async def delete_namespace(self, name: str, *, timeout_s: float = CALL_TIMEOUT_S) -> None:
        """Delete an empty namespace. Raises NamespaceNotFound, PreconditionFailed (it has topics), OutcomeUnknown."""
        await self._calls.delete_namespace(check_name("namespace", name), timeout_s)

    def namespaces(self, prefix: str = "", *, after: str = "") -> AsyncIterator[str]:
        """Yield the names of the namespaces that start with `prefix` and come after `after`, in order."""
        return self._calls.namespaces(prefix, after)

    # ---- topics

    async def create(
        self,
        name: str,
        config: TopicConfig = DEFAULT_TOPIC_CONFIG,
        *,
        shards: int | Sequence[KeyRange] = 1,
        tags: Mapping[str, str] = NO_TAGS,
        exist_ok: bool = False,
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> TopicInfo:
        """Create a topic. The namespace must exist; the namespace "default" is created where it is missing.

        Args:
            name: "namespace/name", or a name in the namespace "default".
            config: The topic's configuration.
            shards: The number of shards, which divide the key space equally; or their key ranges, which tile it.
            tags: Up to 50 names and values for `list`.
            exist_ok: Return the topic as it is where one with this name exists, whatever its configuration and shards.
            timeout_s: Limit in seconds.

        Raises:
            TopicExists: A topic with this name exists, or is still being deleted.
            NamespaceNotFound: The namespace does not exist.
            KeyRangeGap, KeyRangeOverlap: The key ranges do not tile the key space.
            InvalidArgument: The name, a tag or the configuration is not valid.
            OutcomeUnknown: The topic may or may not have been created.

        Example:
            ```python
            await client.topics.create("air/flights", TopicConfig(retention=Retention(age_seconds=86_400)), shards=4)
            ```
        """
        parsed = parse_topic_name(name)
        message, _ = topic_config_message(config)
        _check_shards(shards)
        try:
            return await self._create(parsed, message, tags, shards, exist_ok=exist_ok, timeout_s=timeout_s)
        except NamespaceNotFound:
            if parsed.namespace != DEFAULT_NAMESPACE:
                raise
            await self.create_namespace(DEFAULT_NAMESPACE, exist_ok=True, timeout_s=timeout_s)  # another may be faster
            return await self._create(parsed, message, tags, shards, exist_ok=exist_ok, timeout_s=timeout_s)

    async def _create(
        self,
        parsed: TopicName,
        message: pb.TopicConfig,
        tags: Mapping[str, str],
        shards: Shards,
        *,
        exist_ok: bool,
        timeout_s: float,
    ) -> TopicInfo:
        try:
            return topic_info(await self._calls.create(parsed, message, tags, shards, timeout_s))
        except TopicExists:
            if not exist_ok:
                raise
            topic, _ = await self._calls.describe(by_name(parsed), timeout_s)
            return topic_info(topic)

    async def describe(self, name: str, *, timeout_s: float = CALL_TIMEOUT_S) -> TopicInfo:
        """Return the current state of a topic. Raises TopicNotFound, Unavailable."""
        topic, _ = await self._calls.describe(by_name(parse_topic_name(name)), timeout_s)
        return topic_info(topic)

    async def list(
        self,
        *,
        namespace: str = "",
        prefix: str = "",
        tags: Mapping[str, str] = NO_TAGS,
        after: str = "",
        include_tables: bool = False,
    ) -> AsyncIterator[TopicInfo]:
        """Yield topics, by namespace and name.

        Args:
            namespace: Those of this namespace only.
            prefix: Those whose names in the namespace start so; with a namespace only.
            tags: Those that have all of these tags.
            after: Those that come after this name: "namespace/name", or a bare one.
            include_tables: Tables, too, which share names with topics; their `kind` is "table". See `client.tables.list`.
        """
        if namespace:
            check_name("namespace", namespace)
        elif prefix:
            raise InvalidArgument("a prefix of topics' names goes with a namespace")
        last = str(parse_topic_name(after)) if after else ""
        async for topic in self._calls.topics(namespace, prefix, tags, last):
            found = topic_info(topic)
            if include_tables or found.kind != "table":
                yield found

    async def update(
        self,
        name: str,
        change: TopicConfigChange | None = None,
        *,
        set_tags: Mapping[str, str] = NO_TAGS,
        remove_tags: Sequence[str] = (),
        expected_version: int | None = None,
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> TopicInfo:
        """Change a topic's configuration and tags; return the topic after the change.

        Args:
            name: The topic.
            change: The parts of the configuration to change.
            set_tags: Tags to set.
            remove_tags: Names of tags to remove.
            expected_version: Change nothing if the topic has another `version`.
            timeout_s: Limit in seconds.

        Raises:
            TopicNotFound: The topic does not exist.
            TopicStateForbids: The topic is being deleted.
            PreconditionFailed: The topic has another version.
            InvalidArgument: The change is empty or not valid.
            OutcomeUnknown: The change may or may not have been made.
        """
        message, fields = topic_config_message(change if change is not None else TopicConfigChange())
        if not (fields or set_tags or remove_tags):
            raise InvalidArgument("the change gives nothing: set at least one field or tag")
        request = pb.UpdateTopicRequest(
            topic=by_name(parse_topic_name(name)),
            config=message,
            fields=fields,
            set_tags=set_tags,
            remove_tags=remove_tags,
            expected_version=expected_version or 0,
        )
        return topic_info(await self._calls.update(request, timeout_s))

    async def seal(
        self, name: str, *, expected_version: int | None = None, timeout_s: float = CALL_TIMEOUT_S
    ) -> TopicInfo:
        """Start to seal a topic: its shards' owners end them, then it is "sealed" and takes no record any more.

        Open transactions with records in it are aborted; the records of committed ones are there before it is sealed.

        Raises TopicNotFound, TopicKindForbids (it is a table), TopicStateForbids, PreconditionFailed (another version),
        OutcomeUnknown.
        """
        reference = by_name(parse_topic_name(name))
        return topic_info(await self._calls.seal(reference, expected_version or 0, timeout_s))

    async def delete(
        self,
        name: str,
        *,
        force: bool = False,
        expected_version: int | None = None,
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> None:
        """Delete a sealed topic with all its records; with `force`, any topic.

        Readers get no record of it any more. A large topic is deleted in parts; its name is free after the last one. With
        `force` a producer may still get acks until the range servers have learned of the deletion.

        Raises TopicNotFound, TopicKindForbids (it is a table: `client.tables.delete`), TopicStateForbids (it is not sealed),
        PreconditionFailed (another version), OutcomeUnknown.
        """
        topic, _ = await self._calls.describe(by_name(parse_topic_name(name)), timeout_s)
        reference = by_id(check_kind(topic, pb.TOPIC_KIND_RECORDS).topic_id)
        await self._calls.delete(reference, force=force, expected_version=expected_version or 0, timeout_s=timeout_s)

    async def truncate(self, name: str, cut: Cut, *, timeout_s: float = CALL_TIMEOUT_S) -> TopicInfo:
        """Remove all records before a cut: of its shards those below its offsets, and all of the shards that precede them.

        A large topic is "truncating" for a while after the return.

        Raises:
            TopicNotFound: The topic does not exist.
            TopicKindForbids: It is a table.
            TopicStateForbids: The topic is being scaled, sealed, truncated or deleted.
            InvalidArgument: The cut is not one of this topic.
            OffsetOutOfRange: Beyond the sealed ranges of a shard; `offset` is their end.
            OutcomeUnknown: The topic may or may not have been truncated.
        """
        known = await self.shard_map(name)
        check_topic_of(cut, name, known)
        return topic_info(await self._calls.truncate(known.topic_id, cut.offsets, timeout_s))

    # ---- shards

    async def shards(self, name: str, *, include_ended: bool = False) -> Sequence[ShardInfo]:
        """Return the current shards of a topic in order of keys; or all that it ever had, in order of id.

        Raises TopicNotFound, Unavailable.
        """
        selection = pb.SHARD_SELECTION_ALL if include_ended else pb.SHARD_SELECTION_CURRENT
        return (await self._calls.shards(by_name(parse_topic_name(name)), selection)).shards

    async def shard_map(self, name: str) -> TopicShards:
        """Return all shards of a topic of records, of one map version. For the package's own use."""
        listed = await self._calls.shards(by_name(parse_topic_name(name)), pb.SHARD_SELECTION_ALL)
        check_kind(listed.topic, pb.TOPIC_KIND_RECORDS)
        return topic_shards(listed)

    async def cut(self, name: str, place: Literal["head", "tail"] | datetime) -> Cut:
        """Return a cut of a topic.

        Args:
            name: The topic.
            place: "head": before the first records that are not trimmed. "tail": behind the records that are acked; with a
                silent replica the most recent acks may be missing. A time: at the first record of each shard at or after it;
                no record at or after the time lies before the cut.

        Raises:
            TopicNotFound: The topic does not exist.
            TopicKindForbids: It is a table.
            InvalidArgument: `place` is not valid.

        Example:
            ```python
            print((await client.topics.cut("flights", "tail")).to_json())
            ```
        """
        _check_place(place)
        return await self.cut_in(await self.shard_map(name), place)

    async def cut_in(self, known: TopicShards, place: CutPlace) -> Cut:
        """Return a cut of a topic whose shard map is known. For the package's own use."""
        finder = CutFinder(
            self._metadata, self._connections, self._shard_readers, known.topic_id, known.shards.values()
        )
        try:
            if isinstance(place, datetime):
                return Cut(known.topic_id, await finder.at_time(place))
            return Cut(known.topic_id, await (finder.head() if place == "head" else finder.tail()))
        except StreamNotFound as error:
            raise TopicNotFound(f"the topic with id {known.topic_id} was deleted") from error

    async def watermarks(
        self, name: str, *, since: datetime | None = None, timeout_s: float = CALL_TIMEOUT_S
    ) -> AsyncIterator[Watermark]:
        """Yield the watermarks of a topic that are kept, in order.

        Args:
            name: The topic.
            since: From the last watermark on whose lower time is this one or an earlier one.
            timeout_s: Limit in seconds.

        Raises:
            TopicNotFound: The topic does not exist.
            TopicKindForbids: It is a table.
            Unavailable: No broker answers.

        Example:
            ```python
            async for mark in client.topics.watermarks("flights"):
                print(mark.lower_ms, mark.upper_ms, mark.cut.to_json())
            ```
        """
        topic, _ = await self._calls.describe(by_name(parse_topic_name(name)), timeout_s)
        check_kind(topic, pb.TOPIC_KIND_RECORDS)
        from_ms = ms_of(since) if since is not None else None
        for mark in await self._marks().list(topic.topic_id, 0, from_ms, timeout_s):
            yield mark

    def _time_windows(self, topic_id: int) -> TimeWindows:
        """Return what finds the windows of event times of one topic. For the package's own use."""
        calls = self._marks()

        async def list_after(number: int) -> Sequence[Watermark]:
            return await calls.list(topic_id, number, None, CALL_TIMEOUT_S)

        async def shard_map() -> TopicShards:
            return topic_shards(await self._calls.shards(by_id(topic_id), pb.SHARD_SELECTION_ALL))

        return TimeWindows(list_after, shard_map)

    def _marks(self) -> WatermarkCalls:
        if self._watermark_calls is None:
            raise Unavailable("this client calls no brokers")
        return self._watermark_calls

    async def scale(
        self,
        name: str,
        parents: Sequence[int],
        key_ranges: int | Sequence[KeyRange],
        *,
        timeout_s: float = SCALE_TIMEOUT_S,
    ) -> Sequence[ShardInfo]:
        """Replace some shards by others, and wait until that is committed: a split, a merge, or any other division.

        Args:
            name: The topic.
            parents: The ids of the current shards that end.
            key_ranges: The key ranges of the shards that follow, which tile those of the parents; or their number: then they
                divide the keys of the parents, which are neighbours, equally.
            timeout_s: Limit in seconds. After it the plan stays: the scale may still be committed. See `cancel_scale`.

        Returns:
            The new shards, in order of keys.

        Raises:
            TopicNotFound: The topic does not exist.
            ShardNotFound, ShardEnded: A parent is not a current shard.
            TopicStateForbids: The topic is being scaled, truncated, sealed or deleted.
            KeyRangeGap, KeyRangeOverlap, InvalidArgument: The key ranges do not tile those of the parents.
            StaleMapVersion: Another scale was faster.
            PreconditionFailed: The scale was cancelled.
            RequestTimeout: It is not committed in time.
            OutcomeUnknown: The scale may or may not have been started.

        Example:
            ```python
            left, right = await client.topics.scale("flights", [0], 2)
            (both,) = await client.topics.scale("flights", [left.shard_id, right.shard_id], 1)
            ```
        """
        deadline = time.monotonic() + timeout_s
        _check_shards(key_ranges)
        listed = await self._calls.shards(by_name(parse_topic_name(name)), pb.SHARD_SELECTION_ALL)
        known = {shard.shard_id: shard for shard in listed.shards}
        full_name = str(parse_topic_name(name))
        wanted = _divided([_current(known, full_name, each).key_range for each in parents], key_ranges)
        topic = await self._calls.start_scale(listed.topic, parents, wanted, _left_s(deadline))
        scale_id = topic.scale_id
        attempt = 0
        while topic.committed_scale_id < scale_id:
            if topic.state != pb.TOPIC_STATE_SCALING or topic.scale_id != scale_id:
                raise PreconditionFailed(f"the scale {scale_id} of topic {name!r} was cancelled")
            if time.monotonic() >= deadline:
                raise RequestTimeout(
                    f"the scale {scale_id} of topic {name!r} is not committed within {timeout_s:g} s; it goes on: "
                    "wait for it, or cancel it"
                )
            await backoff(attempt)
            attempt += 1
            topic, _ = await self._calls.describe(by_id(topic.topic_id), _left_s(deadline))
        return await self._followers(topic.topic_id, parents, wanted, scale_id)

    async def cancel_scale(self, name: str, *, timeout_s: float = CALL_TIMEOUT_S) -> TopicInfo:
        """Drop the plan of the scale that is not committed yet. Raises TopicNotFound, TopicStateForbids (there is none)."""
        topic, _ = await self._calls.describe(by_name(parse_topic_name(name)), timeout_s)
        return topic_info(await self._calls.cancel_scale(topic.topic_id, topic.scale_id, timeout_s))

    # ---- inside

    async def _followers(
        self, topic_id: int, parents: Sequence[int], wanted: Sequence[KeyRange], scale_id: int
    ) -> Sequence[ShardInfo]:
        """Return the shards that a committed scale made current."""
        listed = await self._calls.shards(by_id(topic_id), pb.SHARD_SELECTION_ALL)
        shards = {shard.shard_id: shard for shard in listed.shards}
        ids = {each for parent in parents for each in shards[parent].successors}
        found = sorted((shards[each] for each in ids), key=lambda shard: shard.key_range)
        if [shard.key_range for shard in found] != list(wanted):  # a later scale was committed in its place
            raise PreconditionFailed(f"the scale {scale_id} was cancelled, and another one was committed since")
        return found


def check_topic_of(cut: Cut, name: str, known: TopicShards) -> None:
    """Raise InvalidArgument for a cut of another topic."""
    if not isinstance(cut, Cut):
        raise InvalidArgument(f"a position in a topic is a Cut, not {cut!r}")
    if cut.topic_id != known.topic_id:
        raise InvalidArgument(f"the cut is of topic {cut.topic_id}; {name!r} is {known.topic_id}: it was created anew?")


def _check_place(place: object) -> None:
    if not isinstance(place, datetime) and place not in ("head", "tail"):
        raise InvalidArgument(f"bad place of a cut {place!r}: 'head', 'tail' or a datetime")


def _check_shards(shards: Shards) -> None:
    """Refuse what cannot be a number of shards or their key ranges, before anything is made of it."""
    if isinstance(shards, bool) or not isinstance(shards, int | Sequence) or isinstance(shards, str | bytes):
        raise InvalidArgument(f"shards are a number or a sequence of KeyRange, not {shards!r}")
    count = shards if isinstance(shards, int) else len(shards)
    if not 1 <= count <= COMMAND_SHARDS_MAX:
        raise InvalidArgument(f"one command creates 1 to {COMMAND_SHARDS_MAX} shards, not {count}")
    if not isinstance(shards, int) and not all(isinstance(each, KeyRange) for each in shards):
        raise InvalidArgument("shards are given as a number or as KeyRange values")


def _current(known: Mapping[int, ShardInfo], topic: str, shard_id: int) -> ShardInfo:
    """Return a current shard. Raises ShardNotFound, ShardEnded."""
    if shard_id not in known:
        raise no_shard(topic, shard_id)
    if not known[shard_id].is_current:
        raise ShardEnded(f"shard {shard_id} has ended: its successors are {list(known[shard_id].successors)}")
    return known[shard_id]


def _divided(cover: Sequence[KeyRange], key_ranges: int | Sequence[KeyRange]) -> Sequence[KeyRange]:
    """Return the key ranges of a scale, in order of keys. Raises KeyRangeGap, KeyRangeOverlap, InvalidArgument."""
    if not cover:
        raise InvalidArgument("a scale names at least one parent")
    if not isinstance(key_ranges, int):
        return check_tiling(key_ranges, cover)
    whole = KeyRange(min(each.low for each in cover), max(each.high for each in cover))
    check_tiling(cover, [whole])
    return equal_key_ranges(key_ranges, whole)


def _left_s(deadline: float) -> float:
    return max(1.0, deadline - time.monotonic())
