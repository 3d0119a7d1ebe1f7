"""A deep verification of an object beside a copy: which of the two an error is about."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pdctl.inspection import object_checks
from pdctl.inspection.compare_sums import DIFFERS, UNREACHABLE, Verdict
from pdctl.inspection.pace import ReadPace
from pdctl.inspection.verify_objects import ObjectVerifier
from rangelog_core.errors import Corruption, RangelogError, Unavailable
from rangelog_proto.v1 import common_pb2, pd_pb2

LISTED = common_pb2.Object(object_id=7, key="a", start_offset=0, end_offset=10)


class Pd:
    """Lists one object."""

    async def call(self, request: Any, response: Any, *, timeout_s: float) -> pd_pb2.ListObjectsResponse:
        return pd_pb2.ListObjectsResponse(objects=[LISTED])


async def _verdict(
    monkeypatch: pytest.MonkeyPatch, *, copy: RangelogError | None, rows: RangelogError | None
) -> Verdict:
    """What is said of an object with the right digest, where reading it or the copy fails so."""

    async def fetch(*_: Any) -> list[bytes]:
        assert copy is not None
        raise copy

    def rows_of(*_: Any) -> Any:
        if rows is not None:
            raise rows
        return SimpleNamespace(num_rows=10)

    group = SimpleNamespace(first=0, rows=10, span=SimpleNamespace(size=1))
    monkeypatch.setattr(object_checks, "open_reader", lambda *_: SimpleNamespace(row_groups=lambda *_: [group]))
    monkeypatch.setattr(object_checks, "rows_of", rows_of)
    client: Any = SimpleNamespace(metadata=SimpleNamespace(pd=Pd()))
    copies: Any = SimpleNamespace(fetch=fetch)
    verifier = ObjectVerifier(client, copies, ReadPace(0), deep=True, timeout_s=1.0)
    store: Any = object()
    verifier._store, verifier._last = store, (LISTED.object_id, Verdict())
    found = await verifier.verify(common_pb2.Range(stream_id=1), 0, 10, common_pb2.Replica(server="rs1"))
    return found["a"]


@pytest.mark.parametrize("error", [Corruption("the log was damaged"), Unavailable("away")])
async def test_an_object_is_not_blamed_for_a_copy(monkeypatch: pytest.MonkeyPatch, error: RangelogError) -> None:
    """A copy that cannot be read any more says nothing about the object; the server is named."""
    found = await _verdict(monkeypatch, copy=error, rows=None)
    assert (found.result, found.offset) == (UNREACHABLE, None) and "rs1" in found.why and error.message in found.why


async def test_an_object_is_blamed_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that do not decode differ, from the first offset that was compared on."""
    found = await _verdict(monkeypatch, copy=None, rows=Corruption("bad page"))
    assert (found.result, found.offset) == (DIFFERS, 0)
