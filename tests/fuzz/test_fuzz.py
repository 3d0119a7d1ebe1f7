"""The short form of fuzzing: the saved corpus and a fixed number of fresh inputs per decoder. `make fuzz` is the whole form."""

from __future__ import annotations

import importlib.util
import logging
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.corruption.s3_faults import described_once
from tests.fuzz import fuzz_corpus
from tests.fuzz.fuzz_engine import Campaign, Tally, Target, judge
from tests.fuzz.fuzz_targets import TARGETS
from tests.simulation.fresh_seeds import commit_id, fresh_seed
from tests.support.forked import run_script

HERE = Path(__file__).resolve().parent
SEED = fresh_seed(commit_id())
"""Other inputs for each commit."""
IN_PROCESS = [name for name, target in TARGETS.items() if not target.isolated]
ACCEPT_ALL = ("pd-commands", "rendering")
REFUSE_ALL = ("raft-hello",)
ISOLATED = [name for name, target in TARGETS.items() if target.isolated]


@pytest.fixture(autouse=True)
def _traced() -> Iterator[None]:
    """What is allocated is watched."""
    tracemalloc.start(1)
    yield
    tracemalloc.stop()


@pytest.fixture(autouse=True)
def _described_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tier URL that opens an S3 client does not read botocore's descriptions of services again."""
    monkeypatch.setattr("botocore.session.create_loader", described_once)


@pytest.fixture(autouse=True)
def _logging() -> Iterator[None]:
    """What targets make of loggers ends with their test: others of this process look at what is logged."""
    made = logging.Logger.manager.loggerDict
    before = {each: (each.level, each.propagate) for each in made.values() if isinstance(each, logging.Logger)}
    yield
    for each in [each for each in made.values() if isinstance(each, logging.Logger)]:
        each.level, each.propagate = before.get(each, (logging.NOTSET, True))
        each.manager._clear_cache()  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", IN_PROCESS)
def test_a_decoder_survives_the_corpus_and_fresh_inputs(name: str) -> None:
    """Every input is accepted or refused by a typed error, soon and in little memory."""
    target = TARGETS[name]
    campaign = Campaign(target, SEED, fuzz_corpus.load(name))
    campaign.replay()
    campaign.fresh(target.ci_inputs)
    campaign.end()
    tally = campaign.tally
    print(
        f"{name}: inputs={tally.inputs} accepted={tally.accepted} refused={tally.refused} peak_bytes={tally.peak_bytes}"
    )
    assert not tally.crashes, [(each.problem, each.data.hex()) for each in tally.crashes]
    assert tally.refused or name in ACCEPT_ALL, "nothing was refused: the inputs do not reach the checks"
    assert tally.accepted or name in REFUSE_ALL, "nothing was accepted: nothing behind the checks was reached"


def test_decoders_in_native_code_survive_in_a_process_of_their_own() -> None:
    """Arrow and Parquet are handed hostile bytes: their process ends as it should."""
    arguments = ["--plain", "--inputs", "25", "--seed", str(SEED), "--no-figures"]
    for name in ISOLATED:
        arguments += ["--target", name]
    ended = run_script(HERE / "run.py", arguments, timeout=110)
    print(ended.stdout.decode())
    assert ended.returncode == 0, (ended.stdout + ended.stderr).decode()
    assert ended.stdout.strip().endswith(b"crashes=0")


def test_the_corpus_is_small_and_of_known_targets() -> None:
    """It is read on every run, and kept in the repository."""
    files = list(fuzz_corpus.FOLDER.glob("*.hex"))
    assert {path.stem for path in files} <= set(TARGETS)
    assert len(files) > 20
    assert fuzz_corpus.size_bytes() < 1 << 20


def defective(data: bytes) -> bool:
    """A decoder with one of each mistake."""
    if data.startswith(b"i"):
        return bool(data[100])
    if data.startswith(b"m"):
        return bool(bytearray(8 << 20))
    if data.startswith(b"t"):
        return sum(range(1_000_000)) > 0
    return False


@pytest.mark.parametrize(
    ("data", "problem"), [(b"i", "IndexError at tests/fuzz/test_fuzz.py"), (b"m", "Memory"), (b"t", "Time")]
)
def test_the_engine_sees_mistakes(data: bytes, problem: str) -> None:
    """An untyped error, an allocation above the bound and a slow input are crashes; what returns is none."""
    target = Target("defective", lambda: [b"x"], defective, time_s_max=0.002)
    found = judge(target, data, Tally())
    assert found is not None
    assert found.startswith(problem)
    assert judge(target, b"x", Tally()) is None


def test_the_same_seed_tries_the_same_inputs() -> None:
    """A crash can be found again from its seed."""
    tried: list[list[bytes]] = [[], []]
    for each in tried:
        target = Target("copied", TARGETS["batch"].seeds, lambda data, each=each: bool(each.append(data)))  # type: ignore[misc]
        Campaign(target, 3).fresh(50)
    assert tried[0] == tried[1]
    assert len(set(tried[0])) > 40


def test_the_runner_says_what_it_can(capsys: pytest.CaptureFixture[str]) -> None:
    """--list names the targets; an unknown one is an error that says where to look."""
    spec = importlib.util.spec_from_file_location("fuzz_run", HERE / "run.py")
    assert spec is not None
    assert spec.loader is not None
    run = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(run)
    assert run.main(["--list"]) == 0
    assert capsys.readouterr().out.split() == list(TARGETS)
    assert run.main(["--target", "nonsense"]) == 2
    assert "--list" in capsys.readouterr().err
