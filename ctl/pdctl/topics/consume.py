"""`pdctl topic consume`: the records of a topic, as a plain reader or as a member of a group.

What holds: a group's position is committed only behind records that were written and flushed to standard output, so a record
may be printed again after a failure, and none is left out.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import click

from pdctl.record_formats import OUTPUTS
from pdctl.record_output import READ_PREFERENCE, RecordPrinter
from pdctl.session import Session, output_option, session_of
from pdctl.topics.options import table_instead, topic_argument
from pdctl.topics.places import CutFileType, PlaceType
from pdctl.units import Duration
from rangelog_core.ids import check_name
from rangelog_core.topic_names import TopicName

if TYPE_CHECKING:
    from rangelog import Client

_COMMIT_S = 1.0
_SHAPE_OF = {"table": "text", "json": "json", "yaml": "yaml", "raw": "value"}


@click.command()
@topic_argument
@click.option("--from", "start", type=PlaceType(("earliest", "latest")), default="earliest", show_default=True,
              metavar="earliest|latest|TIME|FILE",
              help="FILE: with a cut. For a group: where it begins if it has not read the topic before.")  # fmt: skip
@click.option("--to-cut", "end", type=CutFileType(), metavar="FILE", help="Stop at this cut.")
@click.option("-f", "--follow", is_flag=True, help="Wait for more, in new shards too, until Ctrl-C.")
@click.option("--group", metavar="GROUP", help="Share the shards with the members of this group, and commit; follows.")
@click.option("--count", "count_max", type=click.IntRange(min=1), help="Stop after this many records.")
@click.option(
    "--idle", "idle_ms", type=Duration(), metavar="DURATION", help="Stop when no record has come for so long."
)
@click.option("--read-preference", type=READ_PREFERENCE, help="Without --group.  [default: hot_first]")
@click.option("--format", "shape", type=click.Choice(OUTPUTS),
              help="In place of -o. text: shard, offset, time, key and value. value: the bytes and a newline. json: an object "
              "per record. raw: the values' bytes alone. prefixed: four bytes of length before each value.")  # fmt: skip
@output_option(more=("raw",))
@session_of
@table_instead("see `pdctl table scan` and `pdctl table watch`")
def consume(
    session: Session,
    name: TopicName,
    start: Any,
    end: Any,
    follow: bool,
    group: str | None,
    count_max: int | None,
    idle_ms: int | None,
    read_preference: str | None,
    shape: str | None,
    output: str,
) -> None:
    """Print the records of a topic. Those of one key are in order; those of different shards are in none.

    Without --follow and --group it ends with the records that are acked when it starts. With --group positions are committed
    each second and at the end, behind what is printed.

    \b
    -o table: as --format text. json: an object per line. yaml: one list. raw: as --format value. `pdctl topic produce` and
    `pdctl stream append` read the output of --format json, raw and prefixed.

    \b
    Examples:
      pdctl topic consume flights --count 10
      pdctl topic consume flights --from 2026-01-31T12:00Z --to-cut now.json -o json
      pdctl topic consume flights --group billing --format value
      pdctl topic consume flights --format json | pdctl topic produce copy --format json
    """
    if group is not None:
        if end is not None or read_preference is not None:
            raise click.UsageError("--to-cut and --read-preference do not go with --group")
        check_name("group", group)
    shape = shape or _SHAPE_OF[output]
    out = RecordPrinter(shape, count_max, escapes=shape == "text")

    async def work(client: Client) -> None:
        from rangelog import TopicRecord

        await client.topics.describe(str(name), timeout_s=session.timeout_s)  # fails in time if nobody answers
        if group is not None:
            await _consume_in_group(client, str(name), group, start, out, idle_ms)
            return
        reader = client.topic_reader(
            str(name),
            start=start,
            end=end,
            follow=follow,
            read_preference=read_preference or "hot_first",
            timeout_s=session.timeout_s,
        )
        async with aclosing(reader.chunks()) as chunks:
            async for chunk in _until_idle(chunks, idle_ms):
                if out.write_chunk(TopicRecord(chunk.shard_id, *record) for record in chunk.records):
                    return

    session.with_client(work)


async def _consume_in_group(
    client: Client, topic: str, group: str, start: Any, out: RecordPrinter, idle_ms: int | None
) -> None:
    """Print as a member. A record counts as processed when the next one is asked for: by then it was flushed."""
    member = client.group(group, topic, start=start, auto_commit_s=_COMMIT_S)
    try:
        await member.open()
        async with aclosing(aiter(member)) as records:  # type: ignore[type-var]
            async for record in _until_idle(records, idle_ms):
                if record.topic == topic and out.write_chunk([record]):
                    await member.commit()
                    return
    finally:
        await member.close()


async def _until_idle(items: AsyncIterator[Any], idle_ms: int | None) -> AsyncIterator[Any]:
    """Yield the items until none has come for so long; None: until they end."""
    idle_s = None if idle_ms is None else idle_ms / 1000
    while True:
        try:
            async with asyncio.timeout(idle_s):
                item = await anext(items)
        except (StopAsyncIteration, TimeoutError):
            return
        yield item
