"""Install what a requirements file pins, then the project of the working directory: by uv, in a fraction of pip's time.

Run by the Python that gets the packages, so nothing but the standard library is there. What holds: each package has a hash of
the requirements file, uv itself too, which pip installs first; an index that is configured for pip alone is uv's as well; where
uv does not work pip installs everything. On a terminal their own bars show; elsewhere a line is printed every ten seconds, and
if the installation fails its last lines. uv compiles nothing: the first import does, of a quarter of what there is.
"""

from __future__ import annotations

import ast
import contextlib
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

LINES_KEPT = 20
TICK_S = 10.0
PRUNE_S = 60.0
PIP = (sys.executable, "-m", "pip", "install", "--disable-pip-version-check")
UV = (sys.executable, "-m", "uv", "pip", "install", "--python", sys.executable)
_FOR_UV = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "trusted-host": "UV_INSECURE_HOST",
    "cert": "SSL_CERT_FILE",
    "proxy": "ALL_PROXY",
}
"""Options of pip and the variables that say the same to uv."""
_SECTIONS = ("global", "install", ":env:")
"""Sections of pip's configuration that count for an installation, a later one more than an earlier one."""


def settings_for_uv(configured: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables to add for uv, from what `pip config list` prints: none that the environment has already.

    pip takes a version from any of its indexes and uv from the first that has the package: pinned hashes make both safe.
    """
    options: dict[str, str] = {}
    for section in _SECTIONS:
        for line in configured.splitlines():
            name, _, value = line.partition("=")
            if name.startswith(f"{section}."):
                options[name.removeprefix(f"{section}.")] = " ".join(ast.literal_eval(value).split())
    found = {variable: options[option] for option, variable in _FOR_UV.items() if options.get(option)}
    if any(name.startswith("UV_") and "INDEX" in name for name in environment):
        found = {name: value for name, value in found.items() if "INDEX" not in name}
    elif "UV_INDEX" in found:
        found["UV_INDEX_STRATEGY"] = "unsafe-best-match"
    return {name: value for name, value in found.items() if name not in environment}


def pin_of(name: str, lock: str) -> str | None:
    """Return the lines of a requirements file that pin one package, its hashes among them; None without."""
    found = re.search(rf"^{re.escape(name)}==.*(?:\n +--hash=.*)+", lock, re.MULTILINE)
    return found and found[0] + "\n"


def run(command: Sequence[str], environment: Mapping[str, str] | None = None) -> int:
    """Run an installer, and say what it does; return its exit code."""
    if sys.stderr.isatty():
        return subprocess.run(command, env=environment, check=False).returncode
    started_s = time.monotonic()
    with tempfile.NamedTemporaryFile() as said:
        with subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT, env=environment) as process:
            while True:
                try:
                    process.wait(TICK_S)
                    break
                except subprocess.TimeoutExpired:
                    last = (_lines(said.name) or ["…"])[-1]
                    print(f"  {time.monotonic() - started_s:.0f} s: {last}", flush=True)
        if process.returncode:
            print("\n".join(_lines(said.name)[-LINES_KEPT:]), flush=True)
    return process.returncode


def _lines(path: str) -> list[str]:
    return [line.strip() for line in Path(path).read_text(errors="replace").splitlines() if line.strip()]


def install_by_uv(lock: Path) -> bool:
    """Install uv by pip, and the rest by uv; return whether all of it is there."""
    if (pin := pin_of("uv", lock.read_text())) is None:
        return False
    with tempfile.NamedTemporaryFile("w") as file:
        file.write(pin)
        file.flush()
        if run([*PIP, "--require-hashes", "--only-binary", ":all:", "-r", file.name]):
            return False
    configured = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True
    ).stdout
    environment = {**os.environ, **settings_for_uv(configured, os.environ)}
    if run([*UV, "--require-hashes", "-r", str(lock)], environment):
        return False
    with contextlib.suppress(subprocess.TimeoutExpired):  # with some indexes uv builds Spark, 1.4 GB, each time anew
        subprocess.run([sys.executable, "-m", "uv", "--quiet", "cache", "prune"], timeout=PRUNE_S, check=False)
    return True


def main(arguments: list[str]) -> int:
    """Install; return the exit code."""
    lock = Path(arguments[0])
    started_s = time.monotonic()
    if not install_by_uv(lock):
        print("  uv does not work here: pip installs, which takes some minutes more", flush=True)
        if code := run([*PIP, "--progress-bar", "off", "--require-hashes", "-r", str(lock)]):
            return code
    if code := run([*PIP, "--quiet", "--no-deps", "--no-build-isolation", "-e", ".", "-e", "workbench"]):
        return code
    print(f"  installed in {time.monotonic() - started_s:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
