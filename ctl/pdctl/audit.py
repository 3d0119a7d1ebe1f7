"""`pdctl audit …`: who asked for which administrative change, and what came of it."""

from __future__ import annotations

import contextlib
import sys
import time
import uuid
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import click

from pdctl.audit_reading import AuditLog, with_audit
from pdctl.output import emit_data, emit_done, emit_list, emit_one, field, printable
from pdctl.progress import progress
from pdctl.session import EXIT_FAILED, Session, confirm, output_option, session_of
from pdctl.units import Duration, show_time
from rangelog_core.audit import LINE_BYTES_MAX, ChainCheck, hash_line, parse_line
from rangelog_core.errors import Corruption

_STATUS = [
    field("ENABLED", "enabled", lambda on: "yes" if on else "no"),
    field("ENTRIES", "last_sequence"),
    field("WAITING", "waiting"),
    field("LAST HASH", "last_hash"),
    field("PROBLEM", "problem", lambda text: text or "-"),
]
_COLUMNS = [
    field("ENTRY", "sequence"),
    field("TIME", "time_ms", show_time),
    field("PRINCIPAL", "principal", lambda text: text or "-"),
    field("THROUGH", "through", lambda text: text or "-"),
    field("FROM", "peer", lambda text: text or "-"),
    field("CALL", "call"),
    field("RESOURCE", "resource", lambda text: text or "-"),
    field("OUTCOME", "outcome"),
]
_BEGUN, _UNKNOWN = "begun", "unknown"


@click.group()
def audit() -> None:
    """The audit log: who asked for which administrative change, and what came of it.

    Each entry has the hash of the one before it, and the placement drivers keep the last hash: what is changed, removed or
    added afterwards is found by `verify`.
    """


@audit.command()
@output_option
@session_of
def enable(session: Session, output: str) -> None:
    """Begin to record administrative calls, and refused ones. No such call is carried out before it is recorded.

    \b
    Example:
      pdctl audit enable
    """
    _switch(session, output, on=True)


@audit.command()
@click.option("--yes", is_flag=True, help="Do not ask.")
@output_option
@session_of
def disable(session: Session, yes: bool, output: str) -> None:
    """Record nothing from now on; that it was disabled is the last entry. The entries of the log stay.

    \b
    Example:
      pdctl audit disable --yes
    """
    confirm("audit", "From now on nobody records administrative changes", yes=yes)
    _switch(session, output, on=False)


@audit.command()
@output_option
@session_of
def status(session: Session, output: str) -> None:
    """Show whether the log is on, how many entries it has, and the hash of the last one. Keep that hash elsewhere.

    \b
    Examples:
      pdctl audit status
      pdctl audit status -o json
    """
    from rangelog_proto.v1 import audit_pb2 as pb

    request = pb.DescribeAuditRequest(pending_from=1 << 62)
    found = session.call(request, pb.DescribeAuditResponse)
    emit_one(_state_view(found.state) | {"problem": found.problem}, output, _STATUS)


@audit.command()
@click.option("--since", "since_ms", type=Duration(), help="How far back, as 90s, 12h or 7d.")
@click.option("--principal", help="Of whom, as admin:ops.")
@click.option("--call", "called", help="Of one call, as CreateStream.")
@click.option("--limit", type=click.IntRange(1, 100_000), default=100, show_default=True, help="The newest so many.")
@output_option
@session_of
def show(
    session: Session, since_ms: int | None, principal: str | None, called: str | None, limit: int, output: str
) -> None:
    """Show who did what, oldest first. An outcome `unknown` is of a call that a failure of the cluster cut off.

    \b
    Examples:
      pdctl audit show --since 24h
      pdctl audit show --principal admin:ops -o json
      pdctl audit show --call DeleteStream
    """
    from_ms = time.time_ns() // 1_000_000 - since_ms if since_ms is not None else 0

    async def work(log: AuditLog) -> list[dict[str, Any]]:
        rows: deque[dict[str, Any]] = deque(maxlen=limit)
        begun: dict[int, dict[str, Any]] = {}
        async for line in log.lines():
            fields: dict[str, Any] = _row(line)
            of = fields.get("of")
            if of:  # it is shown with what it ends
                known = begun.pop(of, None)
                if known is not None:
                    known["outcome"] = fields["outcome"]
                    if fields["detail"]:
                        known["error"] = fields["detail"]
                continue
            if fields["outcome"] == _BEGUN:
                fields["outcome"] = _UNKNOWN
                begun[fields["sequence"]] = fields
            if fields["time_ms"] < from_ms or (principal and fields["principal"] != principal):
                continue
            if called is None or fields["call"] == called:
                rows.append(fields)
        return list(rows)

    emit_list(with_audit(session, work), output, _COLUMNS, empty="no entries")


