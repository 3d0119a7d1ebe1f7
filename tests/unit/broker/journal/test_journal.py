"""A journal over real writers and readers, on a cluster in memory: results, takeover, reads, snapshots, trims."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest

from rangelog import Client, StreamConfig, Writer
from rangelog.errors import (
    Corruption,
    InternalError,
    InvalidArgument,
    PreconditionFailed,
    RangelogError,
    RequestTimeout,
    SessionExpired,
    StreamNotFound,
    UnsupportedVersion,
    WriterClosed,
    WriterFenced,
)
from rangelog.testing import FakeCluster
from rangelog_broker.journal import fold as fold_module
from rangelog_broker.journal import journal as journal_module
from rangelog_broker.journal.entry import COMMAND_BYTES_MAX
from rangelog_broker.journal.journal import Journal, _restored
from rangelog_broker.journal.owner import OwnerLimits
from rangelog_broker.journal.replay import JournalReplay
from rangelog_broker.journal.sessions import MESSAGE_CHARACTERS_MAX
from rangelog_core.versions import FEATURE_LEVEL
from tests.support.journal_machines import Chain, link

pytestmark = pytest.mark.virtual

NAME = "orders"


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with FakeCluster().client() as client:
        await client.create_stream(NAME, StreamConfig(range_size_bytes_max=64 * 1024))
        yield client


async def opened(client: Client, **options: object) -> Journal[Chain]:
    return await Journal.open(client, NAME, Chain, **options)  # type: ignore[arg-type]


async def state_of(journal: Journal[Chain]) -> tuple[int, bytes]:
    return await journal.read(lambda machine: (machine.count, machine.digest))


async def test_commands_are_applied_in_order_and_give_results(client: Client) -> None:
    """Many at once share flushes; the next owner has the same state."""
    journal = await opened(client)
    session = await journal.open_session()
    results = await asyncio.gather(*(journal.propose(session, number, b"%d" % number) for number in range(200)))
    assert [link(result).count for result in results] == list(range(1, 201))
    before = await state_of(journal)
    await journal.close()
    after = await opened(client)
    assert await state_of(after) == before
    assert after.epoch > journal.epoch
    await after.close()


async def test_a_refused_command_changes_nothing(client: Client) -> None:
    """Its result is the machine's error, also for who proposes it again."""
    journal = await opened(client)
    session = await journal.open_session()
    for _ in range(2):
        with pytest.raises(PreconditionFailed, match="as asked"):
            await journal.propose(session, 0, b"refuse")
    assert (await state_of(journal))[0] == 0
    with pytest.raises(InvalidArgument, match="limit"):
        await journal.propose(session, 1, bytes(COMMAND_BYTES_MAX + 1))
    with pytest.raises(InvalidArgument, match="settled"):
        await journal.propose(session, 1, b"a", settled=2)
    with pytest.raises(SessionExpired):
        await journal.propose(12345, 0, b"a")
    await journal.close()


async def test_a_deposed_owner_answers_nothing_new(client: Client) -> None:
    """What it is asked for next ends it: proposals with an unknown outcome, reads without an answer."""
    first = await opened(client)
    session = await first.open_session()
    told = await first.propose(session, 0, b"a")
    second = await opened(client)
    with pytest.raises(WriterFenced) as caught:
        await first.propose(session, 1, b"b")
    assert caught.value.outcome_unknown
    with pytest.raises(WriterFenced):
        await first.read(lambda machine: machine.count)
    with pytest.raises(WriterFenced):
        first.read_stale(lambda machine: machine.count)
    assert await second.propose(session, 0, b"a") == told, "proposed again, applied once"
    assert link(await second.propose(session, 1, b"b")).count == 2
    await first.close()
    await second.close()


async def test_a_read_that_was_overtaken_by_a_takeover_gives_nothing(client: Client) -> None:
    """The state that it saw may not be the newest: the new owner may have acked more."""
    first = await opened(client)
    second = await opened(client)
    await second.propose_own(b"a")
    assert first.read_stale(lambda machine: machine.count) == 0
    with pytest.raises(WriterFenced) as caught:
        await first.read(lambda machine: machine.count)
    assert not caught.value.outcome_unknown
    await first.close()
    await second.close()


