"""Fuzzes every decoder of rangelog: each target in a process of its own, with bounds on time and memory.

examples:
  python tests/fuzz/run.py --seconds 8                    every target for 8 s
  python tests/fuzz/run.py --target batch --seed 7        one target, other inputs
  python tests/fuzz/run.py --target pd-commands --inputs 500
  python tests/fuzz/run.py --target frame --input 524c01  one input, in hex: what does it do?
  python tests/fuzz/run.py --list                         names of the targets
  python tests/fuzz/run.py --seconds 30 --save            keep what reached new lines in tests/fuzz/corpus

The same seed and number of inputs try the same inputs. Crashes go to build/fuzz/crashes, shortened.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import resource
import subprocess
import sys
import tracemalloc
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

if not __package__:  # run by its path: imports begin at the project's folder
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from tests.fuzz import fuzz_corpus
from tests.fuzz.fuzz_engine import Campaign, Crash, Tally, Target, judge, label, minimised

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]

CRASHES = ROOT / "build" / "fuzz" / "crashes"
ADDRESS_SPACE_BYTES = 6 << 30
"""Of a child: gRPC and Arrow reserve much and use little. Beyond it allocations fail, which is a crash."""
OVERHEAD_S = 120.0


def main(arguments: Sequence[str] | None = None) -> int:
    """See the module."""
    asked = parse(arguments)
    if asked.child:
        return child(asked)
    from tests.fuzz.fuzz_targets import TARGETS

    if asked.list:
        print("\n".join(TARGETS))
        return 0
    unknown = [name for name in asked.target if name not in TARGETS]
    if unknown:
        print(f"fuzz: no target {unknown[0]!r}: see --list", file=sys.stderr)
        return 2
    if asked.input is not None:
        return one(TARGETS[asked.target[0]], asked.input) if asked.target else 2
    chosen = asked.target or list(TARGETS)
    results: dict[str, dict[str, Any]] = {}
    for number, name in enumerate(chosen, 1):
        results[name] = run_child(name, asked)
        print(f"[{number}/{len(chosen)}] {line_of(name, results[name])}", flush=True)
    return finish(results, asked)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    about, _, examples = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        description=about, epilog=examples, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--target", action="append", default=[], metavar="NAME", help="only this one; repeatable")
    parser.add_argument("--seconds", type=float, default=8.0, help="fresh inputs per target for so long (default: 8)")
    parser.add_argument("--inputs", type=int, default=0, help="so many fresh inputs per target instead")
    parser.add_argument("--seed", type=int, default=1, help="which inputs (default: 1)")
    parser.add_argument("--plain", action="store_true", help="without line feedback: faster, learns nothing")
    parser.add_argument("--input", type=bytes.fromhex, metavar="HEX", help="run this one input and show what happens")
    parser.add_argument("--save", action="store_true", help="add what reached new lines to the corpus")
    parser.add_argument("--no-figures", action="store_true", help="do not publish the figures")
    parser.add_argument("--list", action="store_true", help="names of the targets")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def one(target: Target, data: bytes) -> int:
    """One input, with the error as Python shows it."""
    print("accepted" if target.run(data) else "refused")
    return 0


# ---- one target, in a child


def run_child(name: str, asked: argparse.Namespace) -> dict[str, Any]:
    """Run one target in a process; when that ends before its time, the input under way did it."""
    folder = ROOT / "build" / "fuzz"
    folder.mkdir(parents=True, exist_ok=True)
    report, current = folder / f"{name}.json", folder / f"{name}.current"
    for path in (report, current):
        path.unlink(missing_ok=True)
    command = [
        sys.executable,
        str(HERE / "run.py"),
        "--child",
        str(report),
        "--target",
        name,
        "--seed",
        str(asked.seed),
    ]
    command += ["--seconds", str(asked.seconds), "--inputs", str(asked.inputs), *(["--plain"] if asked.plain else [])]
    timed_out = False
    try:
        ended = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=asked.seconds * 3 + asked.inputs / 5 + OVERHEAD_S,
            check=False,
        )
        said = ended.stderr.strip().split("\n")[-1]
        problem = f"Ended: with {ended.returncode} | {said}"
    except subprocess.TimeoutExpired:
        timed_out, problem = True, "Hang: the process did not end"
    if report.exists() and not timed_out:
        found: dict[str, Any] = json.loads(report.read_text())
        return found
    data = current.read_bytes() if current.exists() else b""
    crash = {"target": name, "data": data.hex(), "problem": problem}
    return asdict(Tally(inputs=1)) | {"crashes": [crash], "kept": [], "rss_bytes": 0}


def child(asked: argparse.Namespace) -> int:
    """Run one target here and write what came of it."""
    from tests.fuzz.fuzz_targets import TARGETS

    logging.disable(logging.WARNING)
    (name,) = asked.target
    target = TARGETS[name]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE_BYTES, ADDRESS_SPACE_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    tracemalloc.start(1)
    if target.isolated:
        target = remembered(target, Path(asked.child).with_suffix(".current"))
    campaign = Campaign(target, asked.seed, fuzz_corpus.load(name), guided=not asked.plain)
    campaign.replay()
    if asked.inputs:
        campaign.fresh(asked.inputs)
    else:
        campaign.fresh_for(asked.seconds)
    campaign.end()
    crashes = [shortened(target, crash) for crash in campaign.tally.crashes]
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    result = asdict(campaign.tally) | {
        "crashes": [{"target": each.target, "data": each.data.hex(), "problem": each.problem} for each in crashes],
        "kept": [data.hex() for data in campaign.kept],
        "rss_bytes": grown,
    }
    Path(asked.child).write_text(json.dumps(result))
    sys.stdout.flush()
    os._exit(0)  # loops and channels of the targets need no farewell


def remembered(target: Target, path: Path) -> Target:
    """The target, with each input written down first: native code may end the process."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)

    def run(data: bytes) -> bool:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, data, 0)
        return target.run(data)

    from dataclasses import replace

    return replace(target, run=run)


