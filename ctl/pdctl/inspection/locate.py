"""`pdctl locate`: where one record is: range, replicas with the place in their logs, object with row group and bytes."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any

import click

from pdctl.inspection.calls import Servers
from pdctl.output import emit_data, emit_list, field, printable
from pdctl.session import EXIT_FAILED, OFFSET, Session, output_option, session_of
from rangelog_core.errors import Corruption, RangeDropped, RangelogError, RangeNotFound
from rangelog_core.ids import check_readable_name
from rangelog_core.limits import OFFSET_MAX

if TYPE_CHECKING:
    from rangelog import Client

OBJECT_TIMEOUT_S = 30.0


@click.command()
@click.argument("place")
@click.argument("offset", type=OFFSET, required=False)
@output_option
@session_of
def locate(session: Session, place: str, offset: int | None, output: str) -> None:
    """Show where a record is: STREAM@OFFSET, or STREAM OFFSET.

    Each replica and the object are looked at: "holds" is what they have, not what the placement driver believes. The exit code
    is 1 when no replica or object holds the record.

    \b
    Examples:
      pdctl locate flights@1200
      pdctl locate flights 1200 -o json
    """
    name, number = _parse(place, offset)
    found = session.with_client(lambda client: _locate(session, client, name, number))
    if output == "table":
        _show(found)
    else:
        emit_data(found, output)
    if not found["holder_count"]:
        sys.exit(EXIT_FAILED)


def _parse(place: str, offset: int | None) -> tuple[str, int]:
    if offset is not None:
        return check_readable_name(place), offset
    name, _, digits = place.rpartition("@")
    number = int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 20 else -1
    if not name or not 0 <= number <= OFFSET_MAX:
        raise click.UsageError("which record? Write STREAM@OFFSET, or STREAM OFFSET, such as flights@1200")
    return check_readable_name(name), number


async def _locate(session: Session, client: Client, name: str, offset: int) -> dict[str, Any]:
    from pdctl.views import range_view
    from rangelog_proto.v1 import inspection_pb2, range_server_pb2

    request = inspection_pb2.LocateOffsetRequest(name=name, offset=offset)
    told = await client.metadata.pd.call(request, inspection_pb2.LocateOffsetResponse, timeout_s=session.timeout_s)
    of = told.range.range
    batch_request = range_server_pb2.LocateBatchRequest(stream_id=of.stream_id, range_index=of.index, offset=offset)
    async with Servers(session, told.servers) as servers:
        answers = await servers.ask_all(
            of.replicas, lambda peer: peer.locate_batch(batch_request, timeout_s=session.timeout_s)
        )
    replicas = [_replica_view(each, answer) for each, answer in zip(of.replicas, answers, strict=True)]
    found_object = await _object_view(client, told.object, offset) if told.HasField("object") else None
    holders = [each for each in (*replicas, *([found_object] if found_object else [])) if each["holds"]]
    return {
        "stream": told.stream.name,
        "offset": offset,
        "range": {key: value for key, value in range_view(of).items() if key != "replicas"},
        "problem": told.range.problem,
        "replicas": replicas,
        "object": found_object,
        "holder_count": len(holders),
    }


def _replica_view(replica: Any, answer: Any) -> dict[str, Any]:
    from pdctl.views import word
    from rangelog_proto.v1 import common_pb2, pd_pb2

    row: dict[str, Any] = {
        "server": replica.server,
        "data_address": replica.data_address,
        "health": word(common_pb2.ServerHealth, replica.health),
        "holds": None,
        "state": None,
        "batch": None,
        "problem": "",
    }
    if isinstance(answer, RangelogError):
        gone = isinstance(answer, RangeNotFound | RangeDropped | Corruption)
        return row | {"holds": False if gone else None, "problem": answer.message}
    row |= {"state": word(pd_pb2.ReplicaState, answer.replica.state), "problem": answer.replica.problem}
    if not answer.HasField("batch"):
        return row | {"holds": False, "problem": row["problem"] or f"it ends at {answer.replica.durable_offset}"}
    batch = answer.batch
    return row | {
        "holds": True,
        "batch": {
            "start_offset": batch.base_offset,
            "end_offset": batch.base_offset + batch.count,
            "length_bytes": batch.length_bytes,
            "crc32c": f"{batch.crc:08x}",
            "log_file": batch.log_file,
            "log_position": batch.log_position,
        },
    }


async def _object_view(client: Client, described: Any, offset: int) -> dict[str, Any]:
    from pdctl.inspection.verify_objects import open_store

    row: dict[str, Any] = {
        "object_id": described.object_id,
        "key": described.key,
        "size_bytes": described.size_bytes,
        "digest": described.digest,
        "start_offset": described.start_offset,
        "end_offset": described.end_offset,
        "holds": None,
        "row_group": None,
        "problem": "",
    }
    try:
        async with asyncio.timeout(OBJECT_TIMEOUT_S):
            store = await open_store(client)
            try:
                return row | await asyncio.to_thread(_look_at, store, described, offset)
            finally:
                store.close()
    except TimeoutError:
        return row | {"problem": f"the object store does not answer within {OBJECT_TIMEOUT_S:g} s"}
    except RangelogError as error:
        return row | {"problem": error.message}


def _look_at(store: Any, described: Any, offset: int) -> dict[str, Any]:
    """Return whether an object holds an offset, and in which bytes: its row group is read and checked."""
    from pdctl.inspection.compare_sums import UNREACHABLE
    from pdctl.inspection.object_checks import failed, open_reader

    group_view: dict[str, Any] | None = None
    try:
        reader = open_reader(store, described)
        (group,) = reader.row_groups(offset, offset + 1)
        group_view = {
            "number": group.number,
            "start_offset": group.first,
            "end_offset": group.first + group.rows,
            "begin_byte": group.span.begin,
            "end_byte": group.span.end,
        }
        reader.decode(group, offset, offset + 1)
    except RangelogError as error:
        verdict = failed(error, offset)
        holds = None if verdict.result == UNREACHABLE else False
        return {"row_group": group_view, "holds": holds, "problem": f"{verdict.result}: {verdict.why}"}
    return {"row_group": group_view, "holds": True}


def _show(found: dict[str, Any]) -> None:
    of = found["range"]
    end = "open" if of["end_offset"] is None else of["end_offset"]
    click.echo(f"{found['stream']}@{found['offset']}: range {of['index']} [{of['start_offset']}, {end}), {of['state']}")
    if found["problem"]:
        click.echo(printable(found["problem"]))
    click.echo()
    columns = [
        field("REPLICA", "server"),
        field("ADDRESS", "data_address"),
        field("HEALTH", "health"),
        ("HOLDS", lambda row: {True: "yes", False: "no", None: "unknown"}[row["holds"]]),
        ("BATCH", lambda row: _span(row["batch"])),
        ("CRC32C", lambda row: row["batch"]["crc32c"] if row["batch"] else "-"),
        ("LOG FILE", lambda row: row["batch"]["log_file"] if row["batch"] else "-"),
        ("BYTES", lambda row: _bytes(row["batch"])),
        ("PROBLEM", lambda row: row["problem"] or "-"),
    ]
    emit_list(found["replicas"], "table", columns, empty="no hot copy: the range is in the tier only")
    stored = found["object"]
    if stored is None:
        click.echo("\nno object holds it yet")
        return
    holds = {True: "holds it", False: "does not hold it", None: "could not be looked at"}[stored["holds"]]
    group = stored["row_group"]
    where = f", row group {group['number']} in bytes [{group['begin_byte']}, {group['end_byte']})" if group else ""
    problem = f" ({stored['problem']})" if stored["problem"] else ""
    click.echo("\n" + printable(f"object {stored['object_id']} {stored['key']}: {holds}{where}{problem}"))


def _span(batch: dict[str, Any] | None) -> str:
    return f"[{batch['start_offset']}, {batch['end_offset']})" if batch else "-"


def _bytes(batch: dict[str, Any] | None) -> str:
    return f"[{batch['log_position']}, {batch['log_position'] + batch['length_bytes']})" if batch else "-"
