"""Runs one target on many inputs and judges each: it must return, or raise one of our typed errors, soon, in little memory.

A target is a decoder (or a handler behind one) with good inputs made by the production encoders. Anything but a
RangelogError is a crash; so is an input that takes too long or makes the process allocate more than the target's bound.
Inputs that reach new lines are kept and mutated further. The same seed tries the same inputs.
"""

from __future__ import annotations

import hashlib
import signal
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any

from rangelog_core.errors import RangelogError
from tests.fuzz.fuzz_mutation import Mutator, mutated
from tests.support.packages import PRODUCT

MIB = 1024 * 1024
ROOT = Path(__file__).resolve().parents[2]
OWN_CODE = tuple(f"{ROOT / name}/" for name in PRODUCT)
HANG_S = 20.0
POOL_MAX = 400


@dataclass(frozen=True)
class Target:
    """One decoder. `run` returns whether it accepted the input; it asserts what then must hold.

    `repair` makes checksums fit again; it is applied to most mutated inputs. `mutators` know the format. `isolated`: native
    code is reached, which could end the process, so it gets one of its own. `afterwards`: raises what inputs have left behind.
    """

    name: str
    seeds: Callable[[], Sequence[bytes]]
    run: Callable[[bytes], bool]
    repair: Mutator | None = None
    mutators: tuple[Mutator, ...] = ()
    peak_bytes_max: int = 4 * MIB
    time_s_max: float = 2.0
    isolated: bool = False
    plain_share: float = 0.4  # of inputs that get the mutators that know nothing
    ci_inputs: int = 100
    afterwards: Callable[[], None] | None = None


@dataclass
class Crash:
    """An input and what it did."""

    target: str
    data: bytes
    problem: str


@dataclass
class Tally:
    """What was counted for one target."""

    inputs: int = 0
    accepted: int = 0
    refused: int = 0
    errors: dict[str, int] = field(default_factory=dict)  # by class of our error
    peak_bytes: int = 0
    slowest_s: float = 0.0
    crashes: list[Crash] = field(default_factory=list)


class Hang(BaseException):
    """An input did not come back."""


@contextmanager
def watched(limit_s: float = HANG_S) -> Iterator[None]:
    """Raise Hang in the main thread when the body does not end."""

    def ring(number: int, frame: FrameType | None) -> None:
        raise Hang

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, limit_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class LineFeedback:
    """Which pairs of lines of our own code one run passed: new ones make an input worth keeping."""

    def __init__(self) -> None:
        self.seen: set[tuple[Any, int, int]] = set()
        self._now: set[tuple[Any, int, int]] = set()

    def __enter__(self) -> LineFeedback:
        self._now.clear()
        sys.settrace(self._call)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def is_new(self) -> bool:
        """Whether the run passed anywhere for the first time; it counts as seen from here on."""
        fresh = not self._now <= self.seen
        self.seen |= self._now
        return fresh

    def _call(self, frame: FrameType, event: str, argument: object) -> Any:
        code = frame.f_code
        if not code.co_filename.startswith(OWN_CODE) or "_pb2" in code.co_filename:
            return None
        last = 0
        steps = 0
        add = self._now.add

        def line(frame: FrameType, event: str, argument: object) -> Any:
            nonlocal last, steps
            add((code, last, frame.f_lineno))
            last = frame.f_lineno
            steps += 1
            return line if steps < 2_000 else None

        return line


