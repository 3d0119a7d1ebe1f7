"""Sends under a name over a cluster in memory: once, also at the same time, by other brokers and over scales."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from unittest import mock

import pytest

from rangelog import AppendRecord, Client, ProducerAck
from rangelog.errors import (
    AppendTimeout,
    InvalidArgument,
    Overloaded,
    PreconditionFailed,
    RangelogError,
    RequestTimeout,
    RightMissing,
    RoleForbids,
    TopicNotFound,
    TopicStateForbids,
)
from rangelog.testing import FakeCluster
from rangelog_broker.verbs import send as sending
from rangelog_broker.verbs.caller import Caller
from rangelog_broker.verbs.produce import Batches
from rangelog_broker.verbs.send import NAME_BYTES_MAX, Sends, content_of, digest_of
from rangelog_core.batch import encode_batch
from rangelog_core.batch_extension import Submission, Tag, encode_extension, encode_submission
from rangelog_core.frame import Opcode
from rangelog_core.limits import RECORD_SIZE_BYTES_MAX
from rangelog_core.net.data_connection import DataConnection
from rangelog_core.net.principals import Principal, Role
from rangelog_server_common.quotas.guard import QuotaGuard
from rangelog_server_common.rights.guard import RightsGuard

CALLER = Caller(RightsGuard(), lambda *_: None)


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    """A client of a cluster with a topic "t" of two shards."""
    with FakeCluster(brokers=2) as cluster:
        async with cluster.client() as made:
            await made.topics.create("t", shards=2)
            yield made


@pytest.fixture
async def sends(client: Client) -> AsyncIterator[Sends]:
    """The verb."""
    made = Sends(client, QuotaGuard())
    yield made
    await made.close()


def records(count: int, *, keyed: bool = True) -> list[AppendRecord]:
    """Records with a key each."""
    return [AppendRecord(b"%d" % each, b"k%d" % each if keyed else None) for each in range(count)]


async def read(client: Client, topic: str = "t") -> dict[tuple[int, int], bytes]:
    """What is in a topic, by place."""
    return {(record.shard_id, record.offset): record.value async for record in client.topic_reader(topic)}


@pytest.mark.parametrize("keyed", [True, False])
async def test_what_is_sent_again_has_its_first_places(client: Client, sends: Sends, keyed: bool) -> None:
    """At the same time and later; without keys too, and by another broker."""
    given = records(300, keyed=keyed)
    first, second = await asyncio.gather(*(sends.send_once(CALLER, "t", given, name="n") for _ in range(2)))
    other = Sends(client, QuotaGuard())
    third = await other.send_once(CALLER, "t", given, name="n")
    await other.close()
    assert first == second == third
    found = await read(client)
    assert len(found) == 300
    assert [found[each] for each in first if isinstance(each, ProducerAck)] == [record.value for record in given]
    assert len({each.shard for each in first if isinstance(each, ProducerAck)}) == 1 + keyed


async def test_records_of_one_key_are_in_order(client: Client, sends: Sends) -> None:
    """Also where they are more than one batch."""
    given = [AppendRecord(bytes([each]) * 300_000, b"k") for each in range(12)]
    outcomes = await sends.send_once(CALLER, "t", given, name="n")
    offsets = [each.offset for each in outcomes if isinstance(each, ProducerAck)]
    assert len(offsets) == 12 and offsets == sorted(offsets)


async def test_other_names_callers_and_contents(client: Client, sends: Sends) -> None:
    """Another name, or the same one of another caller, sends again; other records under it are refused, each of them."""
    given = records(3)
    first = await sends.send_once(CALLER, "t", given, name="n")
    assert await sends.send_once(CALLER, "t", given, name="m") != first
    other = Caller(RightsGuard(), lambda *_: None)
    other.admitted(Principal(Role.CLIENT, "other"))
    assert await sends.send_once(other, "t", given, name="n") != first
    refused = await sends.send_once(CALLER, "t", [*given, AppendRecord(b"more", b"k0")], name="n")
    assert {type(each) for each in refused} == {PreconditionFailed}
    assert not any(each.outcome_unknown for each in refused if isinstance(each, PreconditionFailed))
    assert len(await read(client)) == 9


async def test_a_bad_record_has_its_error_and_the_others_are_in(client: Client, sends: Sends) -> None:
    """Each time."""
    given = [AppendRecord(b"a"), AppendRecord(b"x" * (RECORD_SIZE_BYTES_MAX + 1)), AppendRecord(b"b")]
    for _ in range(2):
        outcomes = await sends.send_once(CALLER, "t", given, name="n")
        assert [getattr(each, "code", "acked") for each in outcomes] == ["acked", "RECORD_TOO_LARGE", "acked"]
    assert sorted((await read(client)).values()) == [b"a", b"b"]


async def test_a_repeat_over_a_split(client: Client, sends: Sends) -> None:
    """It is found in the shards that follow; what is new goes there."""
    first = await sends.send_once(CALLER, "t", records(8), name="n")
    await client.topics.scale("t", [0, 1], 4)
    assert await sends.send_once(CALLER, "t", records(8), name="n") == first
    more = await sends.send_once(CALLER, "t", records(8), name="m")
    assert {each.shard for each in more if isinstance(each, ProducerAck)} <= {2, 3, 4, 5}
    assert len(await read(client)) == 16


async def test_refusals_before_anything_is_sent(client: Client, sends: Sends) -> None:
    """Names, topics, rights, bounds."""
    for name in ("", "x" * (NAME_BYTES_MAX + 1)):
        with pytest.raises(InvalidArgument):
            await sends.send_once(CALLER, "t", records(1), name=name)
    with pytest.raises(TopicNotFound):
        await sends.send_once(CALLER, "missing", records(1), name="n")
    with mock.patch.object(sending, "SUBMITTED_BYTES_MAX", 1), pytest.raises(Overloaded):
        await sends.send_once(CALLER, "t", records(1), name="n")
    with mock.patch.object(RightsGuard, "require", side_effect=RightMissing("no")), pytest.raises(RightMissing):
        await sends.send_once(CALLER, "t", records(1), name="n")
    assert await read(client) == {}


async def test_a_topic_that_is_sealed_meanwhile(client: Client, sends: Sends) -> None:
    """What is new is refused for good; nothing of it is in a log."""
    await sends.send_once(CALLER, "t", records(2), name="n")
    await client.topics.seal("t")
    while (await client.topics.describe("t")).state != "sealed":
        await asyncio.sleep(0)
    outcomes = await sends.send_once(CALLER, "t", records(2), name="m")
    assert {type(each) for each in outcomes} == {TopicStateForbids}
    assert len(await read(client)) == 2


async def test_a_topic_that_was_made_again(client: Client, sends: Sends) -> None:
    """What is sent under the same name goes to the new one: the old one's records are gone."""
    await sends.send_once(CALLER, "t", records(1), name="n")
    await client.topics.delete("t", force=True)
    with pytest.raises(TopicNotFound):
        while True:  # its owner answers for a moment longer
            await sends.send_once(CALLER, "t", records(1), name="n")
    await client.topics.create("t")
    (outcome,) = await sends.send_once(CALLER, "t", records(1), name="n")
    assert outcome == ProducerAck(0, 0)
    assert await read(client) == {(0, 0): b"0"}


