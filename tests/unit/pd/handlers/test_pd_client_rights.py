"""Calls of clients while rights are enforced: batches, lists, ids and names, and that no call was forgotten."""

from __future__ import annotations

from typing import Any

import pytest

from rangelog_core.errors import PreconditionFailed, RightMissing
from rangelog_core.net.principals import Principal, Role
from rangelog_core.rights import KINDS, RIGHTS_FORMAT, Verb, wire_verbs
from rangelog_pd.handlers import brokers, client_rights, rights, service
from rangelog_pd.state.versions import LEVEL_RIGHTS
from rangelog_proto.v1 import broker_pb2, pd_pb2
from rangelog_proto.v1 import rights_pb2 as pb

ALICE = Principal(Role.CLIENT, "a")


async def enforced(api: Any, *rules: tuple[Verb, str, str]) -> None:
    api.machine.state.cluster_version = LEVEL_RIGHTS
    for number, (verbs, kind, name) in enumerate(rules):
        rule = pb.AccessRule(principal="client:a", kind=KINDS[kind], name=name, verbs=wire_verbs(verbs))
        request = pb.GrantRightsRequest(request_id=f"g{number}", rule=rule)
        await rights.grant_rights(api.driver, request)
    command = pb.EnforceRightsRequest(request_id="e", enforced=True)
    await api.driver.propose_request(pb.EnforceRightsResponse, "e", enforce_rights=command)


async def call(api: Any, name: str, request: Any, client: Principal | None = ALICE) -> Any:
    made = service.CALLS[name]
    return await client_rights.serve(api.driver, made.needs, made.handler, request, client)


def test_every_call_that_a_client_may_make_needs_something_known() -> None:
    """A call without needs is refused, so none may be forgotten; and those that clients may not make have none."""
    for made in service.CALLS.values():
        assert (made.needs is not None) == (Role.CLIENT in made.roles), made.name


async def test_a_batch_is_carried_out_without_what_is_refused(ready: Any) -> None:
    """Each item has its own answer, in order; a batch of refused ones changes nothing."""
    await ready.create("mine", "c2")
    await enforced(ready, (Verb.APPEND, "stream", "mine"))
    writers = [pd_pb2.OpenWriterRequest(name=name) for name in ("s", "mine", "missing")]
    answer = await call(ready, "OpenWriters", pd_pb2.OpenWritersRequest(request_id="w", writers=writers))
    assert [each.error.code for each in answer.results] == ["RIGHT_MISSING", "", "RIGHT_MISSING"]
    assert answer.results[1].response.stream.name == "mine"
    epoch = ready.machine.state.stream("s").epoch
    again = await call(ready, "OpenWriters", pd_pb2.OpenWritersRequest(request_id="x", writers=writers[:1]))
    assert [each.error.code for each in again.results] == ["RIGHT_MISSING"]
    assert ready.machine.state.stream("s").epoch == epoch


async def test_lists_leave_out_what_a_client_may_do_nothing_to(ready: Any) -> None:
    """An administrator sees all."""
    for name in ("a-1", "a-2", "b-1"):
        await ready.create(name, name)
    await enforced(ready, (Verb.READ, "stream", "a-*"))
    listed = await call(ready, "ListStreams", pd_pb2.ListStreamsRequest())
    assert [each.name for each in listed.streams] == ["a-1", "a-2"]
    everything = await call(ready, "ListStreams", pd_pb2.ListStreamsRequest(), None)
    assert len(everything.streams) == 4


async def test_an_id_beside_a_name_gives_no_way_around(ready: Any) -> None:
    """Whichever of the two a handler looks at, the right on it is needed."""
    mine = await ready.create("mine", "c2")
    await enforced(ready, (Verb.TRIM | Verb.APPEND | Verb.READ, "stream", "mine"))
    for stream_id, name in ((1, "mine"), (mine.stream_id, "s"), (99_999, "s"), (1, ""), (0, "s")):
        for method, request in (
            ("TrimStream", pd_pb2.TrimStreamRequest(request_id="t", stream_id=stream_id, name=name)),
            ("OpenWriter", pd_pb2.OpenWriterRequest(request_id="o2", stream_id=stream_id, name=name)),
            ("ListRanges", pd_pb2.ListRangesRequest(stream_id=stream_id, name=name)),
        ):
            with pytest.raises(RightMissing):
                await call(ready, method, request)
    await call(ready, "ListRanges", pd_pb2.ListRangesRequest(stream_id=mine.stream_id))


