"""Members of a group whose place is gone: taken by a later instance of their id, or trimmed before they read it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rangelog_core.errors import MemberFenced, MemberNotFound, OffsetTrimmed
from tests.support.waiting import until
from tests.unit.client.consume.test_group_member import GROUP, TOPIC, Members, members, take

pytestmark = pytest.mark.virtual

__all__ = ["members"]


async def test_trimmed_records_are_said_or_skipped(members: Members) -> None:
    """A group whose position was trimmed is not moved silently; a new one begins where the shard begins."""
    topic = await members.cluster.create_topic(TOPIC)
    await members.cluster.append(topic, 0, b"a", b"b", b"c")
    async with members.member() as member:
        await take(aiter(member), 1)
        await member.commit()
    await members.cluster.trim(topic, 0, 2)
    async with members.member() as member:
        with pytest.raises(OffsetTrimmed) as caught:
            await take(aiter(member), 1)
        assert caught.value.offset == 2
    async with members.member(skip_trimmed=True) as member:
        assert [each.value for each in await take(aiter(member), 1)] == [b"c"]
    await members.groups.delete(GROUP)
    async with members.member() as member:
        assert [each.value for each in await take(aiter(member), 1)] == [b"c"]


async def test_a_shard_that_was_trimmed_wholly_is_finished(members: Members) -> None:
    """Without a commit of the application, which gets no record of it."""
    topic = await members.cluster.create_topic(TOPIC)
    await members.cluster.append(topic, 0, b"a")
    await members.cluster.trim(topic, 0, 1)
    (child,) = await members.cluster.scale(topic, [0], 1)
    await members.cluster.append(topic, child, b"b")
    async with members.member() as member:
        assert [each.value for each in await take(aiter(member), 1)] == [b"b"]


async def test_what_was_trimmed_of_an_ended_shard_is_said_or_skipped(members: Members) -> None:
    """As of one that goes on: its successors are read once the member knows, or does not want to."""
    topic = await members.cluster.create_topic(TOPIC)
    await members.cluster.append(topic, 0, b"a", b"b", b"c")
    async with members.member() as member:
        await take(aiter(member), 1)
        await member.commit()
    (child,) = await members.cluster.scale(topic, [0], 1)
    await members.cluster.append(topic, child, b"d")
    await members.cluster.trim(topic, 0, 3)
    topic.shards[0].truncated = True
    for _ in range(2):
        async with members.member() as member:
            with pytest.raises(OffsetTrimmed) as caught:
                await take(aiter(member), 1)
            assert caught.value.offset == 3
        assert [each.is_finished for each in (await members.groups.describe(GROUP)).shards] == [False, False]
    async with members.member(skip_trimmed=True) as member:
        assert [each.value for each in await take(aiter(member), 1)] == [b"d"]
        await member.commit()
    assert [each.is_finished for each in (await members.groups.describe(GROUP)).shards] == [True, False]


async def test_the_later_of_two_instances_is_the_member(members: Members) -> None:
    """A supervisor starts a program anew that only stood still: the earlier instance ends, by whatever it calls next."""
    topic = await members.cluster.create_topic(TOPIC)
    await members.cluster.append(topic, 0, *(b"%d" % number for number in range(6)))
    earlier, waiting, later = (members.member(member_id="m") for _ in range(3))
    await earlier.open()
    records = aiter(earlier)
    assert [each.value for each in await take(records, 2)] == [b"0", b"1"]
    earlier._membership.run = stand_still  # type: ignore[method-assign]
    for task in earlier._tasks:
        task.cancel()
    await waiting.open()  # its heartbeats wait at the broker
    async with later:
        with pytest.raises(MemberFenced, match="another instance"):
            await earlier.commit()
        with pytest.raises(MemberFenced):
            await take(records, 5)
        with pytest.raises(MemberFenced):
            await take(aiter(waiting), 7)
        assert [each.value for each in await take(aiter(later), 6)] == [b"%d" % number for number in range(6)]
        await later.commit()
        await earlier.close()
        await waiting.close()
        assert [each.offset for each in (await members.groups.describe(GROUP)).shards] == [6]
        assert [each.member_id for each in (await members.groups.describe(GROUP)).members] == ["m"]


async def test_an_instance_that_heard_of_its_twin_is_told_of_it_by_every_call(members: Members) -> None:
    """As one that has not heard yet: that its shards were lost is not the news, and nothing was committed."""
    topic = await members.cluster.create_topic(TOPIC)
    await members.cluster.append(topic, 0, b"a", b"b")
    earlier, later = members.member(member_id="m"), members.member(member_id="m")
    await earlier.open()
    await take(aiter(earlier), 1)
    async with later:
        await until(lambda: earlier._membership.failed is not None)
        for _ in range(2):
            with pytest.raises(MemberFenced, match="another instance"):
                await earlier.commit()
        with pytest.raises(MemberFenced, match="another instance"):
            await earlier.stage_positions("program", 1, 1)
        with pytest.raises(MemberFenced, match="another instance"):
            earlier.rewind()
        await earlier.close()


async def stand_still() -> None:
    """In place of heartbeats."""


async def test_a_member_that_joined_again_is_not_taken_for_its_own_twin(members: Members) -> None:
    """A command that was under way while it was taken out, and joined again, is lost, and it goes on."""
    topic = await members.cluster.create_topic(TOPIC)
    await members.cluster.append(topic, 0, b"a", b"b")
    member = members.member()
    await member.open()
    records = aiter(member)
    await take(records, 1)
    commit, held = members.calls.commit, asyncio.Event()

    async def later(*args: Any) -> Any:
        await held.wait()
        return await commit(*args)

    members.calls.commit = later  # type: ignore[method-assign]
    committing = asyncio.create_task(member.commit())
    await asyncio.sleep(0)
    joined = member._membership.joined
    member.rewind()
    await until(lambda: member._membership.joined > joined)
    held.set()
    with pytest.raises(MemberNotFound):
        await committing
    assert [each.value for each in await take(records, 2)] == [b"a", b"b"]
    await member.commit()
