"""The rights that a client needs for the resources of a request, in the present state. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from rangelog_core.rights import ANY, Verb
from rangelog_pd.state.resources import name_of_reference
from rangelog_pd.state.store import State
from rangelog_pd.state.topic_tables import full_name
from rangelog_proto.v1 import rights_pb2

WRITES = Verb.APPEND | Verb.SEAL
STREAM, TOPIC, NAMESPACE = (
    rights_pb2.RESOURCE_KIND_STREAM,
    rights_pb2.RESOURCE_KIND_TOPIC,
    rights_pb2.RESOURCE_KIND_NAMESPACE,
)
Need = tuple[Verb, rights_pb2.AccessResource]
"""One of the verbs, on the resource."""
Needs = Callable[[State, Any], Iterator[Need]]


def of_stream(verbs: Verb) -> Needs:
    """Requests that name a stream, by id or name."""

    def needs(state: State, request: Any) -> Iterator[Need]:
        stream_id, name = getattr(request, "stream_id", 0), getattr(request, "name", "")
        if name or not stream_id:
            yield verbs, rights_pb2.AccessResource(kind=STREAM, name=name)
        if state.streams.find(stream_id) is not None:  # else it was deleted: the call says so
            yield verbs, rights_pb2.AccessResource(kind=STREAM, id=stream_id)

    return needs


def of_cursor(verbs: Verb) -> Needs:
    """Requests whose name is that of a cursor."""

    def needs(state: State, request: Any) -> Iterator[Need]:
        if state.streams.find(request.stream_id) is not None:
            yield verbs, rights_pb2.AccessResource(kind=STREAM, id=request.stream_id)

    return needs


def seal(state: State, request: Any) -> Iterator[Need]:
    """A seal that goes on in a next range is an append."""
    yield from of_stream(Verb.APPEND if request.create_next else WRITES)(state, request)


def of_object(state: State, request: Any) -> Iterator[Need]:
    """Of the stream of an object."""
    found = state.objects.find(request.object_id)
    if found is not None:
        yield Verb.ADMIN, rights_pb2.AccessResource(kind=STREAM, id=found.stream_id)


def of_topic(verbs: Verb) -> Needs:
    """Requests with a reference of a topic."""

    def needs(state: State, request: Any) -> Iterator[Need]:
        name = name_of_reference(state, request.topic)
        if name is not None:
            yield verbs, rights_pb2.AccessResource(kind=TOPIC, name=name)

    return needs


def of_topic_id(state: State, request: Any) -> Iterator[Need]:
    """Requests with the id of a topic."""
    if state.topics.topics.find(request.topic_id) is not None:
        yield Verb.ADMIN, rights_pb2.AccessResource(kind=TOPIC, id=request.topic_id)


def new_topic(state: State, request: Any) -> Iterator[Need]:
    """A topic that there is not yet."""
    yield Verb.ADMIN, rights_pb2.AccessResource(kind=TOPIC, name=full_name(request.namespace, request.name))


def of_namespace(state: State, request: Any) -> Iterator[Need]:
    """Requests whose name is that of a namespace."""
    yield Verb.ADMIN, rights_pb2.AccessResource(kind=NAMESPACE, name=request.name)


def watched(state: State, request: Any) -> Iterator[Need]:
    """Streams and topics that a watch begins with."""
    for each in request.begin:
        if state.streams.find(each.stream_id) is not None:
            yield ANY, rights_pb2.AccessResource(kind=STREAM, id=each.stream_id)
    for each in request.begin_topics:
        if state.topics.topics.find(each.topic_id) is not None:
            yield ANY, rights_pb2.AccessResource(kind=TOPIC, id=each.topic_id)
    if request.begin_broker:
        yield Verb.ADMIN, rights_pb2.AccessResource(kind=NAMESPACE, name="*")


def nothing(state: State, request: Any) -> Iterator[Need]:
    """No right: all clients may."""
    return iter(())


class NeedsOfItems(NamedTuple):
    """A call of many items, each of which has needs of its own."""

    items: str
    needs: Needs
    response: type[Any]


class NeedsOfRows(NamedTuple):
    """A call whose response leaves out the rows of what the client may do nothing to."""

    rows: str
    resource: Callable[[Any], rights_pb2.AccessResource]


STREAMS = NeedsOfRows("streams", lambda row: rights_pb2.AccessResource(kind=STREAM, name=row.name))
TOPICS = NeedsOfRows(
    "topics", lambda row: rights_pb2.AccessResource(kind=TOPIC, name=full_name(row.namespace, row.name))
)
NAMESPACES = NeedsOfRows("namespaces", lambda row: rights_pb2.AccessResource(kind=NAMESPACE, name=row.name))
