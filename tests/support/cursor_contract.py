"""What a client shows its user of cursors; a part of the suite in client_contract.py."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from rangelog import Client, Cursor, CursorReader, errors
from tests.support.waiting import Seen, until

FINAL_S = 20.0


async def numbered(client: Client, stream: str, count: int, first: int = 0) -> None:
    """Append so many records, each with its offset as its value."""
    async with client.writer(stream) as writer:
        await writer.append_batch([b"%d" % number for number in range(first, first + count)])


async def take(reader: CursorReader, count: int) -> list[int]:
    """The offsets of the next records, so many or all."""
    found: list[int] = []
    async for record in reader:
        assert record.value == b"%d" % record.offset
        found.append(record.offset)
        if len(found) == count:
            break
    return found


async def offset_of(client: Client, stream: str, name: str = "billing") -> int | None:
    found = await client.cursors(stream).get(name)
    return found.offset if found is not None else None


async def once_the_end_is_known(call: Callable[[], Awaitable[Cursor]]) -> Cursor:
    """Repeat a call while the replicas of the last range do not answer, as a program may."""

    async def answered() -> Cursor | None:
        try:
            return await call()
        except errors.Unavailable as error:
            assert error.retriable and not error.outcome_unknown
            return None

    found: Cursor = await until(answered, "the end is not known", FINAL_S)
    return found


async def until_offset(client: Client, stream: str, wanted: int) -> None:
    """Wait until the cursor is there."""

    async def is_there() -> Seen:
        found = await offset_of(client, stream)
        return Seen(found == wanted, found)

    await until(is_there, f"the cursor is not at {wanted}", FINAL_S)


class CursorContract:
    """All of it."""

    # ---- set, get, list, delete

    async def test_a_cursor_is_set_got_listed_and_deleted(self, client: Client, stream: str) -> None:
        """By name in its stream; what is not there is None, and its deletion no error."""
        await client.create_stream(stream)
        await numbered(client, stream, 10)
        cursors = client.cursors(stream)
        assert await cursors.get("billing") is None
        made = await cursors.set("billing", 3, metadata="né")
        assert (made.name, made.offset, made.metadata, made.expired) == ("billing", 3, "né", False)
        assert made.stream_id == (await client.describe_stream(stream)).stream_id
        assert made.set_ms >= made.created_ms
        assert await cursors.get("billing") == made
        await cursors.set("audit", 0)
        assert [each.name async for each in cursors.list()] == ["audit", "billing"]
        assert await cursors.delete("billing") is True
        assert await cursors.delete("billing") is False
        assert [each.name async for each in cursors.list()] == ["audit"]

    async def test_a_cursor_moves_forward_unless_a_version_is_expected(self, client: Client, stream: str) -> None:
        """A late set changes nothing; with the version of the cursor it moves anywhere, once."""
        await client.create_stream(stream)
        await numbered(client, stream, 10)
        cursors = client.cursors(stream)
        first = await cursors.set("billing", 5)
        assert await cursors.set("billing", 4) == first
        back = await cursors.set("billing", 2, expected_version=first.version)
        assert back.offset == 2 and back.version != first.version
        with pytest.raises(errors.PreconditionFailed):
            await cursors.set("billing", 0, expected_version=first.version)
        with pytest.raises(errors.PreconditionFailed):
            await cursors.set("billing", 0, expected_version=0)
        with pytest.raises(errors.PreconditionFailed):
            await cursors.delete("billing", expected_version=first.version)
        assert await offset_of(client, stream) == 2
        assert await cursors.delete("billing", expected_version=back.version)
        assert (await cursors.set("billing", 0, expected_version=0)).version not in (first.version, back.version)

    async def test_a_cursor_lies_within_its_stream(self, client: Client, stream: str) -> None:
        """Not below the trim offset, nor beyond the acked records; the error has the nearest offset."""
        await client.create_stream(stream)
        cursors = client.cursors(stream)
        with pytest.raises(errors.OffsetOutOfRange):
            await cursors.set("billing", 1)
        await numbered(client, stream, 10)
        with pytest.raises(errors.OffsetOutOfRange) as beyond:
            await once_the_end_is_known(lambda: cursors.set("billing", 11))
        assert beyond.value.offset == 10
        assert (await cursors.set("billing", 10)).offset == 10
        await client.seal_stream(stream)
        await client.trim_stream(stream, 4)
        with pytest.raises(errors.OffsetTrimmed) as below:
            await cursors.set("late", 3)
        assert below.value.offset == 4

    async def test_a_bad_argument_of_a_cursor_is_refused(self, client: Client, stream: str) -> None:
        """Before anything is sent."""
        await client.create_stream(stream)
        cursors = client.cursors(stream)
        for call in (
            cursors.set("a/b", 0),
            cursors.get(""),
            cursors.set("billing", -1),
            cursors.set("billing", True),
            cursors.set("billing", 0, metadata="x" * 513),
            cursors.set("billing", 0, metadata="\ud800"),
            cursors.set("billing", 0, expected_version=-1),
        ):
            with pytest.raises(errors.InvalidArgument):
                await call
        for options in ({"cursor": "a b"}, {"cursor": "x", "auto_commit_s": 0}, {"auto_commit_s": 1.0}):
            with pytest.raises(errors.InvalidArgument):
                client.reader(stream, **options)  # type: ignore[call-overload]

    async def test_many_sets_at_once_have_an_answer_each(self, client: Client, stream: str) -> None:
        """In the order in which they were asked, also of one cursor; one that fails does not keep the others."""
        await client.create_stream(stream)
        await numbered(client, stream, 10)
        await client.seal_stream(stream)
        await client.trim_stream(stream, 2)
        cursors = client.cursors(stream)
        await cursors.get("c0")
        asked = [cursors.set(f"c{number % 20}", 2 + number // 20) for number in range(60)]
        answers = await asyncio.gather(*asked, cursors.set("low", 1), return_exceptions=True)
        assert isinstance(answers.pop(), errors.OffsetTrimmed)
        assert [each.offset for each in answers if isinstance(each, Cursor)] == [2] * 20 + [3] * 20 + [4] * 20

    async def test_a_cursor_is_of_its_stream_and_not_of_a_namesake(self, client: Client, stream: str) -> None:
        """A stream that is made anew under the name has no cursors; a reader and a handle of the former one fail."""
        await client.create_stream(stream)
        await numbered(client, stream, 10)
        cursors = client.cursors(stream)
        await cursors.set("billing", 5)
        reader = client.reader(stream, cursor="billing")
        assert await take(reader, 2) == [5, 6]
        await client.delete_stream(stream)
        await client.create_stream(stream)
        await numbered(client, stream, 10)
        assert await offset_of(client, stream) is None
        with pytest.raises(errors.StreamNotFound):
            await reader.commit()
        for call in (
            cursors.set("billing", 7),
            cursors.set("billing", 0),
            cursors.get("billing"),
            cursors.delete("billing"),
        ):
            with pytest.raises(errors.StreamNotFound):
                await call
        assert await offset_of(client, stream) is None
        assert await take(client.reader(stream, cursor="billing"), 1) == [0]

    # ---- readers

    async def test_a_reader_goes_on_behind_what_was_committed(self, client: Client, stream: str) -> None:
        """Where there is no cursor it begins at `start`; the last record handed out is part of a commit."""
        await client.create_stream(stream)
        await numbered(client, stream, 10)
        reader = client.reader(stream, cursor="billing", start=2)
        assert await take(reader, 3) == [2, 3, 4]
        assert await offset_of(client, stream) is None, "nothing is committed by itself"
        committed = await reader.commit(metadata="m")
        assert (committed.offset, committed.metadata) == (5, "m")
        again = client.reader(stream, cursor="billing", start=0)
        assert await take(again, 100) == [5, 6, 7, 8, 9]
        assert (await again.commit()).offset == 10
        assert await take(client.reader(stream, cursor="billing"), 1) == []

    async def test_a_commit_before_the_first_record_keeps_the_place(self, client: Client, stream: str) -> None:
        """A consumer that begins at the end begins there again."""
        await client.create_stream(stream)
        await numbered(client, stream, 4)
        assert (await client.reader(stream, cursor="billing", start="latest").commit()).offset == 4
        await numbered(client, stream, 2, first=4)
        assert await take(client.reader(stream, cursor="billing", start="latest"), 9) == [4, 5]

    async def test_chunks_are_handed_out_whole(self, client: Client, stream: str) -> None:
        """A commit while a chunk is in hand covers it."""
        await client.create_stream(stream)
        await numbered(client, stream, 50)
        reader = client.reader(stream, cursor="billing")
        count = 0
        async for chunk in reader.chunks():
            count += len(chunk)
            assert (await reader.commit()).offset == count
        assert count == 50

    async def test_automatic_commits_cover_what_is_processed(self, client: Client, stream: str) -> None:
        """The record in hand is not; at the end all is."""
        await client.create_stream(stream)
        await numbered(client, stream, 10)
        reader = client.reader(stream, cursor="billing", auto_commit_s=0.01)
        async for record in reader:
            if record.offset == 4:
                await until_offset(client, stream, 4)
            if record.offset == 9:
                await until_offset(client, stream, 9)
        assert await offset_of(client, stream) == 10

    async def test_a_cursor_below_the_trim_offset_is_not_passed_over_in_silence(
        self, client: Client, stream: str
    ) -> None:
        """Its consumer hears of it, and may set the cursor to where the stream begins."""
        await client.create_stream(stream)
        await numbered(client, stream, 10)
        cursors = client.cursors(stream)
        await cursors.set("billing", 3)
        await client.seal_stream(stream)
        await client.trim_stream(stream, 6)
        with pytest.raises(errors.OffsetTrimmed, match="billing") as caught:
            await take(client.reader(stream, cursor="billing"), 1)
        assert caught.value.offset == 6
        await cursors.set("billing", 6)
        assert await take(client.reader(stream, cursor="billing"), 1) == [6]

    async def test_a_commit_without_an_answer_may_be_repeated(self, client: Client, stream: str) -> None:
        """The same position again gives the same cursor; a consumer behind another one takes nothing back."""
        await client.create_stream(stream)
        await numbered(client, stream, 10)
        slow, fast = client.reader(stream, cursor="billing"), client.reader(stream, cursor="billing")
        await take(slow, 2)
        await take(fast, 6)
        committed = await fast.commit()
        again = await fast.commit()
        assert (again.offset, again.version) == (6, committed.version)
        assert (await slow.commit()).offset == 6
        assert await offset_of(client, stream) == 6
