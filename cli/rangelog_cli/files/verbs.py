"""The verbs of `rangelog files`, as click has them. Records are read and printed in the formats of pdctl."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from dataclasses import asdict
from datetime import datetime
from typing import Any

import click

from pdctl.output import emit_done, emit_list, emit_one, field
from pdctl.record_formats import OUTPUTS
from pdctl.record_input import RecordInput, input_options
from pdctl.record_output import RecordPrinter
from pdctl.session import Session, confirm, output_option
from pdctl.stream_places import BeforeEnd, StreamPlace
from pdctl.units import Duration
from rangelog_cli.files import work

_PLACE_HELP = "earliest, latest, a time with its zone, or -1h (ago): of when events were written."
_BY_NAME = {"table": "text", "json": "json", "yaml": "yaml"}


def _cluster_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that name a cluster to a command, which gets `session`."""

    @functools.wraps(command)
    def call(
        *args: Any, pd: str | None, context_name: str | None, token_file: str | None, ca: str | None, cert: str | None,
        key: str | None, **others: Any,
    ) -> Any:  # fmt: skip
        session = Session(pd, None, ca, cert, key, 30.0, context_name, None, token_file)
        return command(*args, session=session, **others)

    for option in reversed((
        click.option("--pd", envvar="RANGELOG_PD", metavar="HOST:PORT,…", help="The cluster. Else that of --context."),
        click.option("--context", "context_name", envvar="RANGELOG_CONTEXT", metavar="NAME",
                     help="A context of pdctl.  [default: the one in use]"),
        click.option("--token-file", envvar="RANGELOG_TOKEN_FILE", metavar="FILE", help="The file with the token."),
        click.option("--ca", envvar="RANGELOG_TLS_CA", metavar="FILE", help="Certificate authorities; turns TLS on."),
        click.option("--cert", envvar="RANGELOG_TLS_CERT", metavar="FILE", help="Certificate."),
        click.option("--key", envvar="RANGELOG_TLS_KEY", metavar="FILE", help="Its private key."),
    )):  # fmt: skip
        call = option(call)
    return call


