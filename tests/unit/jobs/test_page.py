"""Pages and their files: what is shown is escaped, what is written is whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from rangelog_core.errors import InvalidArgument
from rangelog_jobs.audit import AuditReport, StreamAudit
from rangelog_jobs.audit_plan import Finding
from rangelog_jobs.page import bar, check_writable, page, show_size, show_time, table, tag, write_whole
from rangelog_jobs.report import KeyVolume, StreamVolume, VolumeReport, key_text


def test_text_is_escaped_and_elements_are_not() -> None:
    """A key of a stream may look like a script."""
    shown = page("<b>", [table(["name", "#n"], [("<script>", tag("b", "x&y"))], empty="none")])
    assert "<script>" not in shown and "&lt;script&gt;" in shown
    assert '<td class="number"><b>x&amp;y</b></td>' in shown
    assert "<title>&lt;b&gt;</title>" in shown
    assert table(["a"], [], empty="<none>") == '<p class="quiet">&lt;none&gt;</p>'
    assert "width:12.00rem" in bar(3.0)


def test_reports_as_pages_and_text() -> None:
    """Names and keys are escaped there too; many findings are shortened in text only."""
    findings = [Finding("gap", number, number + 1, "t<", "k") for number in range(30)]
    audit = AuditReport("a:1", 0, 1_000, [StreamAudit("s", 1, 0, 40, findings=findings)])
    assert not audit.is_good
    assert audit.to_html().count("t&lt;") == 30
    assert "… and 10 more" in audit.to_text() and "1 stream: something is wrong in 1" in audit.to_text()
    assert audit.to_dict()["streams"][0]["findings"][0] == {
        "kind": "gap",
        "start": 0,
        "end": 1,
        "text": "t<",
        "key": "k",
    }
    volume = StreamVolume("s", 0, 5, 5, keys=[KeyVolume("<i>", 5, 50), KeyVolume(None, 1, 1)])
    report = VolumeReport(
        "a:1", 0, [volume], [{"group": "g", "topic": "n/t", "members": 2, "records": 7, "seconds": 1.5}]
    )
    assert "&lt;i&gt;" in report.to_html() and "(none)" in report.to_html()
    assert "group g  n/t  7 records behind, 2 s, 2 members" in report.to_text()


def test_files_are_checked_before_the_work(tmp_path: Path) -> None:
    """A folder, a missing folder, a file in place of a folder."""
    (tmp_path / "file").write_text("x")
    for path, said in (
        (tmp_path, "is a folder"),
        (tmp_path / "no" / "x", "no folder"),
        (tmp_path / "file" / "x", "no folder"),
    ):
        with pytest.raises(InvalidArgument, match=said):
            check_writable(str(path))
    assert check_writable(None) is None
    assert check_writable(str(tmp_path / "new")) == tmp_path / "new"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["file"]


def test_a_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    """A write that fails leaves the old one, and nothing beside it."""
    file = tmp_path / "x"
    write_whole(file, "one")
    with pytest.raises(UnicodeEncodeError):
        write_whole(file, "\ud800")
    assert file.read_text() == "one"
    write_whole(file, "two")
    assert file.read_text() == "two"
    assert [each.name for each in tmp_path.iterdir()] == ["x"]


def test_numbers_for_people() -> None:
    """Sizes, times, keys."""
    assert [show_size(each) for each in (None, 0, 1_023, 1_536, 5 << 30, 1 << 50)] == [
        "-", "0 B", "1023 B", "1.5 KiB", "5.0 GiB", "1024.0 TiB",
    ]  # fmt: skip
    assert show_time(None) == "-"
    assert show_time(1_357_000_000_000) == "2013-01-01 00:26:40Z"
    assert show_time(1 << 62) == f"{1 << 62} ms"
    assert [key_text(each) for each in (None, b"a", b"\xff", b"a\n")] == [None, "a", "X'ff'", "X'610a'"]
