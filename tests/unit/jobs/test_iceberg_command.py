"""`rangelog-spark iceberg`: what it prints, without Spark, without pyiceberg, and of bad usage."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from rangelog_core.errors import InvalidArgument, MissingExtra, PreconditionFailed
from rangelog_jobs import ClusterAddress, iceberg
from rangelog_jobs.command import main
from rangelog_jobs.iceberg import RegisteredTable, RegisterResult, register
from rangelog_jobs.job import JobCall

ADDRESS = ClusterAddress("127.0.0.1:1")
CALL = ["iceberg", "--pd", "127.0.0.1:1", "--stream", "flights"]
WITHOUT_SPARK = """
import sys
class NoSpark:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("pyspark", "py4j"):
            raise ImportError(name)
sys.meta_path.insert(0, NoSpark())
import rangelog_jobs.iceberg_change
from rangelog_jobs import ClusterAddress
from rangelog_jobs.iceberg import register
from rangelog_core.errors import InvalidArgument
try:
    register(ClusterAddress("127.0.0.1:1"), "lake", stream="flights", namespace="a..b")
except InvalidArgument as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "one of the arguments --stream --prefix --topic is required"),
        (["--stream", "a", "--topic", "b"], "not allowed with argument"),
        (["--stream", "a", "--prefix", ""], "not allowed with argument"),
        (["--stream", "a", "--catalog-property", "uri"], "'uri' is not NAME=VALUE"),
        (["--stream", "a", "-o", "xml"], "invalid choice: 'xml'"),
    ],
)
def test_bad_usage_ends_in_the_parser(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """One line, exit code 2."""
    with pytest.raises(SystemExit) as end:
        main(["iceberg", *arguments])
    out, err = capsys.readouterr()
    assert (end.value.code, out, said in err, len(err.splitlines())) == (2, "", True, 1), err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "give exactly one of stream, prefix and topic"),
        ({"stream": "a", "topic": "b"}, "give exactly one of stream, prefix and topic"),
        ({"prefix": "a", "table": "b"}, "leave out the table's name"),
        ({"stream": "a", "namespace": "a..b"}, "a namespace is names parted by single dots"),
        ({"stream": "a", "table": ""}, "a table needs a name"),
    ],
)
def test_bad_arguments_are_refused_before_anything_is_called(arguments: dict[str, str], said: str) -> None:
    """Of a program's call."""
    with pytest.raises(InvalidArgument, match=said):
        register(ADDRESS, "lake", **arguments)


def test_a_program_needs_no_spark() -> None:
    """It is not imported; a test on a cluster registers tables without it."""
    done = subprocess.run([sys.executable, "-c", WITHOUT_SPARK], capture_output=True, text=True, timeout=60)
    said = "a namespace is names parted by single dots, and a table needs a name\n"
    assert (done.returncode, done.stdout, done.stderr) == (0, said, "")


def test_what_to_install_is_said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Without pyiceberg, and with one whose private classes are others."""
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "pyiceberg.io.pyarrow", None)
        assert main(CALL) == 1
    assert capsys.readouterr().err == "rangelog-spark: Iceberg tables need pyiceberg: pip install 'rangelog[iceberg]'\n"
    monkeypatch.setattr(iceberg, "version", lambda name: "0.13.1")
    with pytest.raises(MissingExtra, match=r"need pyiceberg 0\.12\.\*, and 0\.13\.1 is installed: pip install"):
        register(ADDRESS, "lake", stream="flights")


def test_a_line_for_each_table_and_for_each_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Text or JSON on standard output, failures on standard error and in the exit code; options arrive."""
    tables = (
        RegisteredTable("rangelog.a", "a", True, 5, 3, 0, 3, 55, 1, 5),
        RegisteredTable("rangelog.b", "b", False, None, 0, 0, 2, 40, 0, 0),
    )
    calls: list[tuple[Any, ...]] = []

    def done(*args: Any, **options: Any) -> RegisterResult:
        calls.append((*args, options))
        return RegisterResult(tables, {} if len(calls) > 2 else {"c": PreconditionFailed("table c is of d")})

    monkeypatch.setattr(iceberg, "register", done)
    monkeypatch.setattr(JobCall, "session", lambda call: pytest.fail("Spark is started"))
    call = ["iceberg", "--pd", "a:1", "--tier-url", "file:///t", "--prefix", "", "--catalog", "lake"]
    call += ["--catalog-property", "type=sql", "--catalog-property", "uri=a=b", "--namespace", "n"]
    assert main(call) == 1
    out = (
        "rangelog.a: 3 objects added, 0 removed; 55 records in 3 objects, 5 trimmed rows hidden in 1\n"
        "rangelog.b: nothing new; 40 records in 2 objects\n"
    )
    assert capsys.readouterr() == (out, "rangelog-spark: c: table c is of d\n")
    assert main([*call, "-o", "json"]) == 1
    shown = json.loads(capsys.readouterr().out)
    assert shown["failures"] == {"c": "table c is of d"} and shown["tables"][0]["hidden_count"] == 5
    assert main(call) == 0
    wanted = {"stream": None, "prefix": "", "topic": None, "namespace": "n", "table": None}
    properties = {"catalog_properties": {"type": "sql", "uri": "a=b"}}
    assert calls[0] == (ClusterAddress("a:1", None, "file:///t"), "lake", wanted | properties)


def test_the_extra_asks_for_the_versions_that_the_job_takes() -> None:
    """In pyproject.toml, and not in what every installation gets."""
    import tomllib
    from pathlib import Path

    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    line, minor = iceberg.PYICEBERG_LINE.rstrip("."), int(iceberg.PYICEBERG_LINE.split(".")[1])
    assert f"pyiceberg>={line},<0.{minor + 1}" in project["optional-dependencies"]["iceberg"]
    assert not [each for each in project["dependencies"] if "iceberg" in each]