def _run(doing: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(doing)


def _start_of(place: Any) -> Any:
    """Return a start for a reader of files: they have no offsets over all writers."""
    if isinstance(place, BeforeEnd | int):
        raise click.UsageError(f"event files have no common offsets: {_PLACE_HELP}")
    return place


@click.command("create")
@click.argument("location")
@click.option(
    "--ttl", type=Duration(), help="How long events are read after they were written, such as 7d.  [default: for ever]"
)
@click.option(
    "--writers", type=click.IntRange(1, 1_000), help="Writers without a prefix of their own at a time.  [default: 64]"
)
@click.option("--partition", type=Duration(), help="The time span of a directory.  [default: 1d]")
@output_option
def create_verb(location: str, ttl: int | None, writers: int | None, partition: int | None, output: str) -> int:
    """Make a stream of event files.

    \b
    Examples:
      rangelog files create data/who
      rangelog files create file:///srv/events/clicks --ttl 7d --partition 1h -o json
    """
    values: dict[str, Any] = {
        "ttl_s": None if ttl is None else ttl / 1_000,
        "writers": writers,
        "partition_s": None if partition is None else max(1, partition // 1_000),
    }
    made = _run(work.create(location, {name: value for name, value in values.items() if value is not None}))
    data = {name: value for name, value in asdict(made).items() if name != "others"}
    emit_done(f"{location}: a stream of event files, generation {made.generation}", data, output)
    return 0


@click.command("append")
@click.argument("location")
@input_options("append")
@click.option("--prefix", help="The prefix of the writer's files.  [default: the first free one]")
@output_option
def append_verb(location: str, given: RecordInput, prefix: str | None, output: str) -> int:
    """Append events, and return once all are on the disk: a value each, or lines of a file or of standard input.

    \b
    Examples:
      rangelog files append data/who on off
      tail -F app.log | rangelog files append data/log --prefix web1
      rangelog files read data/who --format json | rangelog files append data/copy --format json
    """
    count, groups = _run(work.append(location, given, prefix))
    emit_done(f"{count} events, {groups} flushes", {"events": count, "flushes": groups}, output)
    return 0


@click.command("read")
@click.argument("location")
@click.option("--start", type=StreamPlace(), default="earliest", show_default=True, metavar="PLACE", help=_PLACE_HELP)
@click.option("--end", type=StreamPlace(()), metavar="PLACE", help="Stop before what was written at this time.")
@click.option("-n", "--limit", type=click.IntRange(min=1), help="Stop after this many events.")
@click.option("--key", help="Only events with this key.")
@click.option("-f", "--follow", is_flag=True, help="Wait for more, until Ctrl-C.")
@click.option("--leave-damaged", is_flag=True, help="Pass over the rest of a damaged file, and say so.")
@click.option("--format", "shape", type=click.Choice(OUTPUTS), default="value", show_default=True,
              help="value: the bytes and a newline. text: with offset, time and key. json: an object per event. raw: the "
              "values' bytes alone. prefixed: four bytes of length before each value.")  # fmt: skip
@click.option("-o", "--output", type=click.Choice(["table", "json", "yaml"]), help="Instead of --format.")
def read_verb(
    location: str, start: Any, end: Any, limit: int | None, key: str | None, follow: bool, leave_damaged: bool,
    shape: str, output: str | None,
) -> int:  # fmt: skip
    """Print events, merged over the writers by the times at which they were written.

    \b
    Examples:
      rangelog files read data/who
      rangelog files read data/who --start -1h --follow --format text
      rangelog files read 's3://bucket/events/who?region=eu-central-1' -n 10 -o json
    """
    if end is not None and not isinstance(end, datetime):
        raise click.UsageError(f"event files have no common offsets: {_PLACE_HELP}")
    printer = RecordPrinter(_BY_NAME.get(output or "", shape), limit, key=key)
    options = {"start": _start_of(start), "end": end, "follow": follow, "leave_damaged": leave_damaged}
    for damaged in _run(work.read(location, printer, options)):
        click.echo(f"rangelog: {damaged.path}: left at byte {damaged.offset}: {damaged.reason}", err=True)
    return 0


@click.command("verify")
@click.argument("location")
@output_option
def verify_verb(location: str, output: str) -> int:
    """Read all files of the present generation and compare their checksums. The exit code is 1 where one is damaged.

    \b
    Examples:
      rangelog files verify data/who
      rangelog files verify data/who -o json
    """
    rows = [each._asdict() for each in _run(work.verify(location))]
    columns = [field("FILE", "path"), field("STATE", "state"), field("EVENTS", "events"), field("BLOCKS", "blocks"),
               field("BYTES", "size_bytes"), field("REASON", "reason")]  # fmt: skip
    emit_list(rows, output, columns, empty="there are no files")
    return int(any(row["state"] == "damaged" for row in rows))


@click.command("truncate")
@click.argument("location")
@click.option(
    "--drop", is_flag=True, help="Remove the files that no reader is given any more, those over their TTL too."
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@output_option
def truncate_verb(location: str, drop: bool, yes: bool, output: str) -> int:
    """Begin a new generation: no event that is there now is read any more. Writers and readers go on in it.

    \b
    Examples:
      rangelog files truncate data/who
      rangelog files truncate data/who --drop --yes -o json
    """
    confirm(work.name_of(location), "no event that is there now is read any more", yes=yes)
    generation, dropped = _run(work.truncate(location, drop=drop))
    text = f"{location}: generation {generation}" + (f", {len(dropped)} directories removed" if drop else "")
    emit_done(text, {"generation": generation, "dropped": dropped}, output)
    return 0


@click.command("export")
@click.argument("topic")
@click.argument("location")
@click.option("--start", type=StreamPlace(), default="earliest", show_default=True, metavar="PLACE",
              help="earliest, a time with its zone, or -1h (ago): of the records.")  # fmt: skip
@click.option("--prefix", help="The prefix of the files.  [default: the first free one]")
@_cluster_options
@output_option
def export_verb(topic: str, location: str, start: Any, prefix: str | None, session: Session, output: str) -> int:
    """Copy the records of a topic, up to its present end, into event files, with their times, keys and headers.

    The records of a key stay in their order. A stream of event files that does not exist is made.

    \b
    Examples:
      rangelog files export shop.who data/who
      rangelog files export shop.who data/who --start -1d --pd 127.0.0.1:7100 -o json
    """
    count = work.export_topic(session, topic, location, _start_of(start), prefix)
    emit_done(f"{count} records of {topic} are in {location}", {"records": count, "topic": topic}, output)
    return 0


@click.command("import")
@click.argument("location")
@click.argument("topic")
@click.option("--start", type=StreamPlace(), default="earliest", show_default=True, metavar="PLACE", help=_PLACE_HELP)
@click.option("--create", is_flag=True, help="Make the topic where there is none.")
@_cluster_options
@output_option
def import_verb(location: str, topic: str, start: Any, create: bool, session: Session, output: str) -> int:
    """Copy event files into a topic of a cluster, with their times, keys and headers. The events of a key stay in their order.

    \b
    Examples:
      rangelog files import data/who shop.who --create
      rangelog files import data/who shop.who --start 2026-01-31T00:00Z --pd 127.0.0.1:7100 -o json
    """
    count = work.import_topic(session, location, topic, _start_of(start), create=create)
    emit_one({"records": count, "topic": topic}, output, [field("RECORDS", "records"), field("TOPIC", "topic")])
    return 0
