"""`pdctl encryption …`: the keys with which objects of the tier are encrypted, and which objects use which key."""

from __future__ import annotations

import datetime
import sys
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import click

from pdctl.output import emit_list, emit_one, field
from pdctl.session import EXIT_FAILED, Session, output_option, session_of
from pdctl.units import show_bytes
from rangelog_core.errors import StreamNotFound
from rangelog_core.net.pages import object_pages, pages_by_token

_PAGE_SIZE = 200
_DIRECTORY = click.argument("directory", type=click.Path(path_type=Path, file_okay=False))
_KEY_COLUMNS = [field("KEY", "key_id"), field("STATE", "state")]
_USAGE_COLUMNS = [
    ("KEY", lambda row: row["key_id"] or "(in clear)"),
    field("STREAMS", "stream_count"),
    field("OBJECTS", "object_count"),
    field("SIZE", "size_bytes", show_bytes),
]
_LOG_COLUMNS = [
    field("SERVER", "server"),
    ("KEY", lambda row: row["key_id"] or ("-" if row["problem"] == _SILENT else "(in clear)")),
    field("FILES", "file_count"),
    field("SIZE", "size_bytes", show_bytes),
    field("PROBLEM", "problem"),
]
_SILENT = "does not answer"


@click.group("encryption")
def encryption() -> None:
    """Keys of encrypted objects and logs: make, rotate, and see what uses them (docs/encryption.md)."""


@encryption.command("new-key")
@_DIRECTORY
@click.option("--id", "key_id", metavar="ID", help="Of the key.  [default: today's date]")
@output_option
def new_key(directory: Path, key_id: str | None, output: str) -> None:
    """Make a key in a directory of keys; the first one of a directory is its current key, a later one waits for `rotate`.

    Copy the whole directory to all placement drivers, range servers, brokers and readers. Keep a copy apart from the bucket:
    without the key no process can read the objects.

    \b
    Example:
      pdctl encryption new-key /etc/rangelog/keys
    """
    from rangelog_tier.encryption_keys import KeyDirectory

    keys = KeyDirectory(str(directory))
    first = not (directory.is_dir() and keys.key_ids())
    if not first:
        keys.make_current(keys.current())  # so that the new one is not used where it sorts last
    made = key_id or datetime.datetime.now(datetime.UTC).date().isoformat()
    path = keys.make_key(made)
    if first:
        keys.make_current(made)
    emit_one(
        {"key_id": made, "path": str(path), "current": first},
        output,
        [field("KEY", "key_id"), field("FILE", "path"), field("CURRENT", "current")],
    )


@encryption.command("rotate")
@_DIRECTORY
@click.option("--to", "key_id", metavar="ID", help="The key that is to be the current one.  [default: a new key]")
@output_option
def change_key(directory: Path, key_id: str | None, output: str) -> None:
    """Encrypt new objects by another key. Objects of earlier keys stay readable as long as those keys are there.

    Without --to the key is made now: for a directory that all processes share. Otherwise make it by `new-key`, copy it to all
    of them, and only then rotate to it, so that no process meets an object whose key it lacks.

    \b
    Examples:
      pdctl encryption rotate /etc/rangelog/keys --to 2027-01-01
      rangelog-spark compact --stream flights --rewrite-keys
    """
    from rangelog_tier.encryption_keys import KeyDirectory

    keys = KeyDirectory(str(directory))
    before = keys.current()
    if key_id is None:
        key_id = _unused(keys.key_ids())
        keys.make_current(before)
        keys.make_key(key_id)
    keys.make_current(key_id)
    emit_one({"key_id": key_id, "before": before}, output, [field("CURRENT KEY", "key_id"), field("BEFORE", "before")])


@encryption.command("list")
@_DIRECTORY
@output_option
def list_keys(directory: Path, output: str) -> None:
    """List the keys of a directory by id; no key is read.

    \b
    Example:
      pdctl encryption list /etc/rangelog/keys
    """
    from rangelog_tier.encryption_keys import KeyDirectory

    keys = KeyDirectory(str(directory))
    ids = keys.key_ids()
    current = keys.current() if ids else ""
    rows = [{"key_id": each, "state": "current" if each == current else "to read"} for each in ids]
    emit_list(rows, output, _KEY_COLUMNS, empty=f"no key is in {directory}: `pdctl encryption new-key` makes one")


