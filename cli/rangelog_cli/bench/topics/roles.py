"""What a client process does: `python -m rangelog_cli.bench.topics.roles ROLE`, with orders on standard input.

What holds: a role answers on standard output, once it is ready and once for each order; a failure ends the process, with the
error as the last line of standard error.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import rangelog
from rangelog import Client
from rangelog_cli.bench.loop import run_on_loop
from rangelog_cli.local.lifeline import follow_parent

_LINE_BYTES_MAX = 1 << 24


class Orders:
    """The parent's lines."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader

    @classmethod
    async def open(cls) -> Orders:
        """Read standard input from now on."""
        reader = asyncio.StreamReader(limit=_LINE_BYTES_MAX)
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        return cls(reader)

    async def next(self) -> dict[str, Any] | None:
        """Return the next order; None: there is none any more."""
        line = await self._reader.readline()
        return json.loads(line) if line else None


def answer(content: Mapping[str, object]) -> None:
    """Send a line to the parent."""
    sys.stdout.write(json.dumps(dict(content)) + "\n")
    sys.stdout.flush()


Role = Callable[[Client, dict[str, Any], Orders], Awaitable[None]]


async def _run(role: Role) -> None:
    orders = await Orders.open()
    settings = await orders.next()
    if settings is not None:
        async with await rangelog.connect(settings["endpoints"]) as client:
            await role(client, settings, orders)


def main() -> None:
    """Entry point of a client process."""
    follow_parent()
    from rangelog_cli.bench.topics.roles_of_groups import be_member
    from rangelog_cli.bench.topics.roles_of_journals import keep_journal, use_table
    from rangelog_cli.bench.topics.roles_of_producers import produce_flat_out, produce_one_by_one
    from rangelog_cli.bench.topics.roles_of_transactions import transact

    roles: dict[str, Role] = {
        "flat-out": produce_flat_out,
        "one-by-one": produce_one_by_one,
        "member": be_member,
        "journal": keep_journal,
        "table": use_table,
        "transact": transact,
    }
    run_on_loop(lambda: _run(roles[sys.argv[1]]))


if __name__ == "__main__":
    main()
