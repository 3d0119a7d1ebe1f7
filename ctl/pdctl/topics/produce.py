"""`pdctl topic produce`: records into a topic, from arguments, lines, JSON or bytes.

What holds: with exit code 0 all records are acked. Otherwise the message states how many are acked, how many are not in the
topic, and how many may be there; if any may be, the exit code is that of an unknown outcome.
"""

from __future__ import annotations

import asyncio
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

import click

from pdctl.output import emit_data
from pdctl.record_input import RecordInput, input_options, submit_all
from pdctl.session import Session, output_option, session_of
from pdctl.topics.options import SHARD, table_instead, topic_argument
from pdctl.units import show_count
from rangelog_core.errors import OutcomeUnknown, RangelogError, Unavailable
from rangelog_core.topic_names import TopicName

if TYPE_CHECKING:
    from rangelog import Client, ProducerAck

_SHARDS_SHOWN_MAX = 8


@click.command()
@topic_argument
@input_options("produce", key_field=True)
@click.option("--shard", type=SHARD, help="Send to this shard, whatever the key.")
@output_option
@session_of
@table_instead("see `pdctl table put`")
def produce(session: Session, name: TopicName, given: RecordInput, shard: int | None, output: str) -> None:
    """Send records, each an argument or a line of input. Records of one key go to one shard, in order.

    Lines come from --file, else from standard input. Any number of producers may send to a topic. If it fails, the message
    states how many records are acked, and how many may be in the topic without an ack: then the exit code is 4.

    \b
    Examples:
      tail -f app.log | pdctl topic produce logs
      pdctl topic produce flights --file flights.jsonl --key-field carrier
      printf 'UA:first\\nAA:second\\n' | pdctl topic produce flights --key-separator :
      pdctl topic consume flights --format json | pdctl topic produce copy --format json
    """
    sent = session.with_client(lambda client: _produce(client, str(name), given, shard, session.timeout_s))
    shards = {str(each): asdict(sent.shards[each]) for each in sorted(sent.shards)}
    if output != "table":
        emit_data({"topic": str(name), "count": sent.acked, "shards": shards}, output)
    elif sent.acked:
        click.echo(f"produced {show_count(sent.acked, 'record')} into {show_count(len(shards), 'shard')} of {name}")
    else:
        click.echo("nothing to produce")


@dataclass(slots=True)
class InShard:
    """The records that one shard has acked."""

    count: int
    first_offset: int
    last_offset: int


@dataclass
class Sent:
    """The outcomes of the records so far. Those without an outcome are counted nowhere."""

    acked: int = 0
    refused: int = 0
    in_doubt: int = 0
    shards: dict[int, InShard] = field(default_factory=dict)
    error: BaseException | None = None
    """The first one."""

    def note(self, future: asyncio.Future[ProducerAck]) -> None:
        """A record has an outcome."""
        error = None if future.cancelled() else future.exception()
        self.error = self.error or error
        if future.cancelled() or (isinstance(error, RangelogError) and error.outcome_unknown):
            self.in_doubt += 1
        elif error is not None:
            self.refused += 1
        else:
            self._acked(future.result())

    def check(self) -> None:
        """Raise the first error."""
        if self.error is not None:
            raise self.error

    def places(self) -> str:
        """Return from which offset on each shard has acked records, those of the first few shards: " (…)", or nothing."""
        found = [f"shard {each} from offset {self.shards[each].first_offset}" for each in sorted(self.shards)]
        if len(found) > _SHARDS_SHOWN_MAX:
            found[_SHARDS_SHOWN_MAX:] = [f"and {len(found) - _SHARDS_SHOWN_MAX} more shards"]
        return f" ({', '.join(found)})" if found else ""

    def _acked(self, ack: ProducerAck) -> None:
        self.acked += 1
        found = self.shards.get(ack.shard)
        if found is None:
            self.shards[ack.shard] = InShard(1, ack.offset, ack.offset)
        else:
            found.count += 1
            found.last_offset = ack.offset

    def __str__(self) -> str:
        doubt = f", {self.in_doubt} may be in the topic" if self.in_doubt else ""
        refused = f", {_counted(self.refused)} not in the topic" if self.refused else ""
        verb = "is" if self.acked == 1 else "are"
        return f"{show_count(self.acked, 'record')} {verb} acked{refused}{doubt}"


def _counted(count: int) -> str:
    """1 is, 2 are."""
    return f"{count} {'is' if count == 1 else 'are'}"


async def _produce(client: Client, topic: str, given: RecordInput, shard: int | None, timeout_s: float) -> Sent:
    """Send all records. Raises the first error of any of them, with what has become of all that were sent."""
    sent = Sent()
    producer = client.producer(topic, append_timeout_s=timeout_s, open_timeout_s=timeout_s)
    try:
        async with producer:
            await submit_all(producer, given, sent.note, verb="produce", check=sent.check, shard=shard)
            await asyncio.sleep(0)  # the callbacks of the last acks
            sent.check()
    except RangelogError as error:
        await asyncio.sleep(0)  # the callbacks of futures that the close has ended
        raise _explained(error, sent) from error
    except asyncio.CancelledError:
        await asyncio.sleep(0)
        click.echo(f"pdctl: interrupted: {sent}{sent.places()}", err=True)
        raise
    return sent


def _explained(error: RangelogError, sent: Sent) -> RangelogError:
    """Return the error with what has become of the records; one that exits as an unknown outcome if that is so."""
    message = f"{error.message} ({sent})"
    if sent.in_doubt and not isinstance(error, Unavailable | OutcomeUnknown):
        return OutcomeUnknown(message)
    error.message = message
    return error
