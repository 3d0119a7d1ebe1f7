"""The names of a request's streams and topics in rules, and the verbs that rules give on them.

What holds: the stream behind a shard belongs to its topic, and clients only read it; other internal streams are not theirs.
"""

from __future__ import annotations

from rangelog_core.ids import is_internal_name, shard_of_stream_name
from rangelog_core.rights import KIND_NAMES, NONE, Verb
from rangelog_pd.state.store import State
from rangelog_pd.state.topic_tables import full_name
from rangelog_proto.v1 import rights_pb2 as pb
from rangelog_proto.v1 import topic_pb2

Resource = tuple[int, str]
"""Kind and name."""


def stream_name(state: State, stream_id: int) -> str | None:
    """Return the name of a stream, None where it does not exist."""
    found = state.streams.find(stream_id)
    return found.name if found is not None else None


def topic_name(state: State, topic_id: int) -> str | None:
    """Return the full name of a topic, None where it does not exist."""
    found = state.topics.topics.find(topic_id)
    return full_name(found.namespace, found.name) if found is not None else None


def name_of_reference(state: State, reference: topic_pb2.TopicReference) -> str | None:
    """Return the full name of the topic that a request names, None where it names a missing one by id."""
    if reference.topic_id:
        return topic_name(state, reference.topic_id)
    return full_name(reference.namespace, reference.name)


def decide(state: State, principal: str, asked: pb.AccessResource) -> tuple[Verb, Resource]:
    """Return what a client may do to a resource, and which one decided that."""
    kind, name = int(asked.kind), asked.name
    if kind not in KIND_NAMES:
        return NONE, (kind, name)
    if asked.id:
        found = stream_name(state, asked.id) if kind == pb.RESOURCE_KIND_STREAM else topic_name(state, asked.id)
        if found is None:
            return NONE, (kind, f"id {asked.id}")
        name = found
    if kind == pb.RESOURCE_KIND_STREAM and is_internal_name(name):
        return _on_internal(state, principal, name)
    return state.rights.index.given(principal, kind, name), (kind, name)


def _on_internal(state: State, principal: str, name: str) -> tuple[Verb, Resource]:
    shard = shard_of_stream_name(name)
    of_topic = topic_name(state, shard[0]) if shard is not None else None
    if of_topic is None:
        return NONE, (pb.RESOURCE_KIND_STREAM, name)
    given = state.rights.index.given(principal, pb.RESOURCE_KIND_TOPIC, of_topic)
    return given & Verb.READ, (pb.RESOURCE_KIND_TOPIC, of_topic)
