"""What a call on the placement drivers says of its outcome: a command that may have been carried out never ends as refused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from rangelog_core import errors
from rangelog_core.errors import RangelogError
from rangelog_core.net import pd_client
from rangelog_core.net.pd_client import PdClient
from rangelog_proto.v1 import common_pb2, pd_pb2
from tests.support.call_clock import CallClock

Connect = Callable[..., PdClient]
COMMAND = pd_pb2.CreateStreamRequest(request_id="r1", name="s")


@pytest.fixture
async def connect(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Connect]:
    """`connect(address, …)`: a client whose tries are short, closed in the end."""
    monkeypatch.setattr(pd_client, "TRY_TIMEOUT_S", 0.1)
    made: list[PdClient] = []

    def connect(*endpoints: str) -> PdClient:
        made.append(PdClient(endpoints))
        return made[-1]

    yield connect
    for client in made:
        await client.close()


def _in_turn(*steps: RangelogError | Callable[[], Awaitable[Any]]) -> Any:
    """Raises the errors and awaits the rest one after the other, the last one for ever."""
    left = list(steps)

    async def handler(request: Any) -> Any:
        step = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(step, RangelogError):
            raise step
        return await step()

    return handler


async def _never() -> None:
    await asyncio.Event().wait()


async def _crash() -> None:
    raise ZeroDivisionError


UNKNOWN_TRIES = {
    "our word": errors.OutcomeUnknown("no majority confirmed the command"),
    "our time-out": errors.RequestTimeout("the call took longer than 30 s"),
    "no answer": _never,
}


async def _outcome(call: Awaitable[Any]) -> RangelogError:
    with pytest.raises(RangelogError) as caught:
        async with asyncio.timeout(10):
            await call
    assert "\n" not in caught.value.message
    return caught.value


@pytest.mark.parametrize("first", UNKNOWN_TRIES.values(), ids=UNKNOWN_TRIES)
@pytest.mark.parametrize(
    "then",
    [errors.NotLeader("no leader is known"), errors.Unavailable("no majority answers"), errors.Overloaded("busy")],
)
async def test_an_earlier_try_is_remembered(
    start_pd: Any, connect: Connect, clock: CallClock, first: Any, then: RangelogError
) -> None:
    """When a try of a command may have been carried out, later refusals do not make its outcome known."""
    pd = await start_pd(CreateStream=_in_turn(first, then, clock.ends_after(then)))
    error = await _outcome(connect(pd.address).call(COMMAND, pd_pb2.CreateStreamResponse, timeout_s=60))
    assert type(error) is errors.OutcomeUnknown and error.outcome_unknown and error.retriable
    assert "may have been carried out" in error.message
    cut_off = "did not answer in time"  # a try is short here, and the machine may be busy
    assert then.message in error.message or cut_off in error.message
    assert len(pd.calls) >= 3


async def test_another_member_knew_nothing(start_pd: Any, connect: Connect, dead_address: str) -> None:
    """A leader that took the command and was lost, then members that are down: the outcome is unknown."""
    pd = await start_pd(CreateStream=_in_turn(_never))
    error = await _outcome(connect(pd.address, dead_address).call(COMMAND, pd_pb2.CreateStreamResponse, timeout_s=0.4))
    assert type(error) is errors.OutcomeUnknown


async def test_a_member_that_dies_under_a_command(start_pd: Any, connect: Connect) -> None:
    """A connection that breaks after the command went out: the outcome is unknown."""
    reached = asyncio.Event()

    async def never() -> None:
        reached.set()
        await _never()

    pd = await start_pd(CreateStream=_in_turn(never))
    call = asyncio.create_task(connect(pd.address).call(COMMAND, pd_pb2.CreateStreamResponse, timeout_s=1.0))
    await reached.wait()
    await pd.server.stop(0)
    assert type(await _outcome(call)) is errors.OutcomeUnknown


async def test_a_cut_connection(
    start_pd: Any, connect: Connect, clock: CallClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection that is cut once the command is there, and none after it: the member may have carried it out."""
    monkeypatch.setattr(pd_client, "TRY_TIMEOUT_S", 5.0)
    ends: list[asyncio.StreamWriter] = []

    async def cut() -> None:
        proxy.close()
        for end in ends:
            end.transport.abort()
        await _never()

    pd = await start_pd(CreateStream=_in_turn(cut))
    host, port = pd.address.split(":")

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(host, int(port))
        ends.extend((writer, back))
        await asyncio.gather(_copy(reader, back), _copy(there, writer))

    async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await source.read(4096):
                target.write(data)

    proxy = await asyncio.start_server(forward, "127.0.0.1", 0)
    client = connect(f"127.0.0.1:{proxy.sockets[0].getsockname()[1]}")
    clock.pauses_left = 3
    error = await _outcome(client.call(COMMAND, pd_pb2.CreateStreamResponse, timeout_s=60))
    assert type(error) is errors.OutcomeUnknown and "cannot be reached" in error.message