@encryption.command()
@click.argument("stream", required=False)
@output_option
@session_of
def usage(session: Session, stream: str | None, output: str) -> None:
    """Count the objects of one stream, or of all, by the key that they use: an unused key may be taken away.

    Objects that were replaced count until they are removed from the store: readers may be reading them. Those of trimmed
    ranges do not count: keep a key for the delete grace longer. Snapshots and backups of the bucket need theirs, too.

    \b
    Examples:
      pdctl encryption usage
      pdctl encryption usage flights -o json
    """
    rows = session.with_pd(lambda pd: _usage(pd, stream, session.timeout_s))
    emit_list(rows, output, _USAGE_COLUMNS, empty="the tier has no objects")


@encryption.command("log-usage")
@output_option
@session_of
def log_usage(session: Session, output: str) -> None:
    """Count the segments of all range servers' logs by the key that they use: an unused key may be taken away.

    Each range server is asked itself. One that does not answer may need any key: then the exit code is 1.

    \b
    Example:
      pdctl encryption log-usage
    """
    rows = session.with_pd(lambda pd: _log_usage(session, pd))
    emit_list(rows, output, _LOG_COLUMNS, empty="no range server is registered")
    if any(each["problem"] == _SILENT for each in rows):
        sys.exit(EXIT_FAILED)


async def _log_usage(session: Session, pd: Any) -> list[dict[str, Any]]:
    from pdctl.top import take_sample

    sample = await take_sample(session, pd)
    rows: list[dict[str, Any]] = []
    for server in sorted(sample.servers, key=lambda each: str(each.name)):
        status = sample.statuses.get(server.name)
        if status is None:
            rows.append({"server": server.name, "key_id": "", "file_count": 0, "size_bytes": 0, "problem": _SILENT})
            continue
        rows += [
            {
                "server": server.name,
                "key_id": each.key_id,
                "file_count": each.file_count,
                "size_bytes": each.size_bytes,
                "problem": status.log_key_problem,
            }
            for each in status.log_keys
        ]
    return rows


def _unused(ids: list[str]) -> str:
    """Return today's date, with a number where a key has that id."""
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    numbered = (f"{today}-{number:02}" for number in range(2, len(ids) + 3))
    return next(each for each in (today, *numbered) if each not in ids)


async def _usage(pd: Any, stream: str | None, timeout_s: float) -> list[dict[str, Any]]:
    objects: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    streams: Counter[str] = Counter()
    names = [stream] if stream is not None else await _names(pd, timeout_s)
    for name in names:
        met: dict[str, None] = {}
        try:
            async for each in _stored(pd, name, timeout_s):
                objects[each.encryption_key_id] += 1
                sizes[each.encryption_key_id] += each.size_bytes
                met[each.encryption_key_id] = None
        except StreamNotFound:
            if stream is not None:
                raise
        streams.update(met.keys())
    return [
        {
            "key_id": key_id,
            "stream_count": streams[key_id],
            "object_count": objects[key_id],
            "size_bytes": sizes[key_id],
        }
        for key_id in sorted(objects)
    ]


async def _stored(pd: Any, name: str, timeout_s: float) -> AsyncIterator[Any]:
    """Yield the objects of a stream that are in the store, but for uploads that were given up: these may have any key."""
    from rangelog_proto.v1 import common_pb2, pd_pb2

    for state in (common_pb2.OBJECT_STATE_COMMITTED, common_pb2.OBJECT_STATE_DELETED):
        request = pd_pb2.ListObjectsRequest(name=name, page_size=_PAGE_SIZE, state=state)
        async for objects in object_pages(pd, request, timeout_s):
            for each in objects:
                if each.size_bytes:
                    yield each


async def _names(pd: Any, timeout_s: float) -> list[str]:
    from rangelog_proto.v1 import pd_pb2

    request = pd_pb2.ListStreamsRequest(page_size=_PAGE_SIZE)
    pages = pages_by_token(pd, request, pd_pb2.ListStreamsResponse, timeout_s)
    return [each.name async for page in pages for each in page.streams]
