"""Rows of a table: get, put, delete, scan, watch. Keys and values are text, or any bytes that the shell passes on."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

import click

from pdctl.output import emit_done
from pdctl.record_text import json_line, printed_bytes, shown_bytes, yaml_item
from pdctl.session import NothingFound, Session, output_option, session_of
from pdctl.topics.options import topic_argument
from rangelog_core.errors import InvalidArgument
from rangelog_core.limits import TABLE_VALUE_BYTES_MAX
from rangelog_core.topic_names import TopicName

if TYPE_CHECKING:
    from rangelog import Client, Table, TableChange, TableRow

_VERSION = click.IntRange(1, (1 << 64) - 1)
_family_option = click.option("--family", metavar="FAMILY", help="Of the key. Otherwise keys without one.")
_stale_option = click.option("--stale", is_flag=True, help="Read without the proof that this is the newest state.")
_raw_output = output_option(more=("raw",))


_T = TypeVar("_T")


def _with_table(session: Session, name: TopicName, work: Callable[[Table], Coroutine[Any, Any, _T]]) -> _T:
    """Run `work` on a table. Raises TopicNotFound, TopicKindForbids, Unavailable: in time if no placement driver answers."""

    async def run(client: Client) -> _T:
        await client.tables.describe(str(name), timeout_s=session.timeout_s)
        return await work(client.table(str(name)))

    return session.with_client(run)


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else os.fsencode(text)


@click.command()
@topic_argument
@click.argument("keys", nargs=-1, required=True, metavar="KEY...")
@_family_option
@_stale_option
@_raw_output
@session_of
def get(session: Session, name: TopicName, keys: tuple[str, ...], family: str | None, stale: bool, output: str) -> None:
    """Print rows. If one of them is not there, the exit code is 3, after the others are printed.

    \b
    -o json: an object per line. raw: the values' bytes and a newline each.

    \b
    Examples:
      pdctl table get counts UA AA
      pdctl table get counts UA -o raw
    """
    wanted = [os.fsencode(each) for each in keys]
    options: dict[str, Any] = {"family": _bytes(family), "stale": stale, "timeout_s": session.timeout_s}
    rows = _with_table(session, name, lambda table: table.get_many(wanted, **options))
    missing: list[str] = []
    for key, row in zip(keys, rows, strict=True):
        if row is None:
            missing.append(repr(key))
        else:
            _write(_ROWS[output](row))
    sys.stdout.buffer.flush()
    if missing:
        raise NothingFound(f"table {name} has no row with key {', '.join(missing)}")


@click.command()
@topic_argument
@click.argument("key")
@click.argument("value", required=False)
@_family_option
@click.option("--if-absent", is_flag=True, help="Only if the row is not there.")
@click.option("--if-version", type=_VERSION, help="Only if the row is there in this version.")
@output_option
@session_of
def put(
    session: Session,
    name: TopicName,
    key: str,
    value: str | None,
    family: str | None,
    if_absent: bool,
    if_version: int | None,
    output: str,
) -> None:
    """Set a row; without VALUE to what standard input has. A condition that does not hold is exit code 5.

    \b
    Examples:
      pdctl table put counts UA 17
      pdctl table put counts UA 18 --if-version 5
      pdctl table put pictures logo < logo.png
    """
    from rangelog import TablePut

    if if_absent and if_version is not None:
        raise click.UsageError("--if-absent and --if-version exclude each other")
    write = TablePut(os.fsencode(key), _value(value), if_version, if_absent)
    options: dict[str, Any] = {"family": _bytes(family), "timeout_s": session.timeout_s}
    version = _with_table(session, name, lambda table: table.update([write], **options))
    emit_done(f"version {version}", {"table": str(name), "key": shown_bytes(write.key), "version": version}, output)


def _value(value: str | None) -> bytes:
    if value is not None:
        return os.fsencode(value)
    if sys.stdin.isatty():
        raise click.UsageError("nothing to put: give VALUE, or pipe it in")
    data = sys.stdin.buffer.read(TABLE_VALUE_BYTES_MAX + 1)
    if len(data) > TABLE_VALUE_BYTES_MAX:
        raise InvalidArgument(f"the value on standard input has more than {TABLE_VALUE_BYTES_MAX} bytes")
    return data


@click.command()
@topic_argument
@click.argument("key")
@_family_option
@click.option("--if-version", type=_VERSION, help="Only if the row is there in this version.")
@output_option
@session_of
def delete(
    session: Session, name: TopicName, key: str, family: str | None, if_version: int | None, output: str
) -> None:
    """Remove a row. One that is not there stays so. `pdctl table drop` deletes a table.

    \b
    Example:
      pdctl table delete counts UA --if-version 5
    """
    wanted = os.fsencode(key)
    options: dict[str, Any] = {"if_version": if_version, "family": _bytes(family), "timeout_s": session.timeout_s}
    was_there = _with_table(session, name, lambda table: table.delete(wanted, **options))
    said = "removed" if was_there else "there was no such row"
    emit_done(said, {"table": str(name), "key": shown_bytes(wanted), "removed": was_there}, output)


def _bounds_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the bounds of rows to a command, which gets `bounds` as the client takes them; empty: none is given."""

    @functools.wraps(command)
    def call(
        *args: Any, prefix: str | None, start: str | None, end: str | None, family: str | None, **others: Any
    ) -> Any:
        given = {"prefix": prefix, "start": start, "end": end, "family": family}
        bounds = {name: os.fsencode(text) for name, text in given.items() if text is not None}
        if others["all_families"] and bounds:
            raise click.UsageError("--all-families goes with no other bound")
        return command(*args, bounds=bounds, **others)

    options = (
        click.option("--all-families", is_flag=True, help="All rows: those without a family, and those of each one."),
        _family_option,
        click.option("--end", metavar="KEY", help="Only keys before it."),
        click.option("--start", metavar="KEY", help="Only keys from it on."),
        click.option("--prefix", metavar="TEXT", help="Only keys that begin so."),
    )
    return functools.reduce(lambda made, option: option(made), options, call)


