"""What a range server reports of its formats when it registers."""

from __future__ import annotations

from rangelog_server.formats import FORMATS, reported_formats


def test_a_server_reports_every_format_that_others_meet() -> None:
    """A registration lists the wire and what this server writes, each with its range, and that it asks for rights."""
    reported = {each.format: (each.lowest, each.highest) for each in reported_formats()}
    assert reported.pop("rights") == (1, 1)
    assert reported == FORMATS
    assert reported["log-entry"] == (1, 3)
    assert set(reported) == {
        "data-plane", "record-batch", "log-segment", "log-entry", "tiered-object", "manifest", "repack", "leave-wanted",
            "encrypted-object",
    }  # fmt: skip
