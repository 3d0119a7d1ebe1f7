"""Process chaos: a real cluster under load, one fault after the other, then everything is read back and checked.

python tests/chaos/run.py                                  every kind 5 times, but those that --list marks
python tests/chaos/run.py --kinds disk-lost --times 20     one kind, often
python tests/chaos/run.py --seed 17 --network loopback     the order of seed 17, without namespaces
python tests/chaos/run.py --kinds spark --times 20         all kinds whose names begin with spark-, often
python tests/chaos/run.py --list                           the kinds
"""

from __future__ import annotations

import argparse
import math
import random
import shutil
import signal
import sys
import time
from pathlib import Path
from types import FrameType

if not __package__:  # run by its path: imports begin at the project's folder
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from tests.chaos import chaos_engine
from tests.chaos.chaos_faults import REGISTRY
from tests.support.figures import publish

ROOT = Path(__file__).resolve().parents[2]

OUTPUT = ROOT / "build" / "chaos"
KINDS_HELP = "comma-separated names, or first words: spark is all kinds that begin with spark-; default: see --list"


def main() -> int:
    """Run as asked; the exit code says whether everything held."""
    options = parse()
    if options.list:
        for name, kind in REGISTRY.items():
            mark = "" if kind.by_default else " (only when asked for)"
            print(f"{name:28} {(kind.__doc__ or '').splitlines()[0]}{mark}")
        return 0
    signal.signal(signal.SIGTERM, interrupted)
    directory = chaos_engine.directory_for(OUTPUT, options.seed)
    print(f"chaos: seed {options.seed}; again with: make chaos SEED={options.seed}", flush=True)
    began = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - began:7.1f} s  {text}", flush=True)

    try:
        result = chaos_engine.run(
            directory, options.kinds, options.times, options.seed, say, network=options.network, within_s=options.within
        )
    except KeyboardInterrupt:
        print("\nchaos: interrupted; everything was torn down", flush=True)
        shutil.rmtree(directory, ignore_errors=True)
        return 130
    if result.clean and not options.keep:
        shutil.rmtree(directory)
    if options.kinds == by_default() or options.publish:
        publish("chaos", result.figures)
    print(result.text)
    if not result.clean:
        print(f"chaos: FAILED; histories, logs and data are kept in {directory.relative_to(ROOT)}")
    print(result.last_line, flush=True)
    return 0 if result.clean else 1


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", default="", help=KINDS_HELP)
    parser.add_argument("--times", type=int, default=5, help="how often each kind (default: 5)")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000), help="default: drawn")
    parser.add_argument("--network", choices=("auto", "namespaces", "loopback"), default="auto")
    parser.add_argument("--within", type=float, default=math.inf, help="no fault begins after so many seconds")
    parser.add_argument("--keep", action="store_true", help="keep histories and logs of a run that held, too")
    parser.add_argument("--publish", action="store_true", help="write the figures of a run with chosen kinds, too")
    parser.add_argument("--list", action="store_true", help="list the kinds and end")
    options = parser.parse_args()
    try:
        options.kinds = kinds_of(options.kinds)
    except ValueError as error:
        parser.error(str(error))
    return options


def by_default() -> list[str]:
    """The kinds of a run for which none are named."""
    return [name for name, kind in REGISTRY.items() if kind.by_default]


def kinds_of(text: str) -> list[str]:
    """The kinds that a list of names and of first words stands for, each once. Raises ValueError for one that is neither."""
    found: list[str] = []
    for word in filter(None, text.split(",")):
        meant = [name for name in REGISTRY if name == word or name.startswith(f"{word}-")]
        if not meant:
            raise ValueError(f"unknown kind {word!r}: see --list")
        found += [word] if word in REGISTRY else meant
    return list(dict.fromkeys(found)) or by_default()


def interrupted(number: int, frame: FrameType | None) -> None:
    """SIGTERM tears down like Ctrl-C."""
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
