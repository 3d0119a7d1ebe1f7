"""`pdctl pd snapshot save|inspect`: the state of the placement drivers as a file."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import click

from pdctl.output import emit_one, field
from pdctl.session import Session, output_option, session_of
from pdctl.units import show_bytes, show_time
from rangelog_core import state_file
from rangelog_core.errors import Corruption, InvalidArgument, PreconditionFailed

PIECE_TIMEOUT_S = 30.0
TRIES = 3

_COLUMNS = [
    field("CLUSTER", "cluster_id"),
    field("CLUSTER VERSION", "cluster_version"),
    field("SAVED", "saved_ms", show_time),
    field("SAVED BY", "saved_by"),
    field("ENTRY", "applied_index"),
    field("STREAMS", "stream_count"),
    field("RANGES", "range_count"),
    field("OBJECTS", "object_count"),
    field("TOPICS", "topic_count"),
    field("STATE", "state_bytes", show_bytes),
]


@click.group()
def snapshot() -> None:
    """The state of the placement drivers as a file: streams, ranges, objects, topics; not the records."""


@snapshot.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--force", is_flag=True, help="Replace the file if there is one.")
@output_option
@session_of
def save(session: Session, file: Path, force: bool, output: str) -> None:
    """Save the leader's state, behind a barrier: it has all that was acknowledged before.

    The file appears whole or not at all, and is checked. A new group of one begins from it with
    `rangelog pd --restore-snapshot FILE`.

    \b
    Example:
      pdctl pd snapshot save pd-$(date +%F).state
    """
    if file.exists() and not force:
        raise PreconditionFailed(f"{file} exists: choose another name, or pass --force")
    temporary = file.with_name(file.name + ".part")
    try:
        session.with_pd(lambda pd: _write(pd, temporary))
        view = _inspected(temporary)
        os.replace(temporary, file)
    finally:
        temporary.unlink(missing_ok=True)
    emit_one(view, output, _COLUMNS)


@snapshot.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, exists=True))
@output_option
def inspect(file: Path, output: str) -> None:
    """Check a saved state and show what it is of. Needs no cluster.

    \b
    Example:
      pdctl pd snapshot inspect pd-2026-11-25.state -o json
    """
    emit_one(_inspected(file), output, _COLUMNS)


async def _write(pd: Any, path: Path) -> None:
    for attempt in range(TRIES):
        try:
            with path.open("wb") as file:
                async for data in _pieces(pd):
                    file.write(data)
                file.flush()
                os.fsync(file.fileno())
            return
        except PreconditionFailed:  # another member leads now: its state is saved from the beginning
            if attempt == TRIES - 1:
                raise


async def _pieces(pd: Any) -> AsyncIterator[bytes]:
    from rangelog_proto.v1 import members_pb2 as pb

    save_id, piece, total = "", 0, 0
    while True:
        request = pb.SaveStateRequest(save_id=save_id, piece=piece)
        found = await pd.call(request, pb.SaveStateResponse, timeout_s=PIECE_TIMEOUT_S)
        save_id, piece, total = found.save_id, piece + 1, total + len(found.data)
        if total > state_file.STATE_FILE_BYTES_MAX:
            raise InvalidArgument(f"the state has more than {state_file.STATE_FILE_BYTES_MAX} bytes")
        yield found.data
        if found.last:
            return


def _inspected(path: Path) -> dict[str, Any]:
    from google.protobuf.message import DecodeError

    from rangelog_proto.v1 import members_pb2 as pb

    header, state = state_file.read(path)
    try:
        saved = pb.SavedState.FromString(header)
    except DecodeError as error:
        raise Corruption(f"{path}: the header is of another program") from error
    view = {name: getattr(saved, name) for name in saved.DESCRIPTOR.fields_by_name if name not in ("group", "time_ms")}
    return view | {"group": saved.group.hex(), "state_bytes": len(state)}