async def test_reads_share_proofs(client: Client) -> None:
    """A thousand reads at once take a few entries, and none where a command is proposed in the same turn."""
    journal = await opened(client)
    before = journal.applied_offset
    assert await asyncio.gather(*(journal.read(lambda machine: machine.count) for _ in range(1000))) == [0] * 1000
    assert journal.applied_offset - before <= 2
    before = journal.applied_offset
    await asyncio.gather(journal.read(lambda machine: machine.count), journal.propose_own(b"a"))
    assert journal.applied_offset - before == 1
    await journal.close()


async def test_snapshots_bound_what_is_replayed(client: Client) -> None:
    """The stream is trimmed below them, and the next owner has the same state and the same results."""
    limits = OwnerLimits(snapshot_entries=50)
    journal = await opened(client, limits=limits)
    session = await journal.open_session()
    results = []
    for sequence in range(400):
        command = b"%d" % sequence + bytes(1000).replace(b"\0", b".")
        results.append(await journal.propose(session, sequence, command, settled=max(0, sequence - 5)))
    before = await state_of(journal)
    await journal.close()
    stream = await client.describe_stream(NAME)
    assert stream.trim_offset > 100
    again = await opened(client, limits=limits)
    assert await state_of(again) == before
    assert await again.propose(session, 399, b"other") == results[399]
    with pytest.raises(PreconditionFailed):
        await again.propose(session, 10, b"other")
    await again.close()


async def test_a_trimmed_journal_without_a_snapshot_is_not_opened(client: Client) -> None:
    """Its state cannot be known."""
    journal = await opened(client)
    for _ in range(10):
        await journal.propose_own(b"a")
    await journal.close()
    await client.seal_stream(NAME)
    await client.trim_stream(NAME, 5)
    with pytest.raises(Corruption, match="no whole snapshot"):
        await opened(client)


async def test_who_was_deposed_while_it_read_is_told_so(client: Client) -> None:
    """The later owner has trimmed behind a snapshot that lies beyond the end that the deposed one reads to: no damage."""
    first = await opened(client)
    await first.propose_own(b"first|")
    slow = client.writer(NAME)
    await slow.open()
    assert slow.next_offset
    later = await opened(client, limits=OwnerLimits(snapshot_entries=40))
    for number in range(300):
        await later.propose_own(b"%d|" % number + bytes(1000))
    assert (await client.describe_stream(NAME)).trim_offset > slow.next_offset
    with pytest.raises(WriterFenced):
        await _restored(client, slow, Chain, None, lambda: None)
    await slow.close(flush=False)
    for each in (first, later):
        await each.close()


async def test_what_is_no_journal_is_not_opened(client: Client) -> None:
    """Records of somebody else are a typed error, and no stream is none."""
    await client.append(NAME, [b"hello"])
    with pytest.raises(RangelogError):
        await opened(client)
    with pytest.raises(StreamNotFound):
        await Journal.open(client, "other", Chain)


async def test_after_close_nothing_is_taken(client: Client) -> None:
    """What waited has an unknown outcome; closing twice is no error."""
    journal = await opened(client)
    ended: list[RangelogError] = []
    journal.on_closed = ended.append
    waiting = asyncio.create_task(journal.propose_own(b"a"))
    await asyncio.sleep(0)
    await journal.close()
    await journal.close()
    with pytest.raises(WriterClosed) as caught:
        await waiting
    assert caught.value.outcome_unknown
    with pytest.raises(WriterClosed) as caught:
        await journal.open_session()
    assert not caught.value.outcome_unknown
    assert len(ended) == 1