async def test_nothing_was_sent(
    connect: Connect, dead_address: str, clock: CallClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Members that refuse connections, or have no address, never saw the command: it was not carried out."""
    monkeypatch.setattr(pd_client, "TRY_TIMEOUT_S", 5.0)
    for address in (dead_address, "no.such.host.invalid:7100"):
        clock.pauses_left = 3
        error = await _outcome(connect(address).call(COMMAND, pd_pb2.CreateStreamResponse, timeout_s=60))
        assert type(error) is errors.Unavailable and not error.outcome_unknown, error


@pytest.mark.parametrize("then", [errors.NotLeader("no leader is known"), errors.Unavailable("no majority answers")])
async def test_refusals_alone_are_certain(
    start_pd: Any, connect: Connect, clock: CallClock, monkeypatch: pytest.MonkeyPatch, then: RangelogError
) -> None:
    """Where every try was refused, or nothing was sent, the command was not carried out."""
    monkeypatch.setattr(pd_client, "TRY_TIMEOUT_S", 5.0)
    pd = await start_pd(CreateStream=_in_turn(then, then, clock.ends_after(then)))
    error = await _outcome(connect(pd.address).call(COMMAND, pd_pb2.CreateStreamResponse, timeout_s=60))
    assert type(error) is errors.Unavailable and not error.outcome_unknown
    assert len(pd.calls) == 3


@pytest.mark.parametrize(
    ("answer", "unknown"),
    [
        (errors.StreamExists("there"), False),  # kept under the request id: it is what the first try came to
        (errors.WriterFenced("later", epoch=4), False),
        (errors.InvalidArgument("bad"), False),
        (errors.Unauthorized("this member wants another token"), True),
        (errors.ProtocolViolation("another version"), True),
        (errors.InternalError("the server's log has the details"), True),
    ],
)
async def test_answers_after_an_unknown_try(
    start_pd: Any, connect: Connect, answer: RangelogError, *, unknown: bool
) -> None:
    """A repeated request id gets its first answer, so that one is true; who knew nothing of the first try proves nothing."""
    pd = await start_pd(CreateStream=_in_turn(errors.OutcomeUnknown("perhaps"), answer))
    error = await _outcome(connect(pd.address).call(COMMAND, pd_pb2.CreateStreamResponse, timeout_s=2))
    assert type(error) is type(answer) and error.epoch == answer.epoch
    assert error.outcome_unknown is unknown
    assert ("may have been carried out" in error.message) is unknown


async def test_a_failure_inside_the_driver(start_pd: Any, connect: Connect) -> None:
    """A command that ended in a defect of the driver may have been carried out before it."""
    pd = await start_pd(CreateStream=_in_turn(_crash))
    error = await _outcome(connect(pd.address).call(COMMAND, pd_pb2.CreateStreamResponse, timeout_s=2))
    assert type(error) is errors.InternalError and error.outcome_unknown


async def test_no_place(start_pd: Any, connect: Connect, clock: CallClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """No place for a seal's next range is kept as its answer; for a new range it is not, so an earlier try may still count."""
    monkeypatch.setattr(pd_client, "TRY_TIMEOUT_S", 5.0)
    perhaps, no_place = errors.OutcomeUnknown("perhaps"), errors.NoPlacement("two needed")
    steps = (perhaps, no_place, clock.ends_after(no_place))
    pd = await start_pd(SealRange=_in_turn(*steps), CreateRange=_in_turn(*steps))
    client = connect(pd.address)
    sealed = await _outcome(
        client.call(pd_pb2.SealRangeRequest(request_id="r1"), pd_pb2.SealRangeResponse, timeout_s=60)
    )
    created = await _outcome(
        client.call(
            pd_pb2.CreateRangeRequest(request_id="r2"),
            pd_pb2.CreateRangeResponse,
            timeout_s=60,
            wait_for_placement=True,
        )
    )
    assert (type(sealed), sealed.outcome_unknown) == (errors.NoPlacement, False)
    assert (type(created), created.outcome_unknown) == (errors.NoPlacement, True)


@pytest.mark.parametrize("tries", [2, 3, 4])
async def test_no_place_that_stays(
    start_pd: Any, connect: Connect, clock: CallClock, monkeypatch: pytest.MonkeyPatch, tries: int
) -> None:
    """Whenever the time ends, the caller hears what the leader said, not that nobody leads; followers are asked once."""
    monkeypatch.setattr(pd_client, "TRY_TIMEOUT_S", 5.0)
    refusal = errors.NoPlacement("1 range server is alive, 2 are needed")
    leader = await start_pd(CreateRange=_in_turn(*[refusal] * (tries - 1), clock.ends_after(refusal)))
    not_me = errors.NotLeader("not me", address=leader.address)
    one, other = await start_pd(CreateRange=_in_turn(not_me)), await start_pd(CreateRange=_in_turn(not_me))
    client = connect(one.address, leader.address, other.address)
    error = await _outcome(
        client.call(
            pd_pb2.CreateRangeRequest(request_id="r"), pd_pb2.CreateRangeResponse, timeout_s=60, wait_for_placement=True
        )
    )
    assert type(error) is errors.NoPlacement and not error.outcome_unknown
    assert error.message == refusal.message
    assert (len(one.calls), len(leader.calls), len(other.calls)) == (1, tries, 0)


async def test_an_answer_in_the_end(start_pd: Any, connect: Connect) -> None:
    """An answer after unknown tries is the answer."""
    found = pd_pb2.CreateStreamResponse(stream=common_pb2.Stream(name="s"))

    async def answer() -> Any:
        return found

    pd = await start_pd(CreateStream=_in_turn(errors.OutcomeUnknown("perhaps"), _never, answer))
    assert await connect(pd.address).call(COMMAND, pd_pb2.CreateStreamResponse, timeout_s=5) == found


async def test_closed_under_a_command(start_pd: Any, connect: Connect) -> None:
    """A client that is closed while a command is out, or between its tries, says at once that its outcome is unknown."""
    reached = asyncio.Event()

    async def never() -> None:
        reached.set()
        await _never()

    async def perhaps() -> None:
        reached.set()
        raise errors.OutcomeUnknown("perhaps")

    for step in (never, perhaps):
        reached.clear()
        pd = await start_pd(CreateStream=_in_turn(step))
        client = connect(pd.address)
        call = asyncio.create_task(client.call(COMMAND, pd_pb2.CreateStreamResponse, timeout_s=3_600))
        await reached.wait()
        await client.close()
        error = await _outcome(call)
        assert type(error) is errors.OutcomeUnknown and "closed" in error.message


async def test_cancelled_command(start_pd: Any, connect: Connect) -> None:
    """A command that its caller cancels is cancelled, whatever became of earlier tries."""
    reached = asyncio.Event()

    async def never() -> None:
        reached.set()
        await _never()

    pd = await start_pd(CreateStream=_in_turn(errors.OutcomeUnknown("perhaps"), never))
    call = asyncio.create_task(connect(pd.address).call(COMMAND, pd_pb2.CreateStreamResponse, timeout_s=30))
    await reached.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call


async def test_reads_change_nothing(
    start_pd: Any, connect: Connect, clock: CallClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read that is not answered is unavailable or timed out, never a command of unknown outcome."""
    read = pd_pb2.DescribeStreamRequest(name="s")

    async def unanswered() -> None:
        monkeypatch.setattr(pd_client, "TRY_TIMEOUT_S", 5.0)  # the next try is answered, however busy the machine is
        await _never()

    refusal = clock.ends_after(errors.Unavailable("no majority answers"))
    pd = await start_pd(DescribeStream=_in_turn(unanswered, refusal))
    client = connect(pd.address)
    error = await _outcome(client.call(read, pd_pb2.DescribeStreamResponse, timeout_s=60))
    assert type(error) is errors.Unavailable and not error.outcome_unknown
    monkeypatch.setattr(pd_client, "TRY_TIMEOUT_S", 0.1)
    pd.on("DescribeStream", _in_turn(_never))
    clock.pauses_left = 1
    assert type(await _outcome(client.call(read, pd_pb2.DescribeStreamResponse, timeout_s=60))) is errors.RequestTimeout


async def test_a_reason_is_told_though_the_last_try_ran_out_of_time(
    start_pd: Any, connect: Connect, clock: CallClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a placement driver answered is not lost because no time was left for an answer to the last try."""
    monkeypatch.setattr(pd_client, "TRY_TIMEOUT_S", 5.0)  # each try is answered, however busy the machine is
    reason = errors.Unavailable("topics need cluster version 4")
    late = clock.ends_after(errors.RequestTimeout("the call took longer than 30 s"))
    member = await start_pd(CreateStream=_in_turn(reason, late))
    caught = await _outcome(connect(member.address).call(COMMAND, pd_pb2.CreateStreamResponse, timeout_s=60))
    assert isinstance(caught, errors.OutcomeUnknown) and "topics need cluster version 4" in caught.message
