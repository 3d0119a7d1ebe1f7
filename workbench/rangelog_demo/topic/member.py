"""A member process of the second scene's group: counts the flights that it is given, per carrier, in a table."""

from __future__ import annotations

import argparse
import asyncio
import signal
from contextlib import aclosing, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from rangelog_cli.local.lifeline import follow_parent
from rangelog_demo.children import DemoChild, run_loop, write_status
from rangelog_demo.topic.counting import ConditionalCounting, Counting
from rangelog_demo.topic.deliveries import DeliveryLog

if TYPE_CHECKING:
    from rangelog import GroupMember

MEMBERS = 3
SESSION_S = 3.0
"""A killed member's shards go to others after so long."""
COMMIT_EVERY_S = 0.5


class MemberProcess(DemoChild):
    """One member of the group, and its files. It stands by when it has joined, and needs no `go`."""

    def __init__(self, name: str, directory: Path, pds: str, group: str, topic: str, table: str) -> None:
        self.deliveries = directory / f"{name}.deliveries"
        arguments = ["--pds", pds, "--group", group, "--topic", topic, "--table", table]
        arguments += ["--name", name, "--deliveries", str(self.deliveries)]
        super().__init__(name, directory, "rangelog_demo.topic.member", arguments)


async def take_part(pds: str, group: str, topic: str, table: str, name: str, deliveries: Path, status: Path) -> None:
    """The whole life of a member process: until SIGTERM."""
    import rangelog

    task = asyncio.current_task()
    if task is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    log = DeliveryLog(deliveries)
    with suppress(asyncio.CancelledError):
        async with await rangelog.connect(pds) as client:
            counting = ConditionalCounting(client.table(table))
            joining = client.group(group, topic, member_id=name, session_s=SESSION_S, auto_commit_s=COMMIT_EVERY_S)
            async with joining as member:
                write_status(status, state="ready")
                await _count_all(member, counting, log)
    log.close()


async def _count_all(member: GroupMember, counting: Counting, log: DeliveryLog) -> None:
    """A delivery is processed, so that its position may be committed, when the next one is asked for."""
    async with aclosing(member.chunks()) as chunks:
        async for chunk in chunks:
            first_offset = chunk.records[0].offset
            log.delivered(chunk.shard_id, first_offset, first_offset + len(chunk.records))
            await counting.count(chunk.shard_id, first_offset, [record.key or b"" for record in chunk.records])


def main() -> None:
    """Entry point of the child process."""
    follow_parent()
    parser = argparse.ArgumentParser()
    for name in ("pds", "group", "topic", "table", "name"):
        parser.add_argument(f"--{name}", required=True)
    for name in ("deliveries", "status"):
        parser.add_argument(f"--{name}", required=True, type=Path)
    options = parser.parse_args()
    run_loop(
        take_part(
            options.pds,
            options.group,
            options.topic,
            options.table,
            options.name,
            options.deliveries,
            options.status,
        )
    )


if __name__ == "__main__":
    main()
