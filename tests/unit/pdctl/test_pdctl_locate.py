"""What `pdctl locate` and `pdctl verify` say of one replica and of one object: what these hold, not what is listed."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import click
import pytest

from pdctl.inspection.compare_sums import DIFFERS, MISSING, UNREACHABLE
from pdctl.inspection.locate import _parse, _replica_view
from pdctl.inspection.object_checks import failed, first_difference
from rangelog_core.errors import Corruption, InvalidArgument, ObjectNotFound, RangeDropped, RangeNotFound, Unavailable
from rangelog_proto.v1 import common_pb2, pd_pb2, range_server_pb2
from rangelog_tier.file_store import FileStore
from rangelog_tier.storing import prove_pieces

REPLICA = common_pb2.Replica(server="rs1", data_address="h:1", health="SERVER_HEALTH_ALIVE")


def _answer(**batch: int) -> range_server_pb2.LocateBatchResponse:
    report = pd_pb2.ReplicaReport(state="REPLICA_STATE_SEALED", durable_offset=40)
    answer = range_server_pb2.LocateBatchResponse(replica=report)
    if batch:
        answer.batch.CopyFrom(range_server_pb2.BatchPlace(**batch))
    return answer


def test_a_replica_holds_what_it_shows() -> None:
    """Its batch is the proof: a listed, living, sealed replica without one does not hold the record."""
    shown = _replica_view(
        REPLICA, _answer(base_offset=20, count=5, length_bytes=99, crc=255, log_file=2, log_position=7)
    )
    assert (shown["holds"], shown["problem"]) == (True, "")
    assert shown["batch"] == {
        "start_offset": 20, "end_offset": 25, "length_bytes": 99, "crc32c": "000000ff", "log_file": 2, "log_position": 7,
    }  # fmt: skip
    without = _replica_view(REPLICA, _answer())
    assert (without["holds"], without["batch"], without["problem"]) == (False, None, "it ends at 40")


@pytest.mark.parametrize(
    ("error", "holds"),
    [
        (RangeNotFound("no replica"), False),
        (RangeDropped("dropped"), False),
        (Corruption("damaged"), False),
        (Unavailable("cannot be reached"), None),
    ],
)
def test_no_answer_is_not_no(error: Any, holds: bool | None) -> None:
    """A server that says that it has nothing does not hold it; of one that is silent nobody knows."""
    shown = _replica_view(REPLICA, error)
    assert (shown["holds"], shown["problem"]) == (holds, error.message)


def test_a_place_is_read_in_both_forms() -> None:
    """STREAM@OFFSET and STREAM OFFSET; what is neither says how to write it."""
    assert _parse("s@7", None) == _parse("s", 7) == ("s", 7)
    for place in ("s", "s@", "@7", "s@x", "s@-1", "s@99999999999999999999"):
        with pytest.raises(click.UsageError, match="STREAM@OFFSET"):
            _parse(place, None)
    with pytest.raises(InvalidArgument):
        _parse("no such/name@7", None)


@pytest.fixture
def store(tmp_path: Path) -> FileStore:
    """An empty store in a directory."""
    return FileStore(tmp_path)


def _listed(key: str, data: bytes, **changes: Any) -> common_pb2.Object:
    digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
    described = common_pb2.Object(key=key, size_bytes=len(data), digest=digest, start_offset=10, end_offset=20)
    described.MergeFrom(common_pb2.Object(**changes))
    return described


def test_an_object_has_its_digest_or_differs(store: FileStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read piece by piece: right, with a flipped bit, with another size, and not there at all."""
    monkeypatch.setattr("rangelog_tier.storing.PIECE_BYTES", 1_000)
    data = bytes(range(256)) * 10
    store.put_if_absent("a/b", data)
    assert sum(prove_pieces(store, _listed("a/b", data))) == len(data)
    (tmp_path / "a" / "b").chmod(0o644)
    (tmp_path / "a" / "b").write_bytes(b"x" + data[1:])
    with pytest.raises(Corruption, match="digest"):
        list(prove_pieces(store, _listed("a/b", data)))
    (tmp_path / "a" / "b").write_bytes(data[1:])
    with pytest.raises(Corruption, match="2559 bytes, not 2560"):
        list(prove_pieces(store, _listed("a/b", data)))
    with pytest.raises(ObjectNotFound):
        list(prove_pieces(store, _listed("a/c", data)))


def test_errors_of_the_store_are_told_apart() -> None:
    """Missing, damaged and not reachable are three things."""
    assert failed(ObjectNotFound("x"), 3).result == MISSING
    assert failed(Corruption("x"), 3).result == DIFFERS
    assert (failed(Unavailable("x"), 3).result, failed(Unavailable("x"), 3).offset) == (UNREACHABLE, None)


def test_the_first_row_that_differs_is_found() -> None:
    """Equal rows differ nowhere; fewer rows differ at their end."""
    pa = pytest.importorskip("pyarrow")
    rows = pa.table({"value": [b"a", b"b", b"c"]})
    assert first_difference(rows, pa.table({"value": [b"a", b"b", b"c"]})) is None
    assert first_difference(rows, pa.table({"value": [b"a", b"x", b"c"]})) == 1
    assert first_difference(rows, rows.slice(0, 2)) == 2
