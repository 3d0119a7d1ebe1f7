"""Second tries: what is tried again, what never is, and what fails a run all the same; each on a pytest run of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rangelog_core.errors import AppendTimeout, Corruption, RecordsLost, RequestTimeout, Unavailable
from tests.support.chance import rows_of, summary
from tests.support.ran_out import is_wait_that_ran_out
from tests.support.second_try import PER_RUN_MAX
from tests.support.waiting import WaitRanOut, arrives

ROOT = Path(__file__).resolve().parents[3]
INI = "[pytest]\naddopts = --import-mode=importlib -p no:cacheprovider -p xdist\n"
CONFTEST = """
import tests.support.left_running
pytest_plugins = ["tests.support.second_try"]
tests.support.left_running.GRACE_S = 0.5
_nothing_is_left_running = tests.support.left_running._nothing_is_left_running
"""
BEGIN = """
import os, pathlib, subprocess, sys
import pytest
from rangelog_core.errors import RequestTimeout
HERE = pathlib.Path(__file__).parent

def nth(name):
    "How often it was asked for this name, over all processes."
    with (HERE / name).open("a") as file:
        file.write("x")
    return len((HERE / name).read_text())
"""
RUNS_OUT_ONCE = """
def test_{name}():
    if nth("{name}") == 1:
        print("first try of {name} printed this")
        raise RequestTimeout("not within 20 s: {name} is not there")
"""
Run = Callable[..., tuple[int, str]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """`run(source, *options)`: pytest over a file of tests in each of `folders`, with the plugin; its exit code and output."""
    environment = {"PATH": "", "PYTHONPATH": str(ROOT), "RANGELOG_TEST_RUN": "r", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}

    def pytest_over(source: str, *options: str, folders: tuple[str, ...] = ("integration",)) -> tuple[int, str]:
        (tmp_path / "pytest.ini").write_text(INI)
        (tmp_path / "conftest.py").write_text(CONFTEST)
        for folder in folders:
            (tmp_path / folder).mkdir(exist_ok=True)
            (tmp_path / folder / "test_it.py").write_text(BEGIN + source)
        command = [sys.executable, "-m", "pytest", "-q", *options, *folders]
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=110, check=False
        )
        return done.returncode, done.stdout + done.stderr

    return pytest_over


def rows(tmp_path: Path) -> list[dict[str, object]]:
    """What was noted of second tries."""
    return [json.loads(line) for line in (tmp_path / "build" / "chance.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("options", [(), ("-n", "2")], ids=["alone", "with workers"])
def test_a_wait_that_ran_out_is_tried_again(run: Run, tmp_path: Path, options: tuple[str, ...]) -> None:
    """It passes at the second try, the run passes, and the first try's words and the row are kept."""
    code, said = run(RUNS_OUT_ONCE.format(name="leader") + "def test_other(): pass", *options)
    assert code == 0, said
    assert "chance: tried_again=1 passed=1 names=test_it.py::test_leader" in said
    assert "first try of leader printed this" in said and "1 tried again" in said
    (row,) = rows(tmp_path)
    assert row["passed"] and row["tries"] == 1 and row["error"] == "not within 20 s: leader is not there"
    assert "first try of leader printed this" in (tmp_path / str(row["output"])).read_text()


def test_a_second_try_begins_after_the_last_test(run: Run) -> None:
    """Nothing runs beside it: the tests that come later have ended, and what they shared is gone."""
    source = """
@pytest.fixture(scope="session")
def shared():
    mine = HERE / f"shared-{os.getpid()}"
    mine.write_text("")
    yield mine
    mine.unlink()

def test_first(shared):
    if nth("first") == 1:
        raise RequestTimeout("not yet")
    assert (HERE / "last").exists() and list(HERE.glob("shared-*")) == [shared]

def test_last(shared):
    (HERE / "last").write_text("")
"""
    code, said = run(source, "-n", "2")
    assert code == 0 and "tried_again=1 passed=1" in said, said


VERDICTS = (
    "assert [1, 2] == [1, 2, 3]",
    "raise AssertionError('offset 7 is lost')",
    "subprocess.run([sys.executable, '-c', 'raise SystemExit(3)'], check=True)",
    "raise ExceptionGroup('two', [RequestTimeout('slow'), AssertionError('a record is lost')])",
    "raise KeyError('a digest')",
    "pytest.fail('Timeout (>120.0s) from pytest-timeout.')",
    "try: assert [] == ['the acked record']\n    finally: raise RequestTimeout('the cleanup ran out')",
)


def test_a_verdict_is_not_tried_again(run: Run, tmp_path: Path) -> None:
    """Each fails the run, and each test ran once: an assertion before a wait that ran out counts as well."""
    code, said = run("".join(f"def test_{k}():\n    nth('t{k}')\n    {each}\n" for k, each in enumerate(VERDICTS)))
    assert code == 1 and "chance:" not in said and f"{len(VERDICTS)} failed" in said, said
    assert [(tmp_path / "integration" / f"t{k}").read_text() for k in range(len(VERDICTS))] == ["x"] * len(VERDICTS)


