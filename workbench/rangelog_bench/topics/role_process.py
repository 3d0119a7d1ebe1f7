"""A client process: `python -m rangelog_bench.topics.role_process ROLE`."""

from __future__ import annotations

import sys

import rangelog
from rangelog_bench.loop import run_on_loop
from rangelog_bench.topics.roles import Orders, Role
from rangelog_bench.topics.roles_of_groups import be_member
from rangelog_bench.topics.roles_of_journals import keep_journal, use_table
from rangelog_bench.topics.roles_of_producers import produce_flat_out, produce_one_by_one
from rangelog_bench.topics.roles_of_transactions import transact
from rangelog_cli.local.lifeline import follow_parent


async def _run(role: Role) -> None:
    orders = await Orders.open()
    settings = await orders.next()
    if settings is not None:
        async with await rangelog.connect(settings["endpoints"]) as client:
            await role(client, settings, orders)


def main() -> None:
    """Entry point of a client process."""
    follow_parent()
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