def test_digests_tell_callers_and_contents_apart() -> None:
    """Neither is a prefix of another one's."""
    assert digest_of("a", "bc") != digest_of("ab", "c") != digest_of("", "abc")
    some = [AppendRecord(b"a", b"b")]
    others = [
        [AppendRecord(b"ab", b"")], [AppendRecord(b"a", None, {"b": b""})], [AppendRecord(b"a")],
        [AppendRecord(b"a", b"b", None, 5)],
        [AppendRecord(b"a", b"b"), AppendRecord(b"")], [AppendRecord(b"", None), AppendRecord(b"a", b"b")],
    ]  # fmt: skip
    assert len({content_of(each) for each in [some, *others]}) == 7
    assert content_of([AppendRecord(memoryview(b"a"), bytearray(b"b"))]) == content_of(some)


async def test_a_request_that_is_late_has_an_unknown_outcome(client: Client, sends: Sends) -> None:
    """Its batch may be in the log, or be there later; sent again under its name it has a place, one in all."""
    real, lost = DataConnection.request, 0

    async def no_answer(self: DataConnection, opcode: Opcode, *arguments: object, **options: object) -> object:
        nonlocal lost
        answer = await real(self, opcode, *arguments, **options)  # type: ignore[arg-type]
        if opcode is Opcode.PRODUCE:
            lost += 1
            raise RequestTimeout("lost")
        return answer

    with mock.patch.object(DataConnection, "request", no_answer), mock.patch.object(sending, "SEND_TIMEOUT_S", 0.5):
        outcomes = await sends.send_once(CALLER, "t", records(2), name="n")
    assert lost > 1
    assert [(type(each), each.outcome_unknown) for each in outcomes if isinstance(each, RangelogError)] == [
        (AppendTimeout, True)
    ] * 2
    again = await sends.send_once(CALLER, "t", records(2), name="n")
    assert all(isinstance(each, ProducerAck) for each in again)
    assert sorted((await read(client)).values()) == [b"0", b"1"]


def test_clients_submit_by_no_digest_of_their_own() -> None:
    """They would take the names of others; brokers, and where nobody is known, may."""
    fields = encode_extension({Tag.SUBMISSION: encode_submission(Submission(bytes(16), 1, ((0, 1),)))})
    batch = encode_batch(stream_id=0, range_index=0, epoch=0, base_offset=0, timestamps_ms=[5], values=[b"x"],
                         extension=fields)  # fmt: skip
    shards = mock.Mock(changing=lambda *_: None)
    for role, taken in ((Role.CLIENT, False), (Role.ADMIN, False), (Role.BROKER, True), (None, True)):
        caller = Caller(RightsGuard(), lambda *_: None)
        caller.admitted(Principal(role, "a") if role is not None else None)
        shards.reset_mock()
        if taken:
            Batches(shards).produce(caller, 1, 0, batch, mock.Mock(), 1)
        else:
            with pytest.raises(RoleForbids):
                Batches(shards).produce(caller, 1, 0, batch, mock.Mock(), 1)
        assert shards.owned.return_value.produce.call_count == taken
