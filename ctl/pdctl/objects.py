"""`pdctl object …`: the objects of a stream in the object store."""

from __future__ import annotations

import itertools
from typing import Any

import click

from pdctl.output import emit_list, emit_one, field
from pdctl.session import OFFSET, Session, output_option, session_of
from pdctl.units import show_bytes, show_time
from rangelog_core.errors import ObjectNotFound
from rangelog_core.net.pages import object_pages

_PAGE_SIZE = 200


def _show_key(key_id: str) -> str:
    return key_id or "-"


_STATES = {"committed": 2, "prepared": 1, "deleted": 3}
_COLUMNS = [
    field("ID", "object_id"),
    field("RANGE", "range_index"),
    field("START", "start_offset"),
    field("END", "end_offset"),
    field("SIZE", "size_bytes", show_bytes),
    field("COMMITTED", "committed_ms", show_time),
    field("ENCRYPTED BY", "encryption_key_id", _show_key),
    field("KEY", "key"),
]


@click.group("object")
def object_group() -> None:
    """Objects: sealed ranges as Parquet in the object store."""


@object_group.command("list")
@click.argument("stream")
@click.option("--from-offset", type=OFFSET, default=0, help="Only objects that end beyond it.")
@click.option("--state", type=click.Choice(sorted(_STATES)), default="committed", show_default=True)
@output_option
@session_of
def list_objects(session: Session, stream: str, from_offset: int, state: str, output: str) -> None:
    """List a stream's objects, by offset.

    \b
    Example:
      pdctl object list flights
    """
    found = _objects(session, stream, from_offset, _STATES[state])
    emit_list(found, output, _COLUMNS, empty=f"stream {stream} has no {state} objects")


@object_group.command()
@click.argument("stream")
@click.argument("object_id", type=click.IntRange(1, OFFSET.max))
@output_option
@session_of
def show(session: Session, stream: str, object_id: int, output: str) -> None:
    """Show one object, whatever its state.

    \b
    Example:
      pdctl object show flights 12
    """
    for found in itertools.chain.from_iterable(_objects(session, stream, 0, each) for each in _STATES.values()):
        if found["object_id"] == object_id:
            more = [
                field("STATE", "state"),
                field("DIGEST", "digest"),
                field("ROW GROUPS", "row_group_count"),
                field("UPLOADED BY", "server"),
            ]
            emit_one(found, output, [*_COLUMNS, *more])
            return
    raise ObjectNotFound(f"stream {stream!r} has no object {object_id}: see `pdctl object list {stream}`")


def _objects(session: Session, stream: str, from_offset: int, state: int) -> list[dict[str, Any]]:
    from pdctl.views import object_view
    from rangelog_proto.v1 import common_pb2, pd_pb2

    async def page_through(pd: Any) -> list[dict[str, Any]]:
        request = pd_pb2.ListObjectsRequest(
            name=stream,
            from_offset=from_offset,
            page_size=_PAGE_SIZE,
            state=common_pb2.ObjectState.Name(state),
        )
        pages = object_pages(pd, request, session.timeout_s)
        return [object_view(each) async for objects in pages for each in objects]

    return session.with_pd(page_through)
