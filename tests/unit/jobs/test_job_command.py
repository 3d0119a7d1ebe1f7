"""The command: its help, what it says of bad usage, and how errors become one line and an exit code."""

from __future__ import annotations

import io
import logging
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from rangelog import TlsConfig
from rangelog_core.errors import (
    InternalError,
    InvalidArgument,
    MissingExtra,
    RangelogError,
    StreamNotFound,
    Unavailable,
)
from rangelog_jobs import command
from rangelog_jobs.cluster import ClusterAddress, find_cluster
from rangelog_jobs.command import JOB_MODULES, build_parser, job_table, main
from rangelog_jobs.console import Console
from rangelog_jobs.failures import explain
from rangelog_jobs.job import Job, JobCall, JobTable


def ended(argv: list[str]) -> int:
    """The exit code of a call that ends within the parser."""
    with pytest.raises(SystemExit) as end:
        main(argv)
    return int(end.value.code or 0)


@pytest.mark.parametrize("job", JOB_MODULES)
def test_each_job_has_help_with_examples(job: str, capsys: pytest.CaptureFixture[str]) -> None:
    """And examples that its parser takes."""
    assert ended([job, "--help"]) == 0
    shown = capsys.readouterr().out
    assert f"Examples:\n  rangelog-spark {job}" in shown
    parser = build_parser(job_table())
    for example in job_table().jobs[job].examples:
        words = [word for word in example.replace("\\\n", " ").split('"')[0].split() if word != "--sql"]
        assert parser.parse_args(words).job == job


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["dance"], "invalid choice: 'dance'"),
        ([], "required: JOB"),
        (["audit", "--stream", "a", "--prefix", "b"], "not allowed with argument"),
        (["audit", "--nonsense"], "unrecognized arguments: --nonsense"),
        (["audit", "-o", "xml"], "invalid choice: 'xml'"),
        (["audit", "--conf", "x"], "'x' is not NAME=VALUE"),
        (["export", "s"], "required: --to"),
        (["export", "s", "--to", "/t", "--format", "xls"], "invalid choice: 'xls'"),
        (["export", "s", "--to", "/t", "--by", "week"], "invalid choice: 'week'"),
        (["replay", "a", "--to", "b"], "required: --checkpoint"),
        (["replay", "a", "--to", "b", "--checkpoint", "c", "--batch-records", "0"], "'0' is not a number above 0"),
        (["report", "--keys", "many"], "invalid int value: 'many'"),
        (["mirror", "--kafka", "h:1", "--to", "b", "--checkpoint", "c"], "required: --topic"),
    ],
)
def test_bad_usage_is_one_line(argv: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With exit code 2, and nothing on standard output."""
    assert ended(argv) == 2
    out, err = capsys.readouterr()
    assert (out, said in err, len(err.splitlines())) == ("", True, 1), err


def test_a_cluster_has_to_be_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Any, capsys: Any) -> None:
    """Without an option, the environment and a local one: exit code 2. The local one is found by its context."""
    monkeypatch.delenv("RANGELOG_PD", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert main(["audit"]) == 2
    assert "which cluster?" in capsys.readouterr().err
    (tmp_path / "rangelog").mkdir()
    (tmp_path / "rangelog" / "context.json").write_text('{"name": "local", "pd": ["a:1", "b:2"]}')
    assert find_cluster(None, None, None) == ClusterAddress("a:1,b:2")


@pytest.mark.parametrize(
    ("missing", "argv", "said"),
    [
        ("pyspark", ["audit", "--pd", "127.0.0.1:1"], "Spark is not installed"),
        ("pyarrow", ["audit", "--help"], "pyarrow is not installed"),
    ],
)
def test_without_a_package_it_says_what_to_install(missing: str, argv: list[str], said: str) -> None:
    """In one line, in a process that lacks the package; help needs no Spark."""
    program = (
        "import sys\n"
        "class Without:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name.partition('.')[0] == {missing!r}:\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "sys.meta_path.insert(0, Without())\n"
        "from rangelog.spark.command_line import main\n"
        "sys.exit(main())\n"
    )

    def called(*given: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", program, *given]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)

    found = called(*argv)
    assert found.returncode == 1
    assert found.stderr == f"rangelog-spark: {said}: pip install 'rangelog[spark]'\n"
    if missing == "pyspark":
        assert called("compact", "--help").returncode == 0


def test_options_of_a_cluster() -> None:
    """The sink does not know where the tier is."""
    cluster = ClusterAddress("a:1", "secret", "file:///t")
    assert cluster.to_options(stream="s") == {"pd": "a:1", "token": "secret", "tier_url": "file:///t", "stream": "s"}
    assert cluster.to_sink_options(stream="s") == {"pd": "a:1", "token": "secret", "stream": "s"}
    assert cluster.read_options("s").tier_url == "file:///t"
    assert ClusterAddress("a:1").to_options() == {"pd": "a:1"}
    tls = ClusterAddress("a:1", tls=TlsConfig("a", "b", "c"))
    assert tls.to_sink_options() == {"pd": "a:1", "tls_ca": "a", "tls_cert": "b", "tls_key": "c"}
    assert tls.read_options("s").tls == tls.tls


def running(monkeypatch: pytest.MonkeyPatch, work: Callable[[JobCall], int]) -> int:
    """The exit code of a command whose one job does this."""
    table = JobTable()
    table.add(Job("count", "Count.", ["count"], lambda parser: None, work))
    monkeypatch.setattr(command, "job_table", lambda: table)
    return main(["count", "--pd", "a:1"])


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (InvalidArgument("bad start"), 2, "rangelog-spark: bad start\n"),
        (StreamNotFound("no stream 'x'"), 1, "rangelog-spark: no stream 'x': see `pdctl stream list`\n"),
        (Unavailable("nobody answers"), 1, "rangelog-spark: nobody answers\n"),
        (KeyboardInterrupt(), 130, "rangelog-spark: interrupted\n"),
        (PermissionError(13, "Permission denied", "/x"), 1, "/x: Permission denied: check the path"),
        (ZeroDivisionError("division"), 1, "internal error ZeroDivisionError (division)"),
        (RuntimeError("a\nb"), 1, "(a b)"),
    ],
)
def test_errors_become_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: Any, error: BaseException, code: int, said: str
) -> None:
    """And an exit code by their class."""
    monkeypatch.delenv("RANGELOG_DEBUG", raising=False)

    def fail(call: JobCall) -> int:
        raise error

    assert running(monkeypatch, fail) == code
    out, err = capsys.readouterr()
    assert (out, said in err, len(err.splitlines())) == ("", True, 1), err


def test_for_debugging_the_error_itself_is_raised(monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    """With RANGELOG_DEBUG=1."""
    monkeypatch.setenv("RANGELOG_DEBUG", "1")

    def fail(call: JobCall) -> int:
        raise ZeroDivisionError("division")

    with caplog.at_level(logging.ERROR), pytest.raises(ZeroDivisionError):
        running(monkeypatch, fail)


@pytest.mark.parametrize(
    "argv",
    [
        ["audit"],
        ["report"],
        ["export", "s", "--to", "/nowhere"],
        ["replay", "s", "--to", "t", "--checkpoint", "/nowhere"],
        ["mirror", "--kafka", "k:1", "--topic", "t", "--to", "s", "--checkpoint", "/nowhere"],
    ],
)
def test_spark_starts_before_the_cluster_is_called(
    monkeypatch: pytest.MonkeyPatch, capsys: Any, argv: list[str]
) -> None:
    """Spark is started by a fork, which gRPC does not bear once it has called: the child may abort, or hang."""
    monkeypatch.setattr(JobCall, "session", lambda call: (_ for _ in ()).throw(Unavailable("Spark starts")))
    monkeypatch.setattr(ClusterAddress, "client", lambda cluster: pytest.fail("the cluster was called first"))
    assert main([*argv, "--pd", "a:1"]) == 1
    assert capsys.readouterr().err == "rangelog-spark: Spark starts\n"


def test_a_result_is_text_or_json(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """As `-o` says; the default is text."""

    def show(call: JobCall) -> int:
        call.emit({"records": 3}, "3 records\n")
        call.arguments.output = "json"
        call.emit({"name": "ü"}, "")
        return 0

    assert running(monkeypatch, show) == 0
    assert capsys.readouterr().out == '3 records\n{\n  "name": "ü"\n}\n'


class FakePySparkError(Exception):
    """Looks as if it came from pyspark."""

    __module__ = "pyspark.errors.exceptions.captured"


class AnalysisException(FakePySparkError):  # pyspark's name
    """As pyspark's."""

    __module__ = "pyspark.errors.exceptions.captured"


@pytest.mark.parametrize(
    ("error", "cls", "message"),
    [
        (
            FakePySparkError("[X] …\n  File x\nrangelog_core.errors.StreamNotFound: no stream 'x'\n\nat org.apache"),
            StreamNotFound,
            "no stream 'x': see `pdctl stream list`",
        ),
        (
            FakePySparkError("a: rangelog_core.errors.Nothing: x"),
            InternalError,
            "Spark failed: a: rangelog_core.errors.Nothing: x: set RANGELOG_DEBUG=1 for its log",
        ),
        (
            AnalysisException("[UNRESOLVED_COLUMN.X] A column `a` cannot be resolved. SQLSTATE: 42703; line 1"),
            InvalidArgument,
            "Spark does not accept this: A column `a` cannot be resolved",
        ),
        (ImportError("No module named 'pyspark'"), MissingExtra, "pip install 'rangelog[spark]'"),
    ],
)
def test_what_spark_wraps_is_found(error: Exception, cls: type[RangelogError], message: str) -> None:
    """An error of rangelog in its text, or its own reason without class names and tracebacks."""
    told = explain(error)
    assert type(told) is cls
    assert message in told.message


def test_progress_is_silent_where_asked() -> None:
    """Nothing but errors; and a short job prints no progress where there is no terminal."""
    file = io.StringIO()
    quiet = Console(quiet=True, file=file)
    quiet.say("hello")
    with quiet.progress("audit", "tasks") as show:
        show(1, 2)
    with Console(file=file).progress("audit", "tasks") as show:
        show(1, 2)
    assert file.getvalue() == ""
    quiet.print_line("a\x1b[1mb\nc")
    assert file.getvalue() == "a\ufffd[1mb c\n"


def test_progress_on_a_terminal_is_one_line_that_goes_away() -> None:
    """It is drawn over itself, with a bar where the total is known."""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    file = Terminal()
    with Console(file=file).progress("audit", "tasks") as show:
        show(6, 12)
    text = file.getvalue()
    assert text.startswith("\raudit: [############............] 6 of 12 tasks")
    assert text.endswith("\r") and "\n" not in text
