"""The client after the placement drivers that it was given were replaced by others."""

from __future__ import annotations

from typing import Any

import pytest

from rangelog_core import errors
from rangelog_core.net.channels import Channels
from rangelog_core.net.pd_client import PdClient
from rangelog_proto.v1 import members_pb2, pd_pb2
from tests.support.waiting import until


async def _answer(request: Any) -> pd_pb2.ListServersResponse:
    return pd_pb2.ListServersResponse()


def _not_me(address: str) -> Any:
    async def handler(request: Any) -> Any:
        raise errors.NotLeader("not me", address=address)

    return handler


def _members_are(monkeypatch: pytest.MonkeyPatch, asked: list[Any], *answers: Any) -> None:
    """Answer ListMembers with these addresses, or with an error."""

    async def list_members(request: Any, *, timeout: float, metadata: Any) -> Any:
        asked.append(request)
        if isinstance(answers[0], Exception):
            raise answers[0]
        return members_pb2.ListMembersResponse(
            members=[members_pb2.GroupMember(name=address, api_address=address) for address in answers]
        )

    real = Channels.call

    def call(self: Channels, address: str, request: Any, response: Any) -> Any:
        if isinstance(request, members_pb2.ListMembersRequest):
            return list_members
        return real(self, address, request, response)

    monkeypatch.setattr(Channels, "call", call)


async def _until_learned(client: PdClient, count: int) -> None:
    await until(lambda: len(client.endpoints) >= count, within_s=5)


async def test_members_are_learned_from_a_leader_that_was_not_given(
    start_pd: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once; then the client goes on when both that leader and the given member are gone. What is no address is left out."""
    asked: list[Any] = []
    heir = await start_pd(ListServers=_answer)
    leader = await start_pd(ListServers=_answer)
    given = await start_pd(ListServers=_not_me(leader.address))
    _members_are(monkeypatch, asked, heir.address, "nonsense", leader.address)
    client = PdClient([given.address])
    try:
        for _ in range(3):
            await client.call(pd_pb2.ListServersRequest(), pd_pb2.ListServersResponse, timeout_s=5)
        await _until_learned(client, 3)
        assert client.endpoints == (given.address, leader.address, heir.address) and len(asked) == 1
        await leader.server.stop(0)
        await given.server.stop(0)
        await client.call(pd_pb2.ListServersRequest(), pd_pb2.ListServersResponse, timeout_s=10)
        assert len(heir.calls) == 1
    finally:
        await client.close()


async def test_a_leader_that_knows_no_members_is_asked_once(start_pd: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of an earlier version: the client goes on as before."""
    asked: list[Any] = []
    leader = await start_pd(ListServers=_answer)
    given = await start_pd(ListServers=_not_me(leader.address))
    _members_are(monkeypatch, asked, errors.Unavailable("no such service"))
    client = PdClient([given.address])
    try:
        await client.call(pd_pb2.ListServersRequest(), pd_pb2.ListServersResponse, timeout_s=5)
        await _until_learned(client, 2)
        for _ in range(3):
            await client.call(pd_pb2.ListServersRequest(), pd_pb2.ListServersResponse, timeout_s=5)
        assert len(asked) == 1
    finally:
        await client.close()
