"""Sends under a name by clients and clusters that do what they may: odd names, topics made again, keys in any order."""

from __future__ import annotations

import asyncio
from typing import Any
from unittest import mock

import pytest

from rangelog import AppendRecord, Client, ProducerAck
from rangelog.errors import InvalidArgument, RangelogError
from rangelog_broker.verbs.send import Sends, digest_of
from rangelog_core.batch import check_batch_fields
from rangelog_core.batch_extension import Submission, Tag, decode_submission
from rangelog_core.frame import Frame, Opcode
from rangelog_core.net.data_connection import DataConnection
from rangelog_server_common.quotas.guard import QuotaGuard
from tests.unit.broker.verbs.test_send_once import CALLER, client, read, records, sends

__all__ = ["client", "sends"]


async def test_a_topic_that_is_made_again_takes_the_names_of_the_former_one(client: Client, sends: Sends) -> None:
    """Its records are new ones; what a broker knows of the former topic is over."""
    await sends.send_once(CALLER, "t", records(3), name="n")
    await client.topics.delete("t", force=True)
    await client.topics.create("t", shards=2)
    outcomes = await sends.send_once(CALLER, "t", records(3), name="n")
    assert all(isinstance(each, ProducerAck) for each in outcomes)
    assert await sends.send_once(CALLER, "t", records(3), name="n") == outcomes
    assert len(await read(client)) == 3


async def test_interleaved_keys_are_one_run_at_each_shard(client: Client, sends: Sends) -> None:
    """The window of a shard fills by requests, not by records; outcomes are in the order of the request all the same."""
    submitted: list[Submission] = []
    real = DataConnection.request

    async def look(self: DataConnection, opcode: Opcode, *what: Any, **how: float) -> Frame:
        if opcode is Opcode.PRODUCE:
            header, fields = check_batch_fields(what[1][0])
            submitted.append(decode_submission(fields[Tag.SUBMISSION], header.count))
        return await real(self, opcode, *what, **how)  # type: ignore[arg-type]

    given = [AppendRecord(b"%d" % each, b"k%d" % (each % 500)) for each in range(1_000)]
    with mock.patch.object(DataConnection, "request", look):
        outcomes = await sends.send_once(CALLER, "t", given, name="n")
    assert [len(each.runs) for each in submitted] == [1, 1]
    found = await read(client)
    places = [(each.shard, each.offset) for each in outcomes if isinstance(each, ProducerAck)]
    assert [found[each] for each in places] == [record.value for record in given]
    for number in range(500):  # records of one key are in order
        assert places[number][0] == places[number + 500][0] and places[number] < places[number + 500]


async def test_names_of_any_bytes(sends: Sends) -> None:
    """255 of them, UTF-8 or not."""
    for name in ("ü" * 127 + "x", b"\xff".decode("utf-8", "surrogateescape") * 255):
        first = await sends.send_once(CALLER, "t", records(1), name=name)
        assert await sends.send_once(CALLER, "t", records(1), name=name) == first
    for name in ("ü" * 128, "\ud800"):
        with pytest.raises(InvalidArgument):
            await sends.send_once(CALLER, "t", records(1), name=name)
    assert digest_of("a", "\udcff") != digest_of("a", "ÿ")


@pytest.mark.xfail(strict=True, reason="each shard's owner knows its own part of a submission alone")
async def test_other_records_for_another_shard_are_refused(client: Client, sends: Sends) -> None:
    """Under a name that stands for records of one shard."""
    await sends.send_once(CALLER, "t", [AppendRecord(b"one", b"k0")], name="n")
    for key in range(8):
        await sends.send_once(CALLER, "t", [AppendRecord(b"other", b"k%d" % key)], name="n")
    assert list((await read(client)).values()) == [b"one"]


@pytest.mark.xfail(strict=True, reason="shards that have ended are not asked for submissions")
async def test_a_repeat_to_a_topic_that_was_sealed_meanwhile(client: Client, sends: Sends) -> None:
    """It is in the log: so it has its first places, or an unknown outcome."""
    first = await sends.send_once(CALLER, "t", records(2), name="n")
    await client.topics.seal("t")
    while (await client.topics.describe("t")).state != "sealed":
        await asyncio.sleep(0)
    other = Sends(client, QuotaGuard())
    for each in (sends, other):
        try:
            again = await each.send_once(CALLER, "t", records(2), name="n")
        except RangelogError as error:
            assert error.outcome_unknown
        else:
            assert again == first or all(isinstance(one, RangelogError) and one.outcome_unknown for one in again)
    await other.close()