async def test_a_verb_is_for_its_calls(ready: Any) -> None:
    """Who may read does not trim, and who may trim does not read."""
    await enforced(ready, (Verb.READ, "stream", "s"))
    trim = pd_pb2.TrimStreamRequest(request_id="t", name="s")
    with pytest.raises(RightMissing, match="may not trim stream 's'"):
        await call(ready, "TrimStream", trim)
    listing = pd_pb2.ListObjectsRequest(name="s")
    await call(ready, "ListObjects", listing)
    for number, verbs in enumerate((Verb.READ, Verb.TRIM)):
        rule = pb.AccessRule(principal="client:a", kind=KINDS["stream"], name="s", verbs=wire_verbs(verbs))
        if verbs == Verb.READ:
            await rights.revoke_rights(ready.driver, pb.RevokeRightsRequest(request_id=f"x{number}", rule=rule))
        else:
            await rights.grant_rights(ready.driver, pb.GrantRightsRequest(request_id=f"x{number}", rule=rule))
    await call(ready, "TrimStream", trim)
    with pytest.raises(RightMissing, match="may not read or admin stream 's'"):
        await call(ready, "ListObjects", listing)


async def test_a_new_leader_catches_up_before_it_decides(ready: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What an earlier leader was told counts: a barrier comes first, once a term."""
    await enforced(ready)
    barriers: list[int] = []
    barrier = ready.driver.barrier

    async def counted() -> None:
        barriers.append(1)
        await barrier()

    monkeypatch.setattr(ready.driver, "barrier", counted)
    with pytest.raises(RightMissing):
        await call(ready, "DescribeStream", pd_pb2.DescribeStreamRequest(name="s"))
    ready.change_leader()
    for _ in range(2):
        with pytest.raises(RightMissing):
            await call(ready, "DescribeStream", pd_pb2.DescribeStreamRequest(name="s"))
    assert len(barriers) == 1


async def test_rights_are_not_enforced_where_nobody_is_known(ready: Any) -> None:
    """Without TLS there are no certificates."""
    with pytest.raises(PreconditionFailed, match="rights need TLS"):
        await rights.enforce_rights(ready.driver, pb.EnforceRightsRequest(request_id="e", enforced=True))


async def test_rights_are_not_enforced_while_a_broker_would_serve_everybody(
    ready: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of an earlier program, or one that this leader has not heard yet; a lost broker does not count."""
    ready.machine.state.cluster_version = LEVEL_RIGHTS
    monkeypatch.setattr(type(ready.driver.settings), "tls", object())
    for each in ready.machine.state.servers.values():
        each.server.formats.add(format=RIGHTS_FORMAT, lowest=1, highest=1)
    register = broker_pb2.RegisterBrokerRequest(request_id="b", name="b1", incarnation=7, address="b1:1")
    await brokers.register_broker(ready.driver, register)
    enforce = pb.EnforceRightsRequest(request_id="e", enforced=True)
    for level in (0, LEVEL_RIGHTS - 1):
        if level:
            beat = broker_pb2.BrokerHeartbeatRequest(name="b1", incarnation=7, complete=True, feature_level=level)
            await brokers.broker_heartbeat(ready.driver, beat)
        with pytest.raises(PreconditionFailed, match=r"broker b1 .* upgrade check"):
            await rights.enforce_rights(ready.driver, enforce)
    assert not ready.machine.state.rights.enforced
    beat = broker_pb2.BrokerHeartbeatRequest(name="b1", incarnation=7, complete=True, feature_level=LEVEL_RIGHTS)
    await brokers.broker_heartbeat(ready.driver, beat)
    await rights.enforce_rights(ready.driver, enforce)
    assert ready.machine.state.rights.enforced


async def test_rules_are_listed_by_page(ready: Any) -> None:
    """All of them once, in order."""
    await enforced(ready, *((Verb.READ, "stream", f"s{number}") for number in range(5)))
    names, token = [], ""
    while True:
        page = await rights.list_rights(ready.driver, pb.ListRightsRequest(page_size=2, page_token=token))
        names += [each.name for each in page.rules]
        token = page.next_page_token
        if not token:
            break
    assert names == [f"s{number}" for number in range(5)] and page.enforced
    assert not (await rights.list_rights(ready.driver, pb.ListRightsRequest(principal="client:b"))).rules
