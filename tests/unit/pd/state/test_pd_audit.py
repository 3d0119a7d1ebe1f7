"""The audit log in the state machine: entries, their chain, what waits, and that a snapshot keeps it."""

from __future__ import annotations

from typing import Any

import pytest

from rangelog_core.audit import FIRST_PREVIOUS, ChainCheck, hash_line, parse_line
from rangelog_core.errors import Corruption, Overloaded, PreconditionFailed
from rangelog_core.ids import AUDIT_STREAM_NAME
from rangelog_pd.state.audit import BEGUN, PENDING_MAX, TEXT_LENGTH_MAX
from rangelog_pd.state.audit_table import AuditTable
from rangelog_pd.state.operations import needed_level
from rangelog_pd.state.versions import LEVEL_AUDIT
from rangelog_proto.v1 import audit_pb2 as pb
from rangelog_proto.v1 import pd_pb2, pd_state_pb2
from rangelog_tier.restore.known import KnownBucket, snapshot_rows
from rangelog_tier.restore.plan import RestoreOptions
from rangelog_tier.restore.planning import make_plan


def switch(pd: Any, *, on: bool) -> pb.AuditState:
    request = pb.SetAuditRequest(enabled=on)
    note = pb.AuditNote(principal="admin:a", call="SetAudit", outcome="OK")
    return pd.do(pb.SetAuditResponse, set_audit=pb.PlacedSetAudit(request=request, note=note)).state


def add(pd: Any, *outcomes: str, **fields: Any) -> list[int]:
    notes = [pb.AuditNote(call="CreateStream", outcome=each, **fields) for each in outcomes]
    return list(pd.do(pb.NoteAuditResponse, note_audit=pb.NoteAudit(notes=notes)).sequences)


def lines(pd: Any) -> list[bytes]:
    return [each.line for each in pd.state.audit.pending.values()]


def test_each_entry_has_the_hash_of_the_one_before(pd: Any) -> None:
    """The first is that the log was enabled; the head is that of the last."""
    switch(pd, on=True)
    assert add(pd, BEGUN, "OK") == [2, 3]
    check = ChainCheck()
    for line in lines(pd):
        check.add(line)
    assert (check.sequence, check.hash) == (3, pd.state.audit.last_hash)
    assert parse_line(lines(pd)[0])["principal"] == "admin:a"
    assert parse_line(lines(pd)[1])["time_ms"] == pd.state.time_ms


def test_nothing_is_recorded_while_it_is_off(pd: Any) -> None:
    """That it was disabled is the last entry, and that it was enabled again the next."""
    assert add(pd, BEGUN) == []
    assert (pd.state.audit.last_sequence, pd.state.audit.last_hash) == (0, FIRST_PREVIOUS)
    switch(pd, on=True)
    switch(pd, on=True)
    assert switch(pd, on=False).last_sequence == 2
    assert add(pd, BEGUN) == []
    assert switch(pd, on=True).last_sequence == 3
    assert sum(each.name == AUDIT_STREAM_NAME for each in pd.state.streams.values()) == 1


def test_what_is_in_the_stream_is_forgotten(pd: Any) -> None:
    """In order, and never more than there is."""
    switch(pd, on=True)
    add(pd, "OK", "OK")
    for sequence, left in ((2, [3]), (1, [3]), (9, [])):
        pd.apply(pd_state_pb2.Command(mark_audit_written=pb.MarkAuditWritten(sequence=sequence)))
        assert list(pd.state.audit.pending) == left
    assert (pd.state.audit.written_sequence, pd.state.audit.last_sequence) == (3, 3)
    assert add(pd, "OK") == [4]


