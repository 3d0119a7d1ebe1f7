"""`make bench`: rangelog and its peers in turn, round by round on one machine, and the line that compares them.

    .venv/bin/python bench/side_by_side.py --quick --system rangelog --system nats

Rounds are interleaved, so that what the machine does meanwhile strikes all alike. Every figure of every round is in
build/bench/rounds.jsonl, the medians in build/bench/results.jsonl. A peer that is not installed is skipped with a word.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from rangelog_bench.anchors import BOOKKEEPER, BOOKKEEPER_FLUSH_WHEN_IDLE, KAFKA, KAFKA_FLUSHED
from rangelog_bench.command import NAMES
from rangelog_bench.measurement import Measurement, medians, read_lines
from rangelog_bench.report import BEFORE as BEFORE_NAME
from rangelog_bench.report import comparison, plot, print_tables
from rangelog_bench.scratch import file_system_of
from rangelog_bench.topics.round import TOPICS
from rangelog_bench.workload import OF_PEERS, PRODUCERS, Effort

ROOT = Path(__file__).resolve().parents[1]
OUTPUT = ROOT / "build" / "bench"
PEERS = ROOT / "bench" / "peers"
PEER_PYTHON = ROOT / "build" / "bench-peers" / "venv" / "bin" / "python"

PEER_COMMANDS = {
    "nats": ("nats_jetstream.py", "sync always"),
    "redis": ("redis_streams.py", "always, WAIT 1"),
    "rabbitmq": ("rabbitmq_streams.py", "stream, not flushed"),
    "redis-everysec": ("redis_streams.py", "everysec, WAIT 1"),
    "kafka": ("kafka.py", KAFKA.setting),
    "kafka-flushed": ("kafka.py", KAFKA_FLUSHED.setting),
    "bookkeeper": ("bookkeeper.py", BOOKKEEPER.setting),
    "bookkeeper-flush-when-idle": ("bookkeeper.py", BOOKKEEPER_FLUSH_WHEN_IDLE.setting),
}
BEFORE = "rangelog-before"
"""Another commit of rangelog, measured by this commit's workload: what a change costs, in one run."""
SYSTEMS = ("rangelog", BEFORE, *PEER_COMMANDS)
PRODUCT = ("proto", "core", "server_common", "client", "broker", "pd", "range_server")


def say(text: str) -> None:
    """Tell the user what goes on."""
    print(f"bench: {text}", file=sys.stderr, flush=True)


def command_for(system: str, passed_on: Sequence[str], only: Sequence[str]) -> list[str] | None:
    """What measures one round of a system; None when it takes part in nothing of `only`."""
    if system in ("rangelog", BEFORE):
        command = [sys.executable, "-m", "rangelog_cli", "bench", "--json", "--data-dir", str(OUTPUT)]
        names = list(only) or [*NAMES, *((PRODUCERS,) if system == "rangelog" else ())]
    else:
        script, setting = PEER_COMMANDS[system]
        command = [str(PEER_PYTHON), str(PEERS / script), "--setting", setting]
        names = [name for name in only if name in OF_PEERS]
        if only and not names:
            return None
    return [*command, "--rounds", "1", *passed_on, *(word for name in names for word in ("--only", name))]


def environment_for(system: str, before: Path | None) -> dict[str, str]:
    """The environment of a system's command: the earlier product comes first on the path, the command is ours."""
    if system != BEFORE or before is None:
        return dict(os.environ)
    folders = [*(before / name for name in PRODUCT), ROOT / "cli"]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(str(folder) for folder in folders)}


def measure(command: Sequence[str], environment: dict[str, str]) -> tuple[list[Measurement], bool]:
    """Run it; what it measured, and whether that is everything. Ctrl-C ends it first, and it cleans up."""
    running = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        output, _ = running.communicate()
    except BaseException:
        running.send_signal(signal.SIGINT)
        running.wait()
        raise
    return read_lines(output), running.returncode == 0


def commit_of(tree: Path) -> str:
    """The commit of a worktree."""
    told = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=tree, capture_output=True, text=True)
    return told.stdout.strip() or "unknown"


def machine(before: Path | None) -> dict[str, str]:
    """What the figures were taken on."""
    model = "unknown processor"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    earlier = {"before": commit_of(before)} if before is not None else {}
    return {
        "at": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": commit_of(ROOT),
        **earlier,
        "cores": str(os.cpu_count()),
        "processor": model,
        "memory": f"{memory_gib:.0f} GiB",
        "file system": file_system_of(OUTPUT),
        "kernel": platform.release(),
        "python": platform.python_version(),
    }


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(description="rangelog and its peers in turn, on this machine")
    parser.add_argument("--system", action="append", choices=SYSTEMS, help="default: all")
    parser.add_argument(
        "--only", action="append", choices=(*NAMES, *TOPICS), default=[], help="default: all but topics' own"
    )
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--quick", action="store_true", help="one round of a second or two each")
    parser.add_argument("--before", type=Path, metavar="DIR", help="a worktree of another commit, as one more system")
    given = parser.parse_args()
    if given.before is not None and not (given.before / "client" / "rangelog").is_dir():
        parser.error(f"--before {given.before}: no worktree of rangelog; make one with `git worktree add DIR COMMIT`")
    systems = given.system or [name for name in SYSTEMS if name != BEFORE]
    if given.before is not None and BEFORE not in systems:
        systems.insert(systems.index("rangelog") if "rangelog" in systems else 0, BEFORE)
    if BEFORE in systems and given.before is None:
        parser.error(f"--system {BEFORE} needs --before DIR")
    before = given.before.resolve() if given.before is not None else None
    passed_on = ["--quick"] if given.quick else []
    passed_on += ["--seconds", str(given.seconds)] if given.seconds else []
    rounds = given.rounds or (1 if given.quick else Effort().rounds)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    OUTPUT.mkdir(parents=True, exist_ok=True)
    (OUTPUT / "machine.json").write_text(json.dumps(machine(before), indent=2) + "\n")
    try:
        found, complete = run_rounds(systems, rounds, passed_on, given.only, before)
    except KeyboardInterrupt:
        say("interrupted: nothing is left running")
        return 130
    results = medians(found)
    (OUTPUT / "results.jsonl").write_text("".join(f"{each.to_json()}\n" for each in results))
    print_tables(results)
    if plot(results, OUTPUT / "bench.png"):
        print(f"plot: {OUTPUT / 'bench.png'}")
    print(comparison(results), flush=True)
    return 0 if complete else 1


def run_rounds(
    systems: Sequence[str], rounds: int, passed_on: Sequence[str], only: Sequence[str], before: Path | None
) -> tuple[list[Measurement], bool]:
    """All systems in turn, `rounds` times; whether ours gave everything."""
    found: list[Measurement] = []
    complete = True
    with (OUTPUT / "rounds.jsonl").open("w") as kept:
        for number in range(rounds):
            for system in systems:
                command = command_for(system, passed_on, only)
                if command is None:
                    continue
                if system in PEER_COMMANDS and not PEER_PYTHON.exists():
                    say(f"{system} skipped: bench/peers/install.sh could not install it")
                    continue
                say(f"round {number + 1} of {rounds}: {system}")
                lines, whole = measure(command, environment_for(system, before))
                if system == BEFORE:
                    lines = [replace(each, system=BEFORE_NAME) for each in lines]
                found += lines
                kept.writelines(f"{each.to_json()}\n" for each in lines)
                kept.flush()
                if not whole:
                    say(f"{system}: not everything was measured")
                    complete = complete and system != "rangelog"
    return found, complete


if __name__ == "__main__":
    sys.exit(main())
