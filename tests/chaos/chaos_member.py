"""A client process that reads the topic as a member of its group, and notes what it is handed.

Lines: ["gained", shard], ["got", shard, first offset, one past the last, the generation of the hand-out]. SIGTERM: commit,
leave, end. A member whose id another instance has taken notes ["fenced", words] and ends by itself.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

if not __package__:  # run by its path: imports begin at the project's folder
    sys.path[0] = str(Path(__file__).resolve().parents[2])

import rangelog
from rangelog import GroupListener, ShardOfTopic
from rangelog.errors import MemberFenced, RangelogError
from rangelog_cli.local.lifeline import follow_parent
from tests.chaos.chaos_topic_notes import GROUP, TOPIC, Notes, ProgressFile, name_of

SESSION_S = 3.0
AUTO_COMMIT_S = 0.2
REJOIN_PAUSE_S = 0.2


class _Listener(GroupListener):
    def __init__(self, notes: Notes) -> None:
        self._notes = notes

    async def gained(self, shards: Sequence[ShardOfTopic]) -> None:
        """See GroupListener."""
        self._notes.note(*(("gained", shard.shard_id) for shard in shards))


async def consume(options: argparse.Namespace) -> None:
    """The whole life of the process."""
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    notes, progress = Notes(options.history), ProgressFile(options.pulse)
    async with await rangelog.connect(options.pds) as client:
        while not stopping.is_set():
            member = client.group(
                GROUP,
                TOPIC,
                member_id=options.member_id,
                session_s=SESSION_S,
                auto_commit_s=AUTO_COMMIT_S,
                listener=_Listener(notes),
            )
            try:
                async with member:
                    ending = asyncio.create_task(_close_at(stopping, member))
                    try:
                        async for chunk in member.chunks():
                            first, end = chunk.records[0].offset, chunk.records[-1].offset + 1
                            notes.note(("got", chunk.shard_id, first, end, _since(member, chunk.shard_id)))
                            for record in chunk.records:
                                name = name_of(record.value)
                                if name is not None:
                                    progress.done(name.key, name.number)
                        await ending
                    finally:
                        ending.cancel()
            except MemberFenced as error:
                print(f"{options.name}: {error!r}", flush=True)
                notes.note(("fenced", error.message))
                return
            except RangelogError as error:
                print(f"{options.name}: {error!r}", flush=True)
                notes.note(("stopped", repr(error)))
                await asyncio.sleep(REJOIN_PAUSE_S)


def _since(member: rangelog.GroupMember, shard_id: int) -> int:
    """The generation in which the group handed a shard to this member: no part of the interface, and what a checker needs."""
    core: Any = member._core
    return int(next(held.since for shard, held in core._held.items() if shard.shard_id == shard_id))


async def _close_at(stopping: asyncio.Event, member: rangelog.GroupMember) -> None:
    await stopping.wait()
    await member.close()


def main() -> None:
    """Entry point of the child process."""
    follow_parent()
    parser = argparse.ArgumentParser()
    for name in ("pds", "name", "member-id"):
        parser.add_argument(f"--{name}", required=True)
    for name in ("history", "pulse"):
        parser.add_argument(f"--{name}", required=True, type=Path)
    asyncio.run(consume(parser.parse_args()))


if __name__ == "__main__":
    main()
