"""A run: start everything, inject one fault after the other under load, wait until each has healed, check at the end.

The next fault comes only when the examination finds nothing wrong: that is what f = 1 asks for.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.chaos import (
    chaos_aging,  # noqa: F401 - registers its kinds
    chaos_brokers,  # noqa: F401 - registers its kinds
    chaos_check,
    chaos_disk_faults,  # noqa: F401 - registers its kinds
    chaos_far,  # noqa: F401 - registers its kinds
    chaos_lives,  # noqa: F401 - registers its kinds
    chaos_moved_tier,  # noqa: F401 - registers its kinds
    chaos_operations,  # noqa: F401 - registers its kinds
    chaos_partitions,  # noqa: F401 - registers its kinds
    chaos_reading,
    chaos_report,
    chaos_spark,  # noqa: F401 - registers its kinds
    chaos_spark_check,
    chaos_storms,  # noqa: F401 - registers its kinds
    chaos_topic_check,
    chaos_twins,  # noqa: F401 - registers its kinds
    chaos_vanished,  # noqa: F401 - registers its kinds
)
from tests.chaos.chaos_cluster import System
from tests.chaos.chaos_faults import REGISTRY, Fault
from tests.chaos.chaos_health import ONCE_MORE, Examination
from tests.chaos.chaos_outcome import Injected, Run
from tests.support.held_loops import long_holds
from tests.support.log_report import Report
from tests.support.openings import everything_opens
from tests.support.waiting import Seen, WaitRanOut, eventually

HEALTHY_AT_START_S = 60.0
CALM_S = (0.3, 1.0)


class Unhealed(Exception):
    """The cluster did not come back in time: that is a finding."""


def schedule(kinds: Sequence[str], times: int, dice: random.Random) -> list[str]:
    """Every kind `times` times, in random order."""
    order = [kind for kind in kinds for _ in range(times * REGISTRY[kind].often)]
    dice.shuffle(order)
    return order


def run_faults(
    system: System, kinds: Sequence[str], times: int, run: Run, say: Callable[[str], None], until_s: float
) -> None:
    """Inject everything, nothing after the monotonic time `until_s`. Raises Unhealed, or what a fault says must not happen."""
    dice = random.Random(run.seed)
    for kind in kinds:
        lacking = system.lacks(REGISTRY[kind].needs)
        if lacking:
            run.skipped[kind] = lacking
    order = schedule([kind for kind in kinds if kind not in run.skipped], times, dice)
    wait_healed(system, HEALTHY_AT_START_S)
    faults: list[Fault] = []
    for number, kind in enumerate(order, 1):
        if time.monotonic() > until_s:
            say(f"time is up: {len(order) - number + 1} of {len(order)} faults are left out")
            break
        fault = REGISTRY[kind](system, random.Random(dice.getrandbits(64)))
        faults.append(fault)
        entry = _inject(system, fault, run)
        heal_s = (entry.healthy_ns - entry.healed_ns) / 1e9
        lasted_s = (entry.healed_ns - entry.injected_ns) / 1e9
        times_s = f"lasted {lasted_s:.1f} s, healed in {heal_s:.1f} s"
        say(f"[{number}/{len(order)}] {kind}: {entry.hit}; {times_s} ({entry.last_problem})")
        fault.interrupts.wait(dice.uniform(*CALM_S))
    run.problems += [f"after {fault.name}: {problem}" for fault in faults if (problem := fault.afterwards())]


def _inject(system: System, fault: Fault, run: Run) -> Injected:
    entry = Injected(fault.name, "", time.monotonic_ns())
    run.injected.append(entry)
    try:
        entry.hit = fault.inject()
        fault.interrupts.wait(fault.draw_hold_s())
    finally:
        fault.heal()
    entry.healed_ns = time.monotonic_ns()
    try:
        entry.last_problem = wait_healed(system, fault.heals_within_s)
    except Unhealed as error:
        raise Unhealed(f"after {fault.name} ({entry.hit}): {error}") from None
    entry.healthy_ns = time.monotonic_ns()
    return entry


def wait_healed(system: System, timeout_s: float) -> str:
    """Return once all is well, and what was not at the last look before. Raises Unhealed."""
    examination = Examination(system)
    last = ""

    def is_well() -> Seen:
        nonlocal last
        problem = examination.problem()
        last = last if problem in ("", ONCE_MORE) else problem
        return Seen(not problem, problem)

    try:
        eventually(is_well, "the cluster is not healed", timeout_s)
    except WaitRanOut as error:
        raise Unhealed(str(error)) from None
    return last


@dataclass(frozen=True)
class Result:
    """How a run went."""

    clean: bool
    figures: dict[str, Any]
    text: str
    last_line: str
    problems: list[str]


def run(
    directory: Path,
    kinds: Sequence[str],
    times: int,
    seed: int,
    say: Callable[[str], None],
    *,
    network: str = "auto",
    within_s: float = math.inf,
) -> Result:
    """The whole of it. Nothing is left running or mounted, whatever happens; what went wrong is in the result.

    No fault begins after `within_s` seconds.
    """
    began, faults = time.monotonic(), Run(seed)
    verdict: chaos_check.Verdict | None = None
    topic, copies = chaos_topic_check.TopicVerdict(), chaos_spark_check.CopyVerdict()
    light = not any(REGISTRY[kind].by_default for kind in kinds)
    with System(directory, network=network, light=light) as system:
        say(
            f"network: {system.network.kind}; disks: {system.disks.kind}; strace: {'yes' if system.can_trace else 'no'}"
        )
        try:
            system.start()
            run_faults(system, kinds, times, faults, say, began + within_s)
        except Exception as error:
            during = f"{faults.injected[-1].kind} ({faults.injected[-1].hit})" if faults.injected else "the start"
            faults.problems.append(f"during {during}: {type(error).__name__}: {error}")
        try:
            topic = chaos_topic_check.judge(system.topic)
            faults.problems += topic.problems
        except Exception as error:
            faults.problems.append(f"topic, at the end: {type(error).__name__}: {error}")
        try:
            back = chaos_reading.read_everything(system)
            faults.problems += [problem for each in back.values() for problem in each.problems]
            verdict = chaos_check.judge(system.load, back)
        except Exception as error:
            faults.problems.append(f"at the end: {type(error).__name__}: {error}")
        try:
            copies = chaos_spark_check.judge(system.spark)
            faults.problems += copies.problems
        except Exception as error:
            faults.problems.append(f"spark, at the end: {type(error).__name__}: {error}")
        try:
            faults.opened_again = asyncio.run(everything_opens(system.cluster))
        except Exception as error:
            faults.problems.append(f"brokers, started again at the end: {type(error).__name__}: {error}")
        faults.problems += long_holds(system.cluster.directory / "logs")
        if verdict is None or not verdict.clean or faults.problems:
            system.cluster.kill_all()
            system.disks.keep(directory / "kept")
    for kind, lacking in faults.skipped.items():
        say(f"skipped {kind}: this machine has no {', '.join(lacking)} to inject it with")
    return _result(system, faults, verdict, topic, copies, time.monotonic() - began)


def _result(
    system: System,
    faults: Run,
    verdict: chaos_check.Verdict | None,
    topic: chaos_topic_check.TopicVerdict,
    copies: chaos_spark_check.CopyVerdict,
    took_s: float,
) -> Result:
    rows: dict[str, dict[str, float]] = {}
    report = verdict.report if verdict is not None else Report()
    if verdict is not None:
        steady = {plan.name: verdict.acks_ns[plan.name] for plan in system.streams if plan.steady}
        rows = chaos_report.by_kind([each for each in faults.injected if each.healthy_ns], steady, topic.acks_ns)
    figures = {
        "kinds": rows,
        "kinds_count": len(rows),
        "kinds_skipped": len(faults.skipped),
        "faults": len(faults.injected),
        "opened_again": faults.opened_again,
        "seed": faults.seed,
        "duration_s": round(took_s, 1),
        **(verdict.figures() if verdict is not None else {}),
        **topic.figures(),
        **copies.figures(),
    }
    text = "\n".join([chaos_report.table(rows), *faults.problems, *map(str, report.violations), report.summary()])
    clean = verdict is not None and verdict.clean and not faults.problems
    last_line = chaos_report.last_line(faults, report, rows, topic) + copies.last_words()
    return Result(clean, figures, text, last_line, faults.problems)


def directory_for(root: Path, seed: int) -> Path:
    """A fresh directory of this run."""
    target = root / f"seed-{seed}-{int(time.time())}"
    target.mkdir(parents=True)
    return target
