"""The state as a snapshot: a list of sections, encoded one at a time from rows that no longer change.

What holds: `freeze` takes as long as listing the rows; its result can be encoded on another thread while commands are
applied. A section is small, so other threads wait only shortly for the interpreter. A snapshot that is incomplete, or of a
newer program, changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

from google.protobuf.message import DecodeError, Message

from rangelog_core.errors import Corruption, UnsupportedVersion
from rangelog_core.state_sections import MAGIC, SECTION_VERSION, framed, sections
from rangelog_pd.state.results import Results
from rangelog_pd.state.store import State
from rangelog_proto.v1 import (
    audit_pb2,
    broker_pb2,
    common_pb2,
    cursor_pb2,
    pd_state_pb2,
    quotas_pb2,
    rights_pb2,
    tier_pb2,
    tokens_pb2,
    topic_pb2,
)
from rangelog_proto.v1.pd_state_pb2 import Section, SectionKind, SnapshotHeader, SnapshotRows

ROWS_PER_SECTION = 500
_ROWS_OF_LARGE = dict.fromkeys((pd_state_pb2.SECTION_KIND_RETENTION_CUTS, pd_state_pb2.SECTION_KIND_CONSUMED_CUTS), 20)
"""A cut of a topic of the largest size has 50 KiB."""

_ROWS: dict[str, Callable[[State], Sequence[Message]]] = {
    "streams": lambda state: state.streams.freeze(),
    "ranges": lambda state: state.ranges.freeze(),
    "objects": lambda state: state.objects.freeze(),
    "servers": lambda state: [*state.servers.freeze(), *state.removed.freeze()],
    "namespaces": lambda state: state.topics.namespaces.freeze(),
    "topics": lambda state: state.topics.topics.freeze(),
    "shards": lambda state: state.topics.shards.freeze(),
    "topic_work": lambda state: state.topics.work.freeze(),
    "brokers": lambda state: state.owners.brokers.freeze(),
    "assignments": lambda state: state.owners.assignments.freeze(),
    "retention_cuts": lambda state: state.cuts.cuts.freeze(),
    "consumed_cuts": lambda state: state.cuts.consumed.freeze(),
    "tier_stores": lambda state: state.tier_stores.freeze(),
    "cursors": lambda state: state.cursors.rows.freeze(),
    "access_rules": lambda state: state.rights.rules.freeze(),
    "audit_entries": lambda state: state.audit.pending.freeze(),
    "tokens": lambda state: state.tokens.tokens.freeze(),
    "token_keys": lambda state: state.tokens.keys.freeze(),
    "quotas": lambda state: state.quotas.quotas.freeze(),
}
"""The rows of each kind of section, in the order of a snapshot: the fields of SnapshotRows but for `results`."""
_FIELDS = {cast("SectionKind", SectionKind.Value(f"SECTION_KIND_{name.upper()}")): name for name in (*_ROWS, "results")}

_KEPT_VERSION_1 = 1


@dataclass(slots=True)
class Frozen:
    """The state at one index. Each iteration encodes it."""

    _header: SnapshotHeader
    _rows: Sequence[tuple[SectionKind, Sequence[Any], Callable[[Any], Message]]]

    def __iter__(self) -> Iterator[bytes]:
        yield MAGIC
        yield framed(pd_state_pb2.SECTION_KIND_HEADER, self._header.SerializeToString(deterministic=True))
        for kind, rows, encode in self._rows:
            count = min(ROWS_PER_SECTION, _ROWS_OF_LARGE.get(kind, ROWS_PER_SECTION))
            for first in range(0, len(rows), count):
                some: dict[str, Any] = {_FIELDS[kind]: [encode(row) for row in rows[first : first + count]]}
                yield framed(kind, SnapshotRows(**some).SerializeToString(deterministic=True))
        yield framed(pd_state_pb2.SECTION_KIND_END, b"")


def freeze(state: State, results: Results) -> Frozen:
    """Return the current rows. The caller must not apply a command meanwhile."""
    header = SnapshotHeader(
        cluster_id=state.cluster_id,
        cluster_version=state.cluster_version,
        time_ms=state.time_ms,
        next_stream_id=state.next_stream_id,
        next_object_id=state.next_object_id,
        next_topic_id=state.topics.next_topic_id,
        next_cursor_version=state.cursors.next_version if state.cursors.next_version > 1 else 0,
        restore=state.restore if state.restore.phase else None,
        lost_streams_from=state.lost_streams[0],
        lost_streams_to=state.lost_streams[1],
        rights_version=state.rights.version,
        rights_enforced=state.rights.enforced,
        audit=state.audit.row() if state.audit.stream_id else None,
        tokens_version=state.tokens.version,
        quotas_version=state.quotas.version,
        broker_version=state.owners.broker_version,
    )
    ages, kept = results.freeze()

    def kept_result(age: tuple[int, str]) -> Message:
        return pd_state_pb2.KeptResult(request_id=age[1], now_ms=age[0], result=kept[age[1]])

    return Frozen(
        header,
        [
            *((kind, _ROWS[name](state), _same) for kind, name in _FIELDS.items() if name in _ROWS),
            (pd_state_pb2.SECTION_KIND_RESULTS, ages, kept_result),
        ],
    )


def thaw(data: bytes, own_level: int) -> tuple[State, Results]:
    """Return the state in a snapshot. Raises Corruption, UnsupportedVersion."""
    if not data.startswith(MAGIC):
        return _thaw_level_1(data)
    header = SnapshotHeader()
    rows: dict[str, list[Any]] = {name: [] for name in _FIELDS.values()}
    try:
        for section in _known(data):
            if section.kind == pd_state_pb2.SECTION_KIND_HEADER:
                header = SnapshotHeader.FromString(section.rows)
            else:
                name = _FIELDS[section.kind]
                rows[name] += getattr(SnapshotRows.FromString(section.rows), name)
    except DecodeError as error:
        raise Corruption("the placement driver's snapshot cannot be read") from error
    if header.cluster_version > own_level:
        raise UnsupportedVersion(
            f"the snapshot is of cluster version {header.cluster_version}, and this placement driver has feature level "
            f"{own_level}: start it with the program that the other members run"
        )
    return _build(header, **rows)


def _known(data: bytes) -> Iterator[Section]:
    """Yield the sections. Raises Corruption, UnsupportedVersion."""
    for section in sections(data):
        known = section.kind in _FIELDS or section.kind == pd_state_pb2.SECTION_KIND_HEADER
        if not known or section.version > SECTION_VERSION:
            raise UnsupportedVersion(
                f"the snapshot has a section of kind {section.kind}, version {section.version}, which this placement "
                "driver does not know: start it with the program that the other members run"
            )
        yield section


def _thaw_level_1(data: bytes) -> tuple[State, Results]:
    try:
        snapshot = pd_state_pb2.StateSnapshot.FromString(data)
    except DecodeError as error:
        raise Corruption("the placement driver's snapshot cannot be read") from error
    if snapshot.version != _KEPT_VERSION_1:
        raise Corruption(f"a snapshot of version {snapshot.version}, which no program wrote")
    header = SnapshotHeader(
        cluster_id=snapshot.cluster_id,
        cluster_version=1,
        time_ms=snapshot.time_ms,
        next_stream_id=snapshot.next_stream_id,
        next_object_id=snapshot.next_object_id,
    )
    return _build(header, snapshot.streams, snapshot.ranges, snapshot.objects, snapshot.servers, snapshot.results)


def _build(
    header: SnapshotHeader,
    streams: Iterable[common_pb2.Stream],
    ranges: Sequence[common_pb2.Range],
    objects: Sequence[common_pb2.Object],
    servers: Iterable[pd_state_pb2.RegisteredServer],
    results: Sequence[pd_state_pb2.KeptResult],
    namespaces: Iterable[topic_pb2.Namespace] = (),
    topics: Iterable[topic_pb2.Topic] = (),
    shards: Sequence[topic_pb2.Shard] = (),
    topic_work: Iterable[topic_pb2.TopicWork] = (),
    brokers: Iterable[broker_pb2.Broker] = (),
    assignments: Iterable[broker_pb2.Assignment] = (),
    retention_cuts: Iterable[topic_pb2.RetentionCut] = (),
    consumed_cuts: Iterable[topic_pb2.ConsumedCut] = (),
    tier_stores: Iterable[tier_pb2.TierStore] = (),
    cursors: Sequence[cursor_pb2.Cursor] = (),
    access_rules: Iterable[rights_pb2.AccessRule] = (),
    audit_entries: Iterable[audit_pb2.AuditEntry] = (),
    tokens: Iterable[tokens_pb2.TokenRow] = (),
    token_keys: Iterable[tokens_pb2.TokenKey] = (),
    quotas: Iterable[quotas_pb2.Quota] = (),
) -> tuple[State, Results]:
    state = State()
    state.cluster_id = header.cluster_id
    state.cluster_version = max(header.cluster_version, state.cluster_version)
    state.next_stream_id, state.next_object_id = header.next_stream_id, header.next_object_id
    state.restore = header.restore
    state.lost_streams = (header.lost_streams_from, header.lost_streams_to)
    known = {stream.stream_id for stream in streams}
    for each in ranges:
        if each.stream_id not in known:
            raise Corruption(f"the snapshot has a range of stream {each.stream_id} but not the stream")
    for cursor in cursors:
        if cursor.stream_id not in known or cursor.version >= header.next_cursor_version:
            raise Corruption(f"the snapshot has a cursor of stream {cursor.stream_id} that does not fit the rest")
    state.load(streams, ranges, objects, servers)
    _load_topics(state, header, namespaces, topics, shards, topic_work)
    state.owners.load(brokers, assignments)
    state.cuts.load(retention_cuts, consumed_cuts)
    for store in tier_stores:
        if not store.first_object_id or not store.url:
            raise Corruption("the snapshot has a store of the tier without number or URL")
        state.tier_stores.put(store.first_object_id, store)
    state.cursors.load(cursors, header.next_cursor_version or 1)
    state.rights.load(access_rules, header.rights_version, enforced=header.rights_enforced)
    state.audit.load(header.audit, audit_entries)
    state.tokens.load(tokens, token_keys, header.tokens_version)
    state.quotas.load(quotas, header.quotas_version)
    state.owners.broker_version = header.broker_version
    latest = max((kept.now_ms for kept in results), default=0)
    state.time_ms = header.time_ms or max(latest, state.latest_date())
    return state, Results((kept.request_id, kept.now_ms, kept.result) for kept in results)


def _load_topics(
    state: State,
    header: SnapshotHeader,
    namespaces: Iterable[topic_pb2.Namespace],
    topics: Iterable[topic_pb2.Topic],
    shards: Sequence[topic_pb2.Shard],
    topic_work: Iterable[topic_pb2.TopicWork],
) -> None:
    known = {topic.topic_id for topic in topics}
    for shard in shards:
        if shard.topic_id not in known or shard.stream_id not in state.streams:
            raise Corruption(f"the snapshot has a shard of topic {shard.topic_id} but not its topic and stream")
    state.topics.next_topic_id = header.next_topic_id or 1
    state.topics.load(namespaces, topics, shards, topic_work)


def _same(row: Message) -> Message:
    return row
