"""The command behind `make mutants`: each wrong choice must be caught by the simulation within the seeds of one run.

Those that name a test must make it fail: what has to meet for them is too rare for seeds, or is no part of the simulation.

python tests/mutants/run.py                     # all of them, 400 seeds at most
python tests/mutants/run.py --only min,no-copy  # some
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

if not __package__:  # run by its path: imports begin at the project's folder
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from tests.mutants.catalogue import MUTANTS
from tests.mutants.mutating import StaleMutant, install

HERE = Path(__file__).parent

SEEDS_MAX = 400
TRIES_MIN = 48
"""Of a mutant that few seeds have anything to do with: a deposed owner is asked at the wrong moment in one of thirty."""


def hunt(name: str, seeds_max: int) -> dict[str, object]:
    """In a process of its own: run seeds with the mutant until one breaks a promise."""
    raft = name.removeprefix("raft:")
    began = time.monotonic()
    if raft != name:
        from tests.simulation.raft_mutants import RAFT_MUTANTS, seeds_of

        with RAFT_MUTANTS[raft]():
            for seed in range(seeds_max):
                if found := seeds_of(raft)(seed):
                    return {"name": name, "seeds": seed + 1, "found": found[0], "wall_s": time.monotonic() - began}
        return {"name": name, "seeds": seeds_max, "found": "", "wall_s": time.monotonic() - began}
    mutant = next(each for each in MUTANTS if each.name == name)
    install(mutant)
    if mutant.test:
        return {"name": name, "seeds": 0, "found": failing_test(mutant.test), "wall_s": time.monotonic() - began}
    from tests.simulation.run_quiet import quiet
    from tests.simulation.simulate import run_seed as run_cluster_seed

    quiet()
    for seed in range(mutant.first_seed, max(seeds_max, mutant.first_seed + TRIES_MIN * mutant.every), mutant.every):
        outcome = run_cluster_seed(seed)
        if outcome.violations:
            found_text = outcome.violations[0]
            return {"name": name, "seeds": seed + 1, "found": found_text, "wall_s": time.monotonic() - began}
    return {"name": name, "seeds": seeds_max, "found": "", "wall_s": time.monotonic() - began}


def failing_test(path: str) -> str:
    """In a process of its own: run a file of tests; return the first one that fails."""
    import pytest

    failed: list[str] = []

    class Listener:
        def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
            if report.failed:
                failed.append(report.nodeid)

    with contextlib.redirect_stdout(sys.stderr):
        pytest.main([path, "-x", "-q", "--tb=no", "-p", "no:cacheprovider"], plugins=[Listener()])
    return failed[0] if failed else ""


def start_hunt(name: str, seeds_max: int, timeout_s: float) -> dict[str, object]:
    """Run `hunt` in a new interpreter, whose imports the mutant edits."""
    command = [sys.executable, str(HERE / "run.py"), "--hunt", name, "--seeds", str(seeds_max)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=timeout_s)
    except subprocess.TimeoutExpired:
        return {"name": name, "seeds": seeds_max, "found": "", "error": f"not caught within {timeout_s:g} s"}
    lines = done.stdout.splitlines()
    if done.returncode or not lines:
        return {"name": name, "seeds": 0, "found": "", "error": done.stderr[-600:]}
    result: dict[str, object] = json.loads(lines[-1])
    return result


def raft_names() -> list[str]:
    """The wrong choices of consensus, which has a simulation of its own."""
    from tests.simulation.raft_mutants import RAFT_MUTANTS

    return [f"raft:{name}" for name in RAFT_MUTANTS]


def main() -> int:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="names, separated by commas (default: all)")
    parser.add_argument("--seeds", type=int, default=SEEDS_MAX, help=f"at most (default {SEEDS_MAX})")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="default: one for each core")
    parser.add_argument("--hunt", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.hunt:
        print(json.dumps(hunt(given.hunt, given.seeds)))
        return 0
    names = [each.name for each in MUTANTS] + raft_names()
    wanted = [each for each in given.only.split(",") if each] or names
    unknown = [each for each in wanted if each not in names]
    if unknown:
        parser.error(f"no mutant {unknown[0]!r}: choose from {', '.join(names)}")
    try:
        return report(wanted, given.seeds, given.processes, whole=wanted == names)
    except KeyboardInterrupt:
        print("\nmutants: stopped", file=sys.stderr)
        return 130


def report(names: list[str], seeds_max: int, processes: int, *, whole: bool) -> int:
    """A line for each mutant, in order; the last line says it all."""
    harms = {each.name: each.harm for each in MUTANTS}
    caught: dict[str, int] = {}
    with concurrent.futures.ThreadPoolExecutor(processes) as pool:
        for result in pool.map(lambda name: start_hunt(name, seeds_max, 30 + 6.0 * seeds_max), names):
            name, found = str(result["name"]), str(result.get("found", ""))
            if found:
                caught[name] = int(str(result["seeds"]))
                how = f"seeds={caught[name]:<4}" if caught[name] else "by a test "
                first = found.splitlines()[0] if not found.startswith("pd") else found.strip().splitlines()[-1]
                print(f"{name:24} caught  {how} {first[:110]}", flush=True)
            else:
                why = result.get("error") or f"{seeds_max} seeds saw nothing wrong ({harms.get(name, '')})"
                print(f"{name:24} MISSED  {why}", flush=True)
    if whole:
        from tests.support.figures import publish

        publish("mutants", {"caught": len(caught), "of": len(names), "seeds_taken": caught})
    print(f"mutants: caught={len(caught)} of={len(names)}")
    return 0 if len(caught) == len(names) else 1


__all__ = ["StaleMutant", "hunt", "main", "report"]

if __name__ == "__main__":
    sys.exit(main())
