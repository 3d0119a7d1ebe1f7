"""Builds wheel and source distribution, installs each extra into a fresh environment, tries it, and measures it.

python tools/package_sizes.py              # the table of README.md, of all extras; some minutes, and packages from the index
python tools/package_sizes.py base tier    # some

What holds: the wheel that is installed is built from the source distribution, so that both are tried. Versions are those of
requirements.lock. A size is what `du -m` says of the installed files, with the bytecode that pip compiles, without the
interpreter and pip. A time is processor time, so that other work on the machine does not count: the median of seven starts,
less that of an empty program.
"""

from __future__ import annotations

import argparse
import re
import resource
import statistics
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
BASE = "base"
STARTS = 7
DISK_BLOCK_BYTES = 512
"""The unit of st_blocks."""
INSTALL_TIMEOUT_S = 900
TRY_TIMEOUT_S = 120

_PROGRAM = """
from rangelog.testing import FakeCluster
with FakeCluster().sync_client() as client:
    client.create_stream("s")
    with client.writer("s") as writer:
        writer.append(b"value")
    assert [record.value for record in client.reader("s")] == [b"value"]
"""


def _help(command: str) -> str:
    return f"import sys; sys.argv = ['rangelog', '{command}', '--help']; from rangelog_cli.entry import main; sys.exit(main())"


TRIES: dict[str, tuple[str, ...]] = {
    BASE: (_PROGRAM, "import rangelog.sync; rangelog.sync.connect('127.0.0.1:1').close()"),
    "tier": ("import boto3, rangelog_tier.opening, rangelog_tier.parquet, rangelog_tier.arrow",),
    "cli": (
        "import sys; sys.argv = ['pdctl', '--help']; from pdctl.entry import main; main()",
        _help("local"),
    ),
    "pd": ("import rangelog_pd.main, rangelog_page.serving", _help("pd")),
    "server": ("import rangelog_server.main", _help("range-server")),
    "broker": ("import rangelog_broker.main", _help("broker")),
    "http": ("import rangelog_broker.main, rangelog_http.door",),
    "files": ("import fastavro, rangelog_files.event_file, rangelog_files.index_file",),
    "otel": ("import opentelemetry.trace, rangelog.sync",),
    "spark": ("import pyspark, rangelog.spark, rangelog.spark.source",),
    "iceberg": ("import pyiceberg.table, rangelog_jobs.iceberg_change",),
}
"""Python programs that must run where only this extra is installed."""


class Measured(NamedTuple):
    """One extra: how many packages it brings, and the bytes on disk; how long `import rangelog` and a client take."""

    extra: str
    package_count: int
    size_bytes: int
    import_s: float
    client_s: float


def run(command: Sequence[object], timeout_s: float, cwd: Path | None = None) -> str:
    """Return what a command printed. Raises RuntimeError with what it complained of."""
    words = list(map(str, command))
    done = subprocess.run(words, cwd=cwd, check=False, capture_output=True, text=True, timeout=timeout_s)
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)} ended with {done.returncode}: {done.stderr[-2_000:]}")
    return done.stdout


def build(directory: Path) -> tuple[Path, Path]:
    """Build the source distribution, and the wheel out of it; return both."""
    run([sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", directory], TRY_TIMEOUT_S, ROOT)
    (sdist,) = directory.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(directory, filter="data")
    source = directory / sdist.name.removesuffix(".tar.gz")
    run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", directory], TRY_TIMEOUT_S, source)
    (wheel,) = directory.glob("*.whl")
    return sdist, wheel


def constraints(directory: Path) -> Path:
    """Write the versions of the lock file, without hashes; return the file."""
    pins = re.findall(r"^([A-Za-z0-9._-]+==[^\s\\;]+)", (ROOT / "requirements.lock").read_text(), re.MULTILINE)
    made = directory / "constraints.txt"
    made.write_text("\n".join(pins) + "\n")
    return made


def install(wheel: Path, extra: str, pins: Path, directory: Path) -> Path:
    """Make an environment with this extra alone; return its interpreter."""
    environment = directory / extra
    run([sys.executable, "-m", "venv", "--without-pip", environment], TRY_TIMEOUT_S)
    python = environment / "bin" / "python"
    wanted = f"rangelog @ {wheel.as_uri()}" if extra == BASE else f"rangelog[{extra}] @ {wheel.as_uri()}"
    options = ["--quiet", "--disable-pip-version-check", "-c", pins]
    run([sys.executable, "-m", "pip", "--python", python, "install", *options, wanted], INSTALL_TIMEOUT_S)
    return python


def median_s(python: Path, program: str) -> float:
    """Return the processor time that the interpreter takes with a program, in seconds."""
    taken = []
    for _ in range(STARTS):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        run([python, "-c", program], TRY_TIMEOUT_S)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        taken.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return statistics.median(taken)


def measure(python: Path, extra: str) -> Measured:
    """Measure, and try what the extra is for. Raises RuntimeError where it does not work."""
    (packages,) = python.parents[1].glob("lib/python*/site-packages")
    files = [each for each in packages.rglob("*") if each.is_file()]
    size_bytes = sum(each.stat().st_blocks * DISK_BLOCK_BYTES for each in files)
    for program in TRIES[extra]:
        run([python, "-c", program], TRY_TIMEOUT_S, python.parents[1])
    empty_s = median_s(python, "pass")
    import_s = median_s(python, "import rangelog") - empty_s
    client_s = median_s(python, "import rangelog; rangelog.connect") - empty_s
    return Measured(extra, len(list(packages.glob("*.dist-info"))), size_bytes, import_s, client_s)


def table(rows: Sequence[Measured], sdist: Path, wheel: Path) -> str:
    """Return the table in Markdown."""
    lines = ["| | packages | MB installed |", "|---|---|---|"]
    for row in rows:
        name = "`pip install rangelog`" if row.extra == BASE else f"`rangelog[{row.extra}]`"
        lines.append(f"| {name} | {row.package_count} | {row.size_bytes / 2**20:.0f} |")
    base = rows[0]
    lines.append("")
    lines.append(
        f"The wheel has {wheel.stat().st_size / 1e3:.0f} kB, the source distribution {sdist.stat().st_size / 1e6:.1f} MB. "
        f"`import rangelog` takes {base.import_s:.2f} s of processor time, with `rangelog.connect` {base.client_s:.2f} s."
    )
    return "\n".join(lines)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("extras", nargs="*", choices=[*TRIES, []], help="of these alone; none: of all")
    chosen = parser.parse_args().extras or list(TRIES)
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        sdist, wheel = build(directory)
        pins = constraints(directory)
        rows = []
        for extra in chosen:
            rows.append(measure(install(wheel, extra, pins, directory), extra))
            print(rows[-1], file=sys.stderr)
        print(table(rows, sdist, wheel))


if __name__ == "__main__":
    main()