@pytest.mark.parametrize(("bad", "error"), [(b"fail", InternalError), (b"quote", PreconditionFailed)])
async def test_an_acked_entry_that_the_machine_cannot_take_ends_nothing(
    client: Client, bad: bytes, error: type[RangelogError], caplog: pytest.LogCaptureFixture
) -> None:
    """A defect, or a message over the bound of a result: the proposer gets an error, here and at every later owner."""
    journal = await opened(client, limits=OwnerLimits(snapshot_entries=10))
    session = await journal.open_session()
    for sequence in range(2):
        with pytest.raises(error) as refused:
            await journal.propose(session, sequence, bad)
        assert len(refused.value.message) <= MESSAGE_CHARACTERS_MAX + 1
    with pytest.raises(error):
        await journal.propose_own(bad)
    assert link(await journal.propose(session, 2, b"a")).count == 1
    assert ("failed at entry" in caplog.text) == (bad == b"fail")
    for _ in range(3):
        before = await state_of(journal)
        await journal.close()
        journal = await opened(client, limits=OwnerLimits(snapshot_entries=10))
        assert await state_of(journal) == before
        with pytest.raises(error):
            await journal.propose(session, 1, b"again")
        for _ in range(12):
            await journal.propose_own(b"b")
    await journal.close()


async def test_an_entry_of_a_later_version_closes_the_journal(client: Client) -> None:
    """Who skipped it, or took it for refused, would have another state than the program that knows it: that one goes on."""

    class Later(Chain):
        def apply(self, command: bytes, now_ms: int) -> bytes:
            return super().apply(command.removeprefix(b"later "), now_ms)

    journal = await Journal.open(client, NAME, Later)
    await journal.propose_own(b"later a")
    await journal.close()
    for _ in range(2):
        with pytest.raises(UnsupportedVersion):
            await opened(client)
    again = await Journal.open(client, NAME, Later)
    assert again.machine.commands == [b"a"]
    await again.close()