class Campaign:
    """One target, one seed."""

    def __init__(self, target: Target, seed: int, saved: Sequence[bytes] = (), *, guided: bool = False) -> None:
        self.target = target
        self.tally = Tally()
        self.kept: list[bytes] = []  # inputs that reached something new, for the corpus
        self._random = Random(f"{target.name} {seed}")
        self._pool = [*target.seeds(), *saved]
        self._feedback = LineFeedback() if guided else None
        self._problems: dict[str, int] = {}

    def replay(self) -> None:
        """Run the seeds and the saved inputs as they are."""
        for data in list(self._pool):
            self._try(data, keep=False)

    def fresh(self, count: int) -> None:
        """Run `count` new inputs."""
        for _ in range(count):
            self._try(self._next(), keep=True)

    def fresh_for(self, seconds: float) -> None:
        """Run new inputs for so long."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self._try(self._next(), keep=True)

    def end(self) -> None:
        """Look at what all inputs together have left behind; it is a crash of no input."""
        if self.target.afterwards is not None:
            try:
                self.target.afterwards()
            except Exception as error:
                self.tally.crashes.append(Crash(self.target.name, b"", f"Afterwards: {type(error).__name__} | {error}"))

    def _next(self) -> bytes:
        random, target = self._random, self.target
        data = random.choice(self._pool) if self._pool else b""
        if not target.mutators or random.random() < target.plain_share:
            data = mutated(data, random, self._pool)
        else:
            data = random.choice(target.mutators)(data, random)
        if target.repair is not None and random.random() < 0.85:
            data = target.repair(data, random)
        return data

    def _try(self, data: bytes, *, keep: bool) -> None:
        problem = judge(self.target, data, self.tally, self._feedback)
        if problem is not None:
            place = problem.split(" | ")[0]
            self._problems[place] = self._problems.get(place, 0) + 1
            if self._problems[place] == 1:  # one of a kind is enough
                self.tally.crashes.append(Crash(self.target.name, data, problem))
        elif self._feedback is not None and self._feedback.is_new() and keep and len(self._pool) < POOL_MAX:
            self._pool.append(data)
            self.kept.append(data)


def judge(target: Target, data: bytes, tally: Tally, feedback: LineFeedback | None = None) -> str | None:
    """Run one input; count it; return what is wrong, None when nothing is."""
    tally.inputs += 1
    tracing = tracemalloc.is_tracing()
    if tracing:
        tracemalloc.reset_peak()
    held = tracemalloc.get_traced_memory()[0] if tracing else 0
    began = time.thread_time()
    problem: str | None = None
    try:
        with watched():
            if feedback is not None:
                with feedback:
                    accepted = target.run(data)
            else:
                accepted = target.run(data)
        tally.accepted += accepted
        tally.refused += not accepted
    except RangelogError as error:
        tally.refused += 1
        name = type(error).__name__
        tally.errors[name] = tally.errors.get(name, 0) + 1
        if name == "InternalError":
            problem = f"InternalError: {error.message} | {place_of(error)}"
    except Hang:
        problem = f"Hang: no answer within {HANG_S:g} s"
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        problem = f"{type(error).__name__} at {place_of(error)} | {str(error)[:200]}"
    took_s = time.thread_time() - began
    peak = tracemalloc.get_traced_memory()[1] - held if tracing else 0
    tally.peak_bytes = max(tally.peak_bytes, peak)
    tally.slowest_s = max(tally.slowest_s, took_s)
    if problem is None and peak > target.peak_bytes_max:
        problem = f"Memory: over the bound of {target.peak_bytes_max} bytes | {peak} for an input of {len(data)}"
    if problem is None and took_s > target.time_s_max * (5 if feedback is not None else 1):
        problem = f"Time: over the bound of {target.time_s_max:g} s | {took_s:.2f} s for an input of {len(data)}"
    return problem


def place_of(error: BaseException) -> str:
    """Where in our code it came from: file and line of the innermost frame that is ours."""
    place = "?"
    trace = error.__traceback__
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        if name.startswith(f"{ROOT}/") and "/.venv/" not in name and "fuzz_engine" not in name:
            place = f"{name.removeprefix(f'{ROOT}/')}:{trace.tb_lineno}"
        trace = trace.tb_next
    return place


def minimised(target: Target, data: bytes, problem: str, tries_max: int = 400) -> bytes:
    """Return a shorter input that does the same."""
    place = problem.split(" | ")[0]
    tries = 0
    step = max(1, len(data) // 2)
    while step and tries < tries_max:
        at = 0
        while at < len(data) and tries < tries_max:
            shorter = data[:at] + data[at + step :]
            tries += 1
            found = judge(target, shorter, Tally())
            if found is not None and found.split(" | ")[0] == place:
                data = shorter
            else:
                at += step
        step //= 2
    return data


def label(data: bytes) -> str:
    """A short name for an input."""
    return hashlib.sha256(data).hexdigest()[:12]
