"""What a client needs to make a call on the placement driver, once rights are enforced.

What holds: a call that is in no table is refused; a batch is carried out without the items that are refused, each of which has
its own error; a list leaves out what the client may do nothing to. A refusal by name does not tell what exists: rules are asked
by name. Servers and administrators are known by their role alone.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Any, NamedTuple

from rangelog_core.errors import HandshakeFailed, RangelogError
from rangelog_core.net.principals import Principal, Role
from rangelog_core.rights import ANY, Verb, right_missing
from rangelog_pd.driver import Driver
from rangelog_pd.state.batches import call_error
from rangelog_pd.state.resources import decide, name_of_reference
from rangelog_pd.state.store import State
from rangelog_pd.state.topic_tables import full_name
from rangelog_proto.v1 import cursor_pb2, pd_pb2, rights_pb2
from rangelog_server_common.tokens.bounds import check_unbound, left, token_bound

_WRITES = Verb.APPEND | Verb.SEAL
_STREAM, _TOPIC, _NAMESPACE = (
    rights_pb2.RESOURCE_KIND_STREAM,
    rights_pb2.RESOURCE_KIND_TOPIC,
    rights_pb2.RESOURCE_KIND_NAMESPACE,
)
Need = tuple[Verb, rights_pb2.AccessResource]
"""One of the verbs, on the resource."""
Needs = Callable[[State, Any], Iterator[Need]]
Handler = Callable[[Driver, Any], Awaitable[Any]]


def _of_stream(verbs: Verb) -> Needs:
    def needs(state: State, request: Any) -> Iterator[Need]:
        stream_id, name = getattr(request, "stream_id", 0), getattr(request, "name", "")
        if name or not stream_id:
            yield verbs, rights_pb2.AccessResource(kind=_STREAM, name=name)
        if state.streams.find(stream_id) is not None:  # else it was deleted: the call says so
            yield verbs, rights_pb2.AccessResource(kind=_STREAM, id=stream_id)

    return needs


def _of_cursor(verbs: Verb) -> Needs:
    """Requests whose name is that of a cursor."""

    def needs(state: State, request: Any) -> Iterator[Need]:
        if state.streams.find(request.stream_id) is not None:
            yield verbs, rights_pb2.AccessResource(kind=_STREAM, id=request.stream_id)

    return needs


def _seal(state: State, request: Any) -> Iterator[Need]:
    yield from _of_stream(Verb.APPEND if request.create_next else _WRITES)(state, request)


def _of_object(state: State, request: Any) -> Iterator[Need]:
    found = state.objects.find(request.object_id)
    if found is not None:
        yield Verb.ADMIN, rights_pb2.AccessResource(kind=_STREAM, id=found.stream_id)


def _of_topic(verbs: Verb) -> Needs:
    def needs(state: State, request: Any) -> Iterator[Need]:
        name = name_of_reference(state, request.topic)
        if name is not None:
            yield verbs, rights_pb2.AccessResource(kind=_TOPIC, name=name)

    return needs


def _of_topic_id(state: State, request: Any) -> Iterator[Need]:
    if state.topics.topics.find(request.topic_id) is not None:
        yield Verb.ADMIN, rights_pb2.AccessResource(kind=_TOPIC, id=request.topic_id)


def _new_topic(state: State, request: Any) -> Iterator[Need]:
    yield Verb.ADMIN, rights_pb2.AccessResource(kind=_TOPIC, name=full_name(request.namespace, request.name))


def _of_namespace(state: State, request: Any) -> Iterator[Need]:
    yield Verb.ADMIN, rights_pb2.AccessResource(kind=_NAMESPACE, name=request.name)


def _watched(state: State, request: Any) -> Iterator[Need]:
    for each in request.begin:
        if state.streams.find(each.stream_id) is not None:
            yield ANY, rights_pb2.AccessResource(kind=_STREAM, id=each.stream_id)
    for each in request.begin_topics:
        if state.topics.topics.find(each.topic_id) is not None:
            yield ANY, rights_pb2.AccessResource(kind=_TOPIC, id=each.topic_id)
    if request.begin_broker:
        yield Verb.ADMIN, rights_pb2.AccessResource(kind=_NAMESPACE, name="*")


def _nothing(state: State, request: Any) -> Iterator[Need]:
    return iter(())


NEEDS: dict[str, Needs] = {
    "CreateStream": _of_stream(Verb.ADMIN),
    "DescribeStream": _of_stream(ANY),
    "UpdateStream": _of_stream(Verb.ADMIN),
    "DeleteStream": _of_stream(Verb.ADMIN),
    "TrimStream": _of_stream(Verb.TRIM),
    "OpenWriter": _of_stream(_WRITES),
    "CreateRange": _of_stream(_WRITES),
    "SealRange": _seal,
    "ProveEnd": _of_stream(Verb.READ | _WRITES),
    "ListRanges": _of_stream(ANY),
    "ListObjects": _of_stream(Verb.READ | Verb.ADMIN),
    "PrepareRepack": _of_stream(Verb.ADMIN),
    "CommitRepack": _of_object,
    "Watch": _watched,
    "CreateNamespace": _of_namespace,
    "DeleteNamespace": _of_namespace,
    "CreateTopic": _new_topic,
    "DescribeTopic": _of_topic(ANY),
    "UpdateTopic": _of_topic(Verb.ADMIN),
    "TruncateTopic": _of_topic(Verb.TRIM),
    "SealTopic": _of_topic(Verb.SEAL),
    "DeleteTopic": _of_topic(Verb.ADMIN),
    "ListShards": _of_topic(ANY),
    "StartScale": _of_topic(Verb.ADMIN),
    "CancelScale": _of_topic_id,
    "GetCursor": _of_cursor(Verb.READ),
    "ListCursors": _of_cursor(Verb.READ),
    "DeleteCursor": _of_cursor(Verb.READ),
} | dict.fromkeys(
    (
        "ListServers", "DescribeCluster", "DescribeTier", "ListMembers", "ListBrokers", "FindOwners", "ReportBrokerLost",
    ),
    _nothing,
)  # fmt: skip


class _Batch(NamedTuple):
    items: str
    needs: Needs
    response: type[Any]


BATCHES = {
    "OpenWriters": _Batch("writers", _of_stream(_WRITES), pd_pb2.OpenWritersResponse),
    "SealRanges": _Batch("seals", _seal, pd_pb2.SealRangesResponse),
    "SetCursors": _Batch("sets", _of_cursor(Verb.READ), cursor_pb2.SetCursorsResponse),
}


class _Listing(NamedTuple):
    rows: str
    resource: Callable[[Any], rights_pb2.AccessResource]


LISTINGS = {
    "ListStreams": _Listing("streams", lambda row: rights_pb2.AccessResource(kind=_STREAM, name=row.name)),
    "ListTopics": _Listing(
        "topics", lambda row: rights_pb2.AccessResource(kind=_TOPIC, name=full_name(row.namespace, row.name))
    ),
    "ListNamespaces": _Listing("namespaces", lambda row: rights_pb2.AccessResource(kind=_NAMESPACE, name=row.name)),
}


async def serve(driver: Driver, call: str, handler: Handler, request: Any, client: Principal | None) -> Any:
    """Make a call for a client, as far as it may. `client`: None for who is no client. Raises RightMissing."""
    if client is None:
        return await handler(driver, request)
    await driver.catch_up()
    if not driver.machine.state.rights.enforced:
        check_unbound(client)
        return await handler(driver, request)
    if call in BATCHES:
        return await _serve_batch(driver, BATCHES[call], handler, request, client)
    if call in LISTINGS:
        return _visible(driver, LISTINGS[call], await handler(driver, request), client)
    with driver.state() as state:
        error = _refusal(state, client, NEEDS[call](state, request)) if call in NEEDS else _unknown(str(client))
    if error is not None:
        raise error
    return await handler(driver, request)


def limited(caller: Principal | None, *, tls: bool) -> Principal | None:
    """Return the client that makes a call, None for a server or an administrator, and where there are no certificates."""
    if caller is None and not tls:
        return None  # rights cannot be enforced there
    if caller is None:
        raise HandshakeFailed("the caller shows no certificate")
    return caller if caller.role is Role.CLIENT else None


def _refusal(state: State, client: Principal, needs: Iterator[Need]) -> RangelogError | None:
    for verbs, resource in needs:
        given, (kind, name) = decide(state, str(client), resource)
        if not given & verbs:
            return right_missing(str(client), verbs, kind, name)
        if not given & left(client, kind, name) & verbs:
            return token_bound(client, verbs, kind, name)
    return None


def _unknown(principal: str) -> RangelogError:
    return right_missing(principal, Verb.ADMIN, _NAMESPACE, "*")


async def _serve_batch(driver: Driver, batch: _Batch, handler: Handler, request: Any, client: Principal) -> Any:
    items = getattr(request, batch.items)
    with driver.state() as state:
        refused = {
            number: error
            for number, item in enumerate(items)
            if (error := _refusal(state, client, batch.needs(state, item))) is not None
        }
    if not refused:
        return await handler(driver, request)
    kept = type(request)()
    kept.CopyFrom(request)
    del getattr(kept, batch.items)[:]
    getattr(kept, batch.items).extend(item for number, item in enumerate(items) if number not in refused)
    answered = iter((await handler(driver, kept)).results if len(refused) < len(items) else ())
    response = batch.response()
    for number in range(len(items)):
        if number in refused:
            response.results.add(error=call_error(refused[number]))
        else:
            response.results.append(next(answered))
    return response


def _visible(driver: Driver, listing: _Listing, response: Any, client: Principal) -> Any:
    rows = list(getattr(response, listing.rows))
    del getattr(response, listing.rows)[:]
    with driver.state() as state:
        getattr(response, listing.rows).extend(row for row in rows if _shown(state, client, listing.resource(row)))
    return response


def _shown(state: State, client: Principal, resource: rights_pb2.AccessResource) -> bool:
    given, (kind, name) = decide(state, str(client), resource)
    return bool(given & left(client, kind, name) & ANY)