def shortened(target: Target, crash: Crash) -> Crash:
    """The crash, with fewer bytes where that is quick."""
    with contextlib.suppress(Exception):
        crash.data = minimised(target, crash.data, crash.problem)
    judge(target, crash.data, Tally())
    return crash


# ---- what came of it


def line_of(name: str, result: dict[str, Any]) -> str:
    """One line for people."""
    named = " ".join(
        f"{error}={count}" for error, count in sorted(result["errors"].items(), key=lambda each: -each[1])[:4]
    )
    return (
        f"{name}: inputs={result['inputs']} accepted={result['accepted']} refused={result['refused']} "
        f"crashes={len(result['crashes'])} peak_kib={result['peak_bytes'] >> 10} "
        f"slowest_ms={result['slowest_s'] * 1000:.0f} new={len(result['kept'])} {named}"
    )


def finish(results: dict[str, dict[str, Any]], asked: argparse.Namespace) -> int:
    """Save, publish, and say how it went."""
    crashes = [crash for result in results.values() for crash in result["crashes"]]
    for crash in crashes:
        CRASHES.mkdir(parents=True, exist_ok=True)
        data = bytes.fromhex(crash["data"])
        path = CRASHES / f"{crash['target']}-{label(data)}.hex"
        path.write_text(data.hex() + "\n")
        print(f"  {crash['target']}: {crash['problem']}\n    {len(data)} bytes in {path.relative_to(ROOT)}")
    if asked.save:
        for name, result in results.items():
            fuzz_corpus.save(name, [*fuzz_corpus.load(name), *map(bytes.fromhex, result["kept"])])
    totals = figures_of(results)
    if not asked.no_figures:
        publish_figures(totals, results)
    print(
        f"fuzz: targets={totals['targets']} inputs={totals['inputs']} accepted={totals['accepted']} "
        f"refused={totals['refused']} corpus={totals['corpus_inputs']} peak_mib={totals['peak_bytes'] >> 20} "
        f"crashes={totals['crashes']}"
    )
    return 1 if crashes else 0


def figures_of(results: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The sums of a run."""
    return {
        "targets": len(results),
        "inputs": sum(each["inputs"] for each in results.values()),
        "accepted": sum(each["accepted"] for each in results.values()),
        "refused": sum(each["refused"] for each in results.values()),
        "typed_errors": sum(sum(each["errors"].values()) for each in results.values()),
        "crashes": sum(len(each["crashes"]) for each in results.values()),
        "corpus_inputs": sum(len(fuzz_corpus.load(name)) for name in results),
        "corpus_bytes": fuzz_corpus.size_bytes(),
        "peak_bytes": max(each["peak_bytes"] for each in results.values()),
        "rss_grown_bytes_max": max(each["rss_bytes"] for each in results.values()),
        "slowest_ms": round(max(each["slowest_s"] for each in results.values()) * 1000),
    }


def publish_figures(totals: dict[str, Any], results: dict[str, dict[str, Any]]) -> None:
    """Write the figures of the run."""
    from tests.support.figures import publish

    publish("fuzz", totals | {"inputs_by_target": {name: each["inputs"] for name, each in results.items()}})


if __name__ == "__main__":
    sys.exit(main())
