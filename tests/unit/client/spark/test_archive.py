"""The archive for Spark's workers: it is whole, the same each time, and what it cannot carry is named."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from rangelog.spark import needs, write_archive
from rangelog.spark.archive import PACKAGES, _main
from rangelog_core.errors import InvalidArgument, MissingExtra

_IMPORTS = """
import sys
sys.path.insert(0, sys.argv[1])
import pyspark_rangelog, rangelog.spark.sink, rangelog.spark.stream_source, rangelog.spark.topic_planning
from rangelog_core import record_codec
ours = [name for name in sys.modules if name.startswith(("rangelog", "pyspark_rangelog"))]
elsewhere = [name for name in ours if not sys.modules[name].__spec__.origin.startswith(sys.argv[1])]
print(len(ours) > 50, elsewhere, record_codec.COMPILED)
"""
_LOADS = """
import sys
sys.modules["zstandard"] = None
import rangelog.spark
print("loaded")
del sys.modules["rangelog.spark"]
import pyspark
import rangelog.spark
"""


def run(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run code in a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=60, check=False
    )


def test_tasks_run_from_the_archive_alone(tmp_path: Path) -> None:
    """Whatever a task imports is in it, and nothing compiled."""
    archive = write_archive(tmp_path / "rangelog.zip")
    with zipfile.ZipFile(archive) as opened:
        names = opened.namelist()
    assert {name.split("/")[0] for name in names} == set(PACKAGES)
    assert all(name.endswith(".py") for name in names)
    done = run(_IMPORTS, str(archive))
    assert done.stdout.split() == ["True", "[]", "False"], done.stdout + done.stderr


def test_the_same_sources_make_the_same_bytes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By the function and by the command, which prints where it is."""
    archive = write_archive(tmp_path / "one.zip")
    other = tmp_path / "other.zip"
    other.write_bytes(b"is replaced")
    assert _main([str(other)]) == 0
    assert capsys.readouterr().out == f"{other}\n"
    assert archive.read_bytes() == other.read_bytes()


@pytest.mark.parametrize(("name", "said"), [("rangelog.whl", "ends with .zip"), ("nowhere/a.zip", "not a directory")])
def test_names_that_do_not_fit(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, said: str) -> None:
    """An error of one sentence, and nothing written."""
    with pytest.raises(InvalidArgument, match=said):
        write_archive(tmp_path / name)
    assert _main([str(tmp_path / name)]) == 1
    assert capsys.readouterr().err.startswith("error: ")
    assert list(tmp_path.iterdir()) == []


def test_the_command_without_a_path(capsys: pytest.CaptureFixture[str]) -> None:
    """It says how it is used."""
    for arguments in ([], ["--help"], ["a.zip", "b.zip"]):
        assert _main(arguments) == 2
        assert "PATH.zip" in capsys.readouterr().err


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the names to install, with the Python that lacks them."""
    assert needs.missing_packages() == []
    needs.check_packages()
    found = {"grpc": "grpcio", "no_such.package": "one", "no_such_module": "other"}
    monkeypatch.setattr(needs, "_NEEDED", found)
    with pytest.raises(MissingExtra) as raised:
        needs.check_packages()
    assert f"{sys.executable}, lacks one and other: install there" in str(raised.value)


def test_nothing_is_checked_without_spark() -> None:
    """`rangelog.spark` loads where nothing else is installed, to make an archive; with pyspark it says what is missing."""
    done = run(_LOADS)
    assert done.stdout == "loaded\n"
    assert re.search(r"MissingExtra: the Python of this .* lacks zstandard: install there", done.stderr), done.stderr
