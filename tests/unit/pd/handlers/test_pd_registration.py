"""Range servers register and send heartbeats: who is known, who is a copy, who is told to register first."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest

from rangelog_core.errors import DirectoryGivenUp, InvalidArgument, PreconditionFailed
from rangelog_pd.handlers import servers
from rangelog_proto.v1 import common_pb2
from rangelog_proto.v1 import pd_pb2 as pb


async def test_a_heartbeat_of_an_unknown_server_says_register_first(ready: Any) -> None:
    """An unregistered server or incarnation is told so, and nothing is remembered of it."""
    with pytest.raises(PreconditionFailed, match="not registered"):
        await ready.beat("rs9")
    with pytest.raises(PreconditionFailed, match="not registered"):
        await ready.beat("rs1", incarnation=5)
    assert "rs9" not in ready.driver.view.servers


async def test_a_name_that_is_alive_is_not_given_to_another(ready: Any) -> None:
    """A second server of the same name is refused until the first one's lease is over."""
    request = pb.RegisterServerRequest(request_id="two", server="rs1", incarnation=5, boot=1, data_address="x:1")
    with pytest.raises(PreconditionFailed, match="alive"):
        await servers.register_server(ready.driver, request)
    ready.silence(6_000)
    await servers.register_server(ready.driver, request)
    assert ready.machine.state.servers["rs1"].server.incarnation == 5


async def test_a_directory_that_was_replaced_is_refused_for_good(ready: Any) -> None:
    """By an error of its own, whether the name is alive under the later directory, dead, or removed; nothing is proposed."""
    first = ready.incarnation("rs1")
    ready.silence(6_000)
    later = pb.RegisterServerRequest(request_id="two", server="rs1", incarnation=5, boot=1, data_address="x:1")
    await servers.register_server(ready.driver, later)
    again = pb.RegisterServerRequest(request_id="old", server="rs1", incarnation=first, boot=9, data_address="x:1")
    for _ in range(2):
        with pytest.raises(DirectoryGivenUp, match="move it away and start with an empty one"):
            await servers.register_server(ready.driver, again)
        assert ready.machine.state.servers["rs1"].server.incarnation == 5
        ready.silence(6_000)


async def test_a_directory_behind_its_own_last_heartbeat_is_refused(ready: Any) -> None:
    """A disk put back to a copy of moments ago, of the same start: what it said it had flushed tells on it."""
    known = {"server": "rs1", "incarnation": ready.incarnation("rs1"), "boot": 2, "data_address": "x:1"}
    await ready.beat("rs1", log_end=1_000)
    with pytest.raises(PreconditionFailed, match="rolled back"):
        await servers.register_server(ready.driver, pb.RegisterServerRequest(request_id="a", log_end=999, **known))
    await servers.register_server(ready.driver, pb.RegisterServerRequest(request_id="b", log_end=1_000, **known))


def started(api: Any, request_id: str, **fields: Any) -> pb.RegisterServerRequest:
    """The registration of one start of rs1."""
    known = {"server": "rs1", "incarnation": api.incarnation("rs1"), "data_address": "x:1"}
    return pb.RegisterServerRequest(request_id=request_id, **(known | fields))


async def test_one_process_registers_as_often_as_it_likes(ready: Any) -> None:
    """A process that is told to register again, or whose answer was lost, is the same process."""
    for number in range(2):
        again = started(ready, f"again-{number}", boot=2, process_id=7, log_end=10 * number)
        await servers.register_server(ready.driver, again)
    assert ready.machine.state.servers["rs1"].server.process_id == 7


async def test_the_formats_of_a_registration_are_kept(ready: Any) -> None:
    """A server's row lists the formats of its last registration; one that reports none has none."""
    reported = [common_pb2.FormatVersions(format="log-entry", lowest=1, highest=2)]
    await servers.register_server(ready.driver, started(ready, "new", boot=2, process_id=7, formats=reported))
    assert list(ready.machine.state.servers["rs1"].server.formats) == reported
    await servers.register_server(ready.driver, started(ready, "old", boot=3, process_id=8))
    assert not ready.machine.state.servers["rs1"].server.formats


async def test_a_copy_from_an_earlier_run_that_counts_as_high_is_refused(ready: Any) -> None:
    """A copy of run 1 starts as boot 2, as the disk itself did before: another process id, so it is a copy."""
    await servers.register_server(ready.driver, started(ready, "own", boot=2, process_id=7))
    with pytest.raises(PreconditionFailed, match="rolled back"):
        await servers.register_server(ready.driver, started(ready, "copy", boot=2, process_id=8))
    await servers.register_server(ready.driver, started(ready, "next", boot=3, process_id=9))


async def test_a_copy_from_an_earlier_run_is_refused_by_the_next_leader(ready: Any) -> None:
    """A leader that heard no heartbeat of the server knows its process, and how far its log came."""
    await servers.register_server(ready.driver, started(ready, "own", boot=2, process_id=7, log_end=1_000))
    await ready.beat("rs1", sequence=1 << 34, log_end=5 << 20)
    ready.change_leader()
    with pytest.raises(PreconditionFailed, match="rolled back"):
        await servers.register_server(ready.driver, started(ready, "copy", boot=2, process_id=8, log_end=1_000))


async def test_a_copy_of_the_same_run_is_refused_by_the_next_leader(ready: Any) -> None:
    """Log ends go through the log each second: a copy 3 MiB short is found out although the leader changed."""
    await servers.register_server(ready.driver, started(ready, "own", boot=2, process_id=7, log_end=1_000))
    await ready.beat("rs1", sequence=1 << 34, log_end=5 << 20)
    await ready.driver.reconcile()
    ready.change_leader()
    with pytest.raises(PreconditionFailed, match="rolled back"):
        await servers.register_server(ready.driver, started(ready, "copy", boot=3, process_id=8, log_end=2 << 20))


@pytest.mark.parametrize(
    "fields",
    [{"server": ""}, {"server": "a/b"}, {"incarnation": 0}, {"boot": 0}, {"data_address": ""}, {"zone": "z" * 301}],
)
async def test_a_registration_with_a_bad_field_is_refused(api: Any, fields: dict[str, Any]) -> None:
    """Every field of a registration is checked."""
    good: dict[str, Any] = {"request_id": "r", "server": "rs1", "incarnation": 1, "boot": 1, "data_address": "x:1"}
    with pytest.raises(InvalidArgument):
        await servers.register_server(api.driver, pb.RegisterServerRequest(**(good | fields)))


async def test_fields_of_a_later_version_do_not_reach_the_log(ready: Any) -> None:
    """A member of that version would apply them, this one does not: their states would differ."""
    unknown = b"\xfa\x3f\x05later"  # field 1023
    known = pb.RegisterServerRequest(
        request_id="later",
        server="rs9",
        incarnation=5,
        boot=1,
        data_address="x:1",
    )
    proposed: list[bytes] = []
    inner = ready.driver.consensus.propose

    async def propose(command: bytes, **options: Any) -> bytes:
        proposed.append(command)
        return await inner(command, **options)

    with mock.patch.object(ready.driver.consensus, "propose", propose):
        request = pb.RegisterServerRequest.FromString(known.SerializeToString() + unknown)
        await servers.register_server(ready.driver, request)
    assert ready.machine.state.servers["rs9"].server.incarnation == 5
    assert any(b"rs9" in each for each in proposed)
    assert not any(unknown in each for each in proposed)
