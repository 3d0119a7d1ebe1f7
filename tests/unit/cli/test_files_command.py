"""`rangelog files`: what is typed, what is printed, and the exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rangelog_cli import main
from rangelog_cli.files.group import VERBS


class Typed:
    """Runs commands in an empty directory."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.code = 0
        self.err = ""

    def __call__(self, *arguments: str) -> str:
        """Run a command that succeeds; return what it prints."""
        printed = self.fails(*arguments)
        assert self.code == 0, self.err
        return printed

    def fails(self, *arguments: str) -> str:
        self.code = main.run(["files", *arguments])
        captured = self._capsys.readouterr()
        self.err = captured.err
        return captured.out

    def data(self, *arguments: str) -> Any:
        return json.loads(self(*arguments, "-o", "json"))


@pytest.fixture
def typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Typed:
    monkeypatch.chdir(tmp_path)
    return Typed(capsys)


@pytest.mark.parametrize("verb", VERBS)
def test_help_shows_an_example(typed: Typed, verb: str) -> None:
    """Each verb's help shows how it is called."""
    out = typed(verb, "--help")
    assert "Examples:" in out and f"rangelog files {verb} " in out


def test_a_stream_is_made_appended_to_and_read(typed: Typed) -> None:
    """Properties, key and header are kept; a time, a key and a limit choose events."""
    made = typed.data("create", "data/who", "--ttl", "7d", "--partition", "1h", "--writers", "3")
    assert (made["ttl_s"], made["partition_s"], made["writers"], made["generation"]) == (604_800.0, 3_600, 3, 1)
    assert typed.data("append", "data/who", "on", "off", "--key", "lamp", "--header", "a=b")["events"] == 2
    assert typed("read", "data/who") == "on\noff\n"
    first, second = (json.loads(line) for line in typed("read", "data/who", "-o", "json").splitlines())
    assert (first["value"], first["key"], first["headers"]) == ("on", "lamp", {"a": "b"})
    assert second["offset"] > first["offset"]
    assert typed("read", "data/who", "-n", "1") == "on\n"
    assert typed("read", "data/who", "--key", "other") == ""
    assert typed("read", "data/who", "--start", "-1h", "--format", "text").count("lamp  o") == 2
    assert typed("read", "data/who", "--end", "-1h") == ""


def test_what_read_prints_as_json_append_takes(typed: Typed, tmp_path: Path) -> None:
    """A key, a header, a time and bytes that are no text come back as they were."""
    typed("create", "data/a")
    typed("create", "data/b")
    line = '{"key": "k", "value": {"base64": "AAH/"}, "headers": {"h": "1"}, "timestamp_ms": 1700000000000}\n'
    (tmp_path / "lines").write_text(line)
    typed("append", "data/a", "--file", "lines", "--format", "json", "--prefix", "mine")
    (tmp_path / "copied").write_text(typed("read", "data/a", "--format", "json"))
    typed("append", "data/b", "--file", "copied", "--format", "json")
    found = json.loads(typed("read", "data/b", "--format", "json"))
    assert {name: found[name] for name in ("key", "value", "headers", "timestamp_ms")} == json.loads(line)
    assert list(tmp_path.glob("data/a/*/*/mine.000000.dat"))


def test_a_bad_line_is_named_and_those_before_it_are_in(typed: Typed, tmp_path: Path) -> None:
    """The message has the line's number, and the lines before it are on the disk."""
    typed("create", "data/who")
    (tmp_path / "lines").write_text('{"value": "1"}\nno json\n')
    typed.fails("append", "data/who", "--file", "lines", "--format", "json")
    assert typed.code == 1 and "line 2" in typed.err and typed.err.count("\n") == 1
    assert typed("read", "data/who") == "1\n"


def test_verify_says_what_each_file_holds_and_fails_for_a_damaged_one(typed: Typed, tmp_path: Path) -> None:
    """A flipped byte is damage, a missing tail is not; a reader may leave the damaged file."""
    typed("create", "data/who")
    for number in range(2):
        typed("append", "data/who", f"value {number}")
    assert [(row["state"], row["events"]) for row in typed.data("verify", "data/who")] == [("closed", 1)] * 2
    first, second = sorted(tmp_path.glob("data/who/*/*/*.dat"))
    content = bytearray(first.read_bytes())
    content[content.index(b"value 0")] ^= 1
    first.write_bytes(content)
    second.write_bytes(second.read_bytes()[:-25])
    rows = json.loads(typed.fails("verify", "data/who", "-o", "json"))
    assert typed.code == 1
    assert [row["state"] for row in rows] == ["damaged", "torn"]
    assert first.relative_to(tmp_path / "data").as_posix() in rows[0]["path"] and "damaged" in rows[0]["reason"]
    typed.fails("read", "data/who")
    assert typed.code == 1 and "damaged" in typed.err
    typed("read", "data/who", "--leave-damaged")
    assert "left at byte" in typed.err


def test_truncate(typed: Typed, tmp_path: Path) -> None:
    """No earlier event is read; with --drop the files are gone as well; it asks first."""
    typed("create", "data/who")
    typed("append", "data/who", "old")
    typed.fails("truncate", "data/who")
    assert typed.code != 0 and "--yes" in typed.err
    assert typed.data("truncate", "data/who", "--yes") == {"generation": 2, "dropped": []}
    assert typed("read", "data/who") == ""
    typed("append", "data/who", "new")
    assert typed("read", "data/who") == "new\n"
    assert typed.data("truncate", "data/who", "--yes", "--drop")["dropped"] == ["who/00001", "who/00002"]
    assert sorted(path.name for path in tmp_path.glob("data/who/0*")) == ["00003"]


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["read", "data/none"], "rangelog files create"),
        (["append", "data/none", "1"], "rangelog files create"),
        (["read", "http://a/b"], "file:///"),
        (["read", "data/.."], "name of a stream"),
        (["read", "data/who", "--start", "17"], "no common offsets"),
        (["append", "data/who", "1", "--prefix", "../x"], "prefix"),
        (["create", "data/who", "--ttl", "x"], "--ttl"),
        (["append", "s3://bucket/who", "1"], "local directory"),
    ],
)
def test_bad_usage_is_one_line(typed: Typed, arguments: list[str], part: str) -> None:
    """One line names the mistake, with the documented exit code."""
    typed("create", "data/who")
    typed.fails(*arguments)
    assert typed.code in (1, 2)
    assert typed.err.startswith("rangelog: ") and typed.err.count("\n") == 1
    assert part in typed.err