async def test_commands_follow_the_level_that_all_brokers_have(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """From one place of the log on, at each owner alike; one of an earlier program opens neither entries nor snapshot of it."""
    limits = OwnerLimits(snapshot_entries=8, snapshot_bytes_min=1)
    for count in (1, 10):
        journal = await opened(client, limits=limits)
        await journal.propose_own(b"a")
        for _ in range(2):
            journal.raise_level(FEATURE_LEVEL + 7)
        journal.raise_level(FEATURE_LEVEL - 1)
        for _ in range(count):
            await journal.propose_own(b"b")
        assert journal.machine.level == FEATURE_LEVEL, "what this program does not know is left to those that do"
        before = journal.machine.digest
        await journal.close()
        again = await opened(client, limits=limits)
        assert (again.machine.level, again.machine.digest) == (FEATURE_LEVEL, before)
        await again.close()
        with monkeypatch.context() as earlier:
            earlier.setattr(fold_module, "FEATURE_LEVEL", FEATURE_LEVEL - 1)
            with pytest.raises(UnsupportedVersion, match="upgrade this broker"):
                await opened(client, limits=limits)


async def test_a_session_is_its_proposers_alone(client: Client) -> None:
    """Nobody else knows its number: no small one is, and what is proposed under a guess is refused and keeps nothing."""
    journal = await opened(client)
    of_before = await journal.open_session()
    journal.raise_level(FEATURE_LEVEL)
    await journal.propose_own(b"raised")
    sessions = [await journal.open_session() for _ in range(3)]
    assert of_before < 100 and len(set(sessions)) == 3 and min(sessions) >= 1 << 63
    for guess in {*range(40), *(each ^ 1 for each in sessions)} - {of_before}:
        with pytest.raises(SessionExpired):
            await journal.propose(guess, 0, b"theirs")
    before = journal.machine.count
    for session in (of_before, *sessions):
        assert link(await journal.propose(session, 0, b"mine")).count > before
    await journal.close()
    again = await opened(client)
    assert link(await again.propose(sessions[0], 1, b"mine")).count == before + 5
    await again.close()


async def test_what_is_replayed_lets_others_have_their_turn(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between any two parts of a snapshot, and of the entries behind it, the loop runs what else is due."""
    monkeypatch.setattr(journal_module, "TURN_BYTES", 4_096)
    limits = OwnerLimits(snapshot_entries=1_000, snapshot_bytes_min=1 << 30)
    journal = await opened(client, limits=limits)
    for number in range(1_400):
        await journal.propose_own(b"%d|" % number + bytes(100))
    await journal.close()
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    held: list[int] = []
    feed = JournalReplay.feed

    def noting(replay: JournalReplay[Chain], offset: int, value: bytes) -> None:
        held.append(turns)
        feed(replay, offset, value)

    monkeypatch.setattr(JournalReplay, "feed", noting)
    other = asyncio.create_task(count())
    again = await opened(client)
    other.cancel()
    longest = max(Counter(held).values())
    assert longest <= 4_096 // 100, f"{longest} entries in one turn"
    await again.close()


async def test_an_ack_that_arrives_as_the_writer_stops_is_taken(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The entry is in the log for good: its proposer gets the result, and does not wait until its time is over."""
    journal = await opened(client)

    def stopped(writer: Writer) -> int:
        raise WriterFenced("a later epoch fenced the range just now")

    monkeypatch.setattr(Writer, "confirm_offset", property(stopped))
    results = await asyncio.gather(*(journal.propose_own(b"%d" % number, timeout_s=5) for number in range(3)))
    assert [link(result).count for result in results] == [1, 2, 3]
    await journal.close()


async def test_many_commands_are_proposed_in_one_call(client: Client) -> None:
    """Each has its own result or refusal, in the order of the call; a repeat of them gives the same."""
    journal = await opened(client)
    session = await journal.open_session()
    first = await journal.propose(session, 1, b"b")
    commands = [(0, b"a"), (1, b"b"), (2, b"refuse"), (3, bytes(COMMAND_BYTES_MAX + 1))]
    results = await journal.propose_all(session, commands)
    assert results[1].value == first
    assert link(results[0].value).count == 2
    assert [result.error_code for result in results] == ["", "", "PRECONDITION_FAILED", "INVALID_ARGUMENT"]
    assert await journal.propose_all(session, commands[:3]) == results[:3]
    assert await journal.propose_all(session, []) == []
    await journal.close()


async def test_the_end_of_a_journal_leaves_all_commands_of_a_call_in_doubt(client: Client) -> None:
    """The next owner knows those that were acked."""
    first = await opened(client)
    session = await first.open_session()
    second = await opened(client)
    with pytest.raises(WriterFenced) as caught:
        await first.propose_all(session, [(0, b"a"), (1, b"b")])
    assert caught.value.outcome_unknown
    results = await second.propose_all(session, [(0, b"a"), (1, b"b")])
    assert [link(result.value).count for result in results] == [1, 2]
    await first.close()
    await second.close()


async def test_whoever_waits_for_changes_is_called(client: Client) -> None:
    """After entries were applied, and when the journal has ended."""
    journal = await opened(client)
    seen: list[int] = []
    journal.on_change = lambda: seen.append(journal.applied_offset)
    await journal.propose_own(b"a")
    assert seen == [1]
    await journal.close()
    assert seen == [1, 1]


async def test_time_goes_on_behind_a_clock_that_was_ahead(client: Client) -> None:
    """What waits for a time to pass does not wait until the next owner's clock has caught up."""
    first = await opened(client, clock_ms=lambda: 1_000_000)
    await first.propose_own(b"a")
    assert first.machine.now_ms == 1_000_000
    clock = [400_000]
    second = await opened(client, clock_ms=lambda: clock[0])
    for reading_ms, expected_ms in (
        (400_000, 1_000_000),
        (400_005, 1_000_005),
        (300_000, 1_000_005),
        (300_001, 1_000_006),
    ):
        clock[0] = reading_ms
        await second.propose_own(b"b")
        assert second.machine.now_ms == expected_ms
    await first.close()
    await second.close()


async def test_an_opening_may_take_long_while_it_goes_on(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit is for a silence: a full partition takes longer to read than a range server may take to answer."""
    journal = await opened(client)
    for _ in range(20):
        await journal.propose_own(b"a")
    await journal.close()
    slow_s = 4.0
    records = type(client.internal).records

    async def slowly(self: Any, *arguments: Any) -> AsyncIterator[Any]:
        async for chunk in records(self, *arguments):
            for record in chunk:
                await asyncio.sleep(slow_s)
                yield [record]

    monkeypatch.setattr(type(client.internal), "records", slowly)
    journal = await opened(client, timeout_s=5)
    assert journal.machine.count == 20
    await journal.close()
    slow_s = 6.0
    with pytest.raises(RequestTimeout, match="no progress for 5 s"):
        await opened(client, timeout_s=5)
