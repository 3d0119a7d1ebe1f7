"""Whether everything that brokers own opens again: damage that only the next owner of a journal or shard meets.

What holds:
- Each coordinator journal, each partition of a table and each current shard gets a question that only its open owner answers;
  of each shard that has ended the final table is asked for. No question changes anything.
- What does not answer in time is a verdict (`AssertionError`, with the keys and the last errors), not a wait that ran out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

import rangelog
from rangelog.errors import OutcomeUnknown, OutOfOrder, ProducerFenced, RangelogError
from rangelog_cli.local.processes import Cluster
from rangelog_core.batch_extension import Producer
from rangelog_core.frame import Opcode
from rangelog_core.net.owner_calls import JOURNALS, OwnedKey
from rangelog_proto.v1 import data_pb2, group_service_pb2, table_service_pb2
from rangelog_proto.v1.group_service_pb2_grpc import GroupsStub
from rangelog_proto.v1.table_service_pb2_grpc import TablesStub
from tests.support.owner_cluster import made_batch
from tests.support.waiting import until_arrived

WITHIN_S = 60.0
_TRY_S = 2.0
_NOBODY = Producer((1 << 62) + 1, 0, 5)
"""Its first five batches were never sent: an open shard answers OUT_OF_ORDER."""

Question = Callable[[], Awaitable[object]]


async def everything_opens(cluster: Cluster, within_s: float = WITHIN_S) -> int:
    """Kill and start every broker of a cluster of processes; return how many journals and shards then open."""
    for name in cluster.brokers:
        await asyncio.to_thread(cluster.kill, name)
    for name in cluster.brokers:
        await asyncio.to_thread(cluster.start_member, name)
    async with await rangelog.connect(cluster.connect_string, tls=cluster.tls) as client:
        return await all_answer(client, within_s)


async def all_answer(client: rangelog.Client, within_s: float = WITHIN_S) -> int:
    """Ask the owner of everything until it has answered; return how many questions there were."""
    questions = await _questions(client)
    count = len(questions)

    async def closed() -> dict[OwnedKey, str]:
        found = await asyncio.gather(*(_problem(ask) for ask in questions.values()))
        problems = {key: problem for key, problem in zip(list(questions), found, strict=True) if problem}
        for key in [each for each in questions if each not in problems]:
            del questions[key]
        return problems

    await until_arrived(closed, {}, "journals (0, n) and shards (topic, n) that do not open", within_s)
    return count


async def _questions(client: rangelog.Client) -> dict[OwnedKey, Question]:
    questions: dict[OwnedKey, Question] = {(0, n): partial(_ask_journal, client, n) for n in range(JOURNALS)}
    async for topic in client.topics.list(include_tables=True):
        if topic.state == "deleting":
            continue
        ask = _ask_partition if topic.kind == "table" else _ask_shard
        for shard in await client.topics.shards(topic.name, include_ended=True):
            key = topic.topic_id, shard.shard_id
            questions[key] = partial(ask if shard.is_current else _ask_ended, client, key)
    return questions


async def _problem(ask: Question) -> str:
    try:
        await ask()
    except RangelogError as error:
        return repr(error)
    return ""


async def _ask_journal(client: rangelog.Client, number: int) -> None:
    request = group_service_pb2.ListGroupsRequest(journal=number, page_size=1)
    await client._owner_calls.call(
        (0, number), GroupsStub, lambda stub: stub.ListGroups, request, timeout_s=_TRY_S, repeatable=True
    )


async def _ask_partition(client: rangelog.Client, key: OwnedKey) -> None:
    request = table_service_pb2.ScanTableRequest(topic_id=key[0], shard_id=key[1], limit=1)
    await client._owner_calls.call(key, TablesStub, lambda stub: stub.Scan, request, timeout_s=_TRY_S, repeatable=True)


async def _ask_shard(client: rangelog.Client, key: OwnedKey) -> None:
    connection = await client._owners.connect(await client._owners.find(key))
    message = data_pb2.Produce(topic_id=key[0], shard_id=key[1]).SerializeToString()
    try:
        await connection.request(Opcode.PRODUCE, message, [made_batch(_NOBODY, b"?")], timeout_s=_TRY_S)
    except OutOfOrder:
        return
    raise AssertionError(f"shard {key} has taken a batch without those before it")


async def _ask_ended(client: rangelog.Client, key: OwnedKey) -> None:
    connection = await client._owners.any_broker(0)
    wanted = data_pb2.FindBatch(topic_id=key[0], shard_id=key[1], producer_id=_NOBODY.producer_id, sequence=5)
    try:
        await connection.request(Opcode.FIND_BATCH, wanted.SerializeToString(), timeout_s=_TRY_S)
    except (OutcomeUnknown, ProducerFenced):
        pass