def test_nothing_begins_while_too_many_entries_wait(pd: Any) -> None:
    """Outcomes of what has begun have room; it goes on once entries are in the stream."""
    switch(pd, on=True)
    for _ in range(PENDING_MAX // 100):
        add(pd, *["OK"] * 100)
    before = pd.state.audit.row()
    with pytest.raises(Overloaded, match="pdctl audit status"):
        add(pd, BEGUN)
    assert pd.state.audit.row() == before
    assert len(add(pd, "OK")) == 1
    pd.apply(pd_state_pb2.Command(mark_audit_written=pb.MarkAuditWritten(sequence=10)))
    assert len(add(pd, BEGUN)) == 1


def test_texts_are_cut(pd: Any) -> None:
    """Whatever a caller sends."""
    switch(pd, on=True)
    add(pd, "OK", resource="ü" * 10_000)
    assert parse_line(lines(pd)[-1])["resource"] == "ü" * TEXT_LENGTH_MAX


def test_a_snapshot_keeps_it(pd: Any) -> None:
    """The chain goes on after a restart."""
    switch(pd, on=True)
    add(pd, "OK", "OK")
    pd.apply(pd_state_pb2.Command(mark_audit_written=pb.MarkAuditWritten(sequence=1)))
    before, waiting = pd.state.audit.row(), lines(pd)
    pd.reload()
    assert (pd.state.audit.row(), lines(pd)) == (before, waiting)
    add(pd, "OK")
    assert parse_line(lines(pd)[-1])["previous"] == hash_line(waiting[-1]).hex()


@pytest.mark.parametrize("broken", ["gap", "hash", "short"])
def test_a_snapshot_that_does_not_fit_is_refused(pd: Any, broken: str) -> None:
    """Before anything of it is used."""
    switch(pd, on=True)
    add(pd, "OK", "OK")
    row, entries = pd.state.audit.row(), pd.state.audit.pending.freeze()
    if broken == "gap":
        del entries[1]
    elif broken == "hash":
        row.last_hash = bytes(32)
    else:
        row.last_hash = b"x"
    with pytest.raises(Corruption):
        AuditTable().load(row, entries)


def test_nobody_changes_the_stream(pd: Any) -> None:
    """Not by its name either, which no user can give."""
    switch(pd, on=True)
    for response, action in (
        (pd_pb2.DeleteStreamResponse, {"delete_stream": pd_pb2.DeleteStreamRequest(name=AUDIT_STREAM_NAME)}),
        (pd_pb2.TrimStreamResponse, {"trim_stream": pd_pb2.TrimStreamRequest(name=AUDIT_STREAM_NAME)}),
        (
            pd_pb2.UpdateStreamResponse,
            {"update_stream": pd_pb2.UpdateStreamRequest(name=AUDIT_STREAM_NAME, fields=["retention_ms"])},
        ),
    ):
        with pytest.raises(PreconditionFailed, match="audit log"):
            pd.do(response, **action)


def test_nobody_trims_it_by_its_id(pd: Any) -> None:
    """As brokers trim the streams of their journals."""
    stream_id = switch(pd, on=True).stream_id
    pd.open_writer(AUDIT_STREAM_NAME)
    pd.create_range(stream_id, 1, 0, "rs1", "rs2", "rs3")
    pd.seal(stream_id, 0, 1, 10)
    with pytest.raises(PreconditionFailed, match="audit log"):
        pd.do(
            pd_pb2.TrimStreamResponse,
            trim_stream=pd_pb2.TrimStreamRequest(stream_id=stream_id, trim_offset=5),
        )
    assert pd.state.streams[stream_id].trim_offset == 0


def test_the_commands_need_the_level() -> None:
    """An earlier member would not apply them."""
    for action in ("set_audit", "note_audit", "mark_audit_written"):
        command = pd_state_pb2.Command()
        getattr(command, action).SetInParent()
        assert needed_level(command) == LEVEL_AUDIT


def test_a_restore_knows_that_the_log_is_lost(pd: Any) -> None:
    """What waited and what was in the stream do not come back, and the plan says so; the rest of the state does."""
    switch(pd, on=True)
    made = pd.create_stream("kept")
    pd.open_writer(AUDIT_STREAM_NAME)
    pd.create_range(pd.state.audit.stream_id, 1, 0, "rs1", "rs2", "rs3")
    rows = snapshot_rows(b"".join(pd.machine.freeze_rows()))
    assert list(rows.left_out) == ["audit_entries"]
    plan = make_plan(KnownBucket(rows, {}, {}), {}, RestoreOptions())
    assert [(each.stream, each.kind, each.was_open) for each in plan.lost if each.kind != "stream"] == [
        (AUDIT_STREAM_NAME, "audit-log", True)
    ]
    assert [each.stream_id for each in plan.streams] == [made.stream_id]
