"""The tier's modules may be imported on several threads at once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_PROGRAM = '''
"""One thread runs the package's own code slowly, while another imports a module of it that needs the package."""
import importlib.machinery, sys, threading, time

begun = threading.Event()


class SlowLoader(importlib.machinery.SourceFileLoader):
    def exec_module(self, module):
        begun.set()
        time.sleep(0.3)
        super().exec_module(module)


class Finder:
    def find_spec(name, path, target=None):
        if name != "rangelog_tier":
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        spec.loader = SlowLoader(name, spec.origin)
        return spec


sys.meta_path.insert(0, Finder)
problems = []


def warm_up():
    try:
        import rangelog_tier.parquet
    except ImportError as error:
        problems.append(f"warm_up: {error}")


def check():
    begun.wait(10)
    try:
        from rangelog_tier.object_store import probe
        from rangelog_tier.opening import open_object_store
    except ImportError as error:
        problems.append(f"check: {error}")


threads = [threading.Thread(target=target) for target in (warm_up, check)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join(60)
print(problems)
'''


def test_two_threads_import_the_tier(tmp_path: Path) -> None:
    """A range server's check of the tier once failed, since its upload thread imported the package at the same time."""
    program = tmp_path / "program.py"
    program.write_text(_PROGRAM)
    run = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=120, check=True)
    assert (run.stdout, run.stderr) == ("[]\n", "")