def _scan(table: Table, bounds: dict[str, Any], all_families: bool, **options: Any) -> AsyncIterator[TableRow]:
    return table.scan_all(**options) if all_families else table.scan(**bounds, **options)


@click.command()
@topic_argument
@_bounds_options
@click.option("--limit", type=click.IntRange(min=1), help="Stop after this many rows.")
@_stale_option
@_raw_output
@session_of
def scan(
    session: Session,
    name: TopicName,
    bounds: dict[str, Any],
    all_families: bool,
    limit: int | None,
    stale: bool,
    output: str,
) -> None:
    """Print rows in order of keys.

    \b
    -o table: key, version and value. json: an object per line. yaml: one list. raw: the values' bytes and a newline each.

    \b
    Examples:
      pdctl table scan counts --prefix U --limit 10
      pdctl table scan accounts --family team-a -o json
    """

    async def work(table: Table) -> None:
        async for row in _scan(table, bounds, all_families, limit=limit, stale=stale, timeout_s=session.timeout_s):
            _write(_ROWS[output](row))

    _with_table(session, name, work)


@click.command()
@topic_argument
@_bounds_options
@click.option("--with-rows", is_flag=True, help="Print the present rows first, then each change after them.")
@click.option("--count", "count_max", type=click.IntRange(min=1), help="Stop after this many changes.")
@output_option
@session_of
def watch(
    session: Session,
    name: TopicName,
    bounds: dict[str, Any],
    all_families: bool,
    with_rows: bool,
    count_max: int | None,
    output: str,
) -> None:
    """Print changes of rows as they come, until Ctrl-C. A change that a later one has replaced may be left out.

    \b
    -o table: key, version and value; a dash for a removed row. json: an object per line; yaml: one list.

    \b
    Examples:
      pdctl table watch counts
      pdctl table watch counts --prefix U --with-rows -o json
    """

    async def work(table: Table) -> None:
        timeout_s = session.timeout_s
        watched = await table.watch(
            all_families=all_families, **bounds, timeout_s=timeout_s
        )  # before the rows are read
        if with_rows:
            async for row in _scan(table, bounds, all_families, timeout_s=timeout_s):
                _write(_CHANGES[output](row))
            sys.stdout.buffer.flush()
        left = count_max if count_max is not None else -1
        async for change in watched:
            _write(_CHANGES[output](change))
            sys.stdout.buffer.flush()
            left -= 1
            if left == 0:
                return

    _with_table(session, name, work)


def _write(data: bytes) -> None:
    sys.stdout.buffer.write(data)


def _line(row: TableRow | TableChange) -> bytes:
    family = f"{printed_bytes(row.family)}  " if row.family is not None else ""
    return f"{family}{printed_bytes(row.key)}  {row.version}  {printed_bytes(row.value)}\n".encode()


def row_view(row: TableRow | TableChange) -> dict[str, Any]:
    """A row for JSON; of a change that removed it, without a value."""
    return {
        "family": None if row.family is None else shown_bytes(row.family),
        "key": shown_bytes(row.key),
        "version": row.version,
        "value": None if row.value is None else shown_bytes(row.value),
    }


_CHANGES: dict[str, Callable[[Any], bytes]] = {
    "table": _line,
    "json": lambda row: json_line(row_view(row)),
    "yaml": lambda row: yaml_item(row_view(row)),
}
_ROWS: dict[str, Callable[[Any], bytes]] = _CHANGES | {"raw": lambda row: row.value + b"\n"}