@audit.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@session_of
def export(session: Session, file: Path) -> None:
    """Write all entries to a file, one line of JSON each, as they are in the log; `-` is stdout. The chain is checked as well.

    \b
    Examples:
      pdctl audit export audit.jsonl
      pdctl audit export - | jq -r 'select(.call == "DeleteStream") | .principal'
    """
    to_stdout = str(file) == "-"

    async def work(log: AuditLog, target: IO[bytes]) -> ChainCheck:
        check = ChainCheck()
        with progress("exporting", shown=not to_stdout and sys.stderr.isatty(), unit="entries") as advance:
            async for line in log.lines():
                check.add(line)
                target.write(line + b"\n")
                advance(check.sequence)
        check.end(log.state.last_sequence, log.state.last_hash)
        return check

    with _written(file) as target:
        check = with_audit(session, lambda log: work(log, target))
    count = "1 entry" if check.sequence == 1 else f"{check.sequence} entries"
    click.echo(f"exported {count}, last hash {check.hash.hex()}", err=True)


@audit.command()
@click.argument("file", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--sequence", type=click.IntRange(1), help="With FILE and --hash: the last entry, instead of asking a cluster."
)
@click.option("--hash", "known_hash", help="Its hash, as `status` and `export` show it.")
@output_option
@session_of
def verify(session: Session, file: Path | None, sequence: int | None, known_hash: str | None, output: str) -> None:
    """Check every entry of the log, or of an exported file: none is changed, missing or out of order. Exit code 1: one is.

    A file is compared with the cluster, of which it may be an earlier part; with --sequence and --hash without a cluster.

    \b
    Examples:
      pdctl audit verify
      pdctl audit verify audit.jsonl
      pdctl audit verify audit.jsonl --sequence 120 --hash 9f86d0…
    """
    if (sequence is None) != (known_hash is None) or (sequence is not None and file is None):
        raise click.UsageError("--sequence and --hash go together, with a file")
    try:
        if file is None:
            check = with_audit(session, _verify_log)
        else:
            check = _verify_file(file)
            if sequence is not None and known_hash is not None:
                check.end(sequence, _digest(known_hash))
            else:
                with_audit(session, lambda log: _compare(log, check))
    except Corruption as error:
        if output == "table":
            raise
        emit_data({"intact": False, "problem": error.message}, output)
        raise click.exceptions.Exit(EXIT_FAILED) from None
    said = f"intact: entries 1 to {check.sequence}, last hash {check.hash.hex()}"
    emit_done(said, {"intact": True, "last_sequence": check.sequence, "last_hash": check.hash.hex()}, output)


# ---- inside


def _switch(session: Session, output: str, *, on: bool) -> None:
    from rangelog_proto.v1 import audit_pb2 as pb

    request = pb.SetAuditRequest(request_id=uuid.uuid4().hex, enabled=on)
    state = session.call(request, pb.SetAuditResponse).state
    emit_done("the audit log is on" if on else "the audit log is off", _state_view(state), output)


def _state_view(state: Any) -> dict[str, Any]:
    return {
        "enabled": state.enabled,
        "last_sequence": state.last_sequence,
        "written_sequence": state.written_sequence,
        "waiting": state.last_sequence - state.written_sequence,
        "last_hash": state.last_hash.hex(),
    }


def _row(line: bytes) -> dict[str, Any]:
    fields = parse_line(line)
    texts = ("principal", "through", "peer", "call", "resource", "outcome", "detail")
    row: dict[str, Any] = {"sequence": fields["sequence"], "time_ms": fields["time_ms"]}
    row |= {name: printable(str(fields.get(name, ""))) for name in texts}
    row |= {name: fields[name] for name in ("count", "dropped", "of") if name in fields}
    return row


async def _verify_log(log: AuditLog) -> ChainCheck:
    check = ChainCheck()
    with progress("verifying", shown=sys.stderr.isatty(), unit="entries") as advance:
        async for line in log.lines():
            check.add(line)
            advance(check.sequence)
    check.end(log.state.last_sequence, log.state.last_hash)
    return check


def _verify_file(file: Path) -> ChainCheck:
    check = ChainCheck()
    with file.open("rb") as source:
        while line := source.readline(LINE_BYTES_MAX + 2):
            check.add(line.rstrip(b"\n"))
    return check


async def _compare(log: AuditLog, check: ChainCheck) -> None:
    """Compare the last entry of a file with the same one of the cluster. Raises Corruption."""
    if not check.sequence:
        raise Corruption("the file has no entries")
    async for line in log.lines(check.sequence):
        check.end(check.sequence, hash_line(line))
        return
    check.end(log.state.last_sequence, log.state.last_hash)


def _digest(text: str) -> bytes:
    try:
        found = bytes.fromhex(text)
    except ValueError:
        found = b""
    if len(found) != 32:
        raise click.UsageError("--hash is 64 hexadecimal digits")
    return found


@contextlib.contextmanager
def _written(file: Path) -> Iterator[IO[bytes]]:
    """Yield stdout, or a new file that takes its name only when all was written."""
    if str(file) == "-":
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    partial = file.with_name(file.name + ".part")
    try:
        with partial.open("wb") as target:
            yield target
        partial.replace(file)
    finally:
        partial.unlink(missing_ok=True)