def test_what_fails_again_fails_the_run(run: Run, tmp_path: Path) -> None:
    """A verdict of a second try is final; what runs out twice more has no further try."""
    source = """
def test_loses():
    if nth("loses") == 1:
        raise RequestTimeout("slow")
    assert "a record" == "lost"

def test_hangs():
    nth("hangs")
    raise RequestTimeout("never")
"""
    code, said = run(source)
    assert code == 1 and "chance: tried_again=2 passed=0" in said, said
    assert (tmp_path / "integration" / "loses").read_text() == "xx"
    assert (tmp_path / "integration" / "hangs").read_text() == "xxx"


def test_five_in_a_run_fail_it(run: Run, tmp_path: Path) -> None:
    """Four may be tried again in one run, over all its commands; the fifth fails although it would pass."""
    code, said = run("".join(RUNS_OUT_ONCE.format(name=f"t{number}") for number in range(PER_RUN_MAX - 1)))
    assert code == 0 and "tried_again=3 passed=3" in said, said
    code, said = run("".join(RUNS_OUT_ONCE.format(name=f"u{number}") for number in range(2)))
    assert code == 1 and "tried_again=5 passed=4" in said, said
    assert (tmp_path / "integration" / "u1").read_text() == "x"
    assert summary(rows_of(tmp_path / "build", "r")).startswith(
        "chance: tried_again=5 passed=4 names=test_it.py::test_t0,"
    )
    assert summary(rows_of(tmp_path / "build", "another")) == "chance: tried_again=0 passed=0 names=-"


def test_a_shared_set_up_that_ran_out_counts_once(run: Run, tmp_path: Path) -> None:
    """A cluster that does not start fails each test that shares it: one row, one second try of all of them."""
    source = """
@pytest.fixture(scope="module")
def cluster():
    if nth("start") == 1:
        raise RequestTimeout("the cluster is not healthy")

@pytest.mark.parametrize("number", range(6))
def test_it(cluster, number): pass
"""
    code, said = run(source)
    assert code == 0 and "tried_again=1 passed=1" in said, said
    (row,) = rows(tmp_path)
    assert len(row["tests"]) == 6 and row["step"] == "setup"  # type: ignore[arg-type]


def test_only_tests_of_real_processes_have_a_second_try(run: Run) -> None:
    """Elsewhere a wait that runs out is a defect."""
    folders = ("unit", "simulation", "fuzz", "model", "crash_points")
    code, said = run(RUNS_OUT_ONCE.format(name="it"), folders=folders)
    assert code == 1 and "chance:" not in said and f"{len(folders)} failed" in said, said


@pytest.mark.parametrize("leaves", ["first", "second"])
def test_a_process_that_a_try_leaves_running_fails_the_run(run: Run, leaves: str) -> None:
    """A second try hides none, and leaves none itself."""
    source = f"""
def test_it():
    number = nth("it")
    if number == {1 if leaves == "first" else 2}:
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    if number == 1:
        raise RequestTimeout("slow")
"""
    code, said = run(source)
    assert code == 1 and "tests left these processes running" in said, said


def raised(
    error: BaseException, *, cause: BaseException | None = None, context: BaseException | None = None
) -> BaseException:
    """The error as Python links it."""
    error.__cause__, error.__context__ = cause, context
    return error


@pytest.mark.parametrize(
    "error",
    [
        WaitRanOut("not within 20 s: nobody leads", ""),
        RequestTimeout("rs1 still runs after 10 s"),
        AppendTimeout("not acked"),
        raised(RequestTimeout("no answer"), cause=ConnectionResetError()),
        raised(RequestTimeout("no answer"), context=raised(Unavailable("no leader"), cause=OSError())),
        raised(RequestTimeout("runs"), context=subprocess.TimeoutExpired("pdctl", 3)),
        ExceptionGroup("both", [RequestTimeout("a"), AppendTimeout("b")]),
    ],
    ids=repr,
)
def test_waits(error: BaseException) -> None:
    """Waits that ran out, whatever attempts failed before."""
    assert is_wait_that_ran_out(error)


@pytest.mark.parametrize(
    "error",
    [
        AssertionError("x"),
        Unavailable("rs1 ended with exit code -6: it said nothing"),
        RecordsLost("offset 7"),
        TimeoutError("a read that must give all records"),
        raised(RequestTimeout("the cleanup"), context=AssertionError("lost")),
        raised(RequestTimeout("the cleanup"), context=raised(OSError(), context=AssertionError("lost"))),
        raised(RequestTimeout("x"), cause=Corruption("x")),
        ExceptionGroup("both", [RequestTimeout("a"), ValueError("b")]),
        raised(ExceptionGroup("both", [RequestTimeout("a")]), context=AssertionError("lost")),
    ],
    ids=repr,
)
def test_verdicts(error: BaseException) -> None:
    """A member that ended, a plain time-out that may await records, and whatever hides behind a wait."""
    assert not is_wait_that_ran_out(error)


def test_records_that_do_not_come_are_a_verdict() -> None:
    """The wait for them ran out; what it raises says that they may be lost."""
    with pytest.raises(AssertionError, match="missing 1") as caught:
        arrives(lambda: [b"a"], [b"a", b"b"], "the acked records", 0)
    assert not is_wait_that_ran_out(caught.value)
