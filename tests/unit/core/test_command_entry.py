"""The commands without their libraries, as the light client installs them."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from rangelog_core.command_entry import run_command

_PROGRAM = """
import sys
sys.modules[{library!r}] = None
sys.argv = [{command!r}, "--help"]
from {module} import {function}
sys.exit({function}())
"""
SCRIPTS = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]["scripts"]


@pytest.mark.parametrize(
    ("command", "library"), [("rangelog", "click"), ("pdctl", "click"), ("rangelog-spark", "pyarrow")]
)
def test_a_missing_library_is_one_line(command: str, library: str) -> None:
    """With what to install, and no trace of calls. By the entry point that is installed."""
    module, _, function = SCRIPTS[command].partition(":")
    program = _PROGRAM.format(library=library, command=command, module=module, function=function)
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    said = run.stderr.strip()
    assert run.returncode == 1
    assert said.count("\n") == 0 and said.startswith(
        f"{command}: {library} is not installed: pip install 'rangelog["
    ), said


_INTERRUPTED = """
import sys
class Interrupts:
    def find_spec(self, name, *_):
        if name == {library!r}:
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupts())
sys.argv = [{command!r}, "--help"]
"""


@pytest.mark.parametrize(
    ("command", "library"), [("rangelog", "click"), ("pdctl", "click"), ("rangelog-spark", "pyarrow")]
)
def test_an_interruption_of_the_start_is_quiet(command: str, library: str) -> None:
    """Ctrl-C while libraries are imported: the exit code of an interruption, and no trace of calls."""
    module, _, function = SCRIPTS[command].partition(":")
    began = _INTERRUPTED.format(library=library, command=command)
    run = subprocess.run(
        [sys.executable, "-c", f"{began}from {module} import {function}; sys.exit({function}())"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (run.returncode, run.stdout, run.stderr) == (130, "", "")


@pytest.mark.parametrize("package", ["pdctl", "rangelog_cli"])
def test_an_interruption_of_the_start_as_a_module_is_quiet(package: str) -> None:
    """As `python -m` starts it."""
    began = _INTERRUPTED.format(library="click", command=package)
    program = f"{began}import runpy; runpy.run_module({package!r}, run_name='__main__')"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (run.returncode, run.stdout, run.stderr) == (130, "", "")


@pytest.mark.parametrize("command", ["rangelog", "pdctl"])
def test_with_its_libraries_it_runs(command: str) -> None:
    """The exit code is the command's."""
    module, _, function = SCRIPTS[command].partition(":")
    program = f"import sys; sys.argv = [{command!r}, '--help']; from {module} import {function}; sys.exit({function}())"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (run.returncode, run.stderr) == (0, "") and f"Usage: {command}" in run.stdout


def test_a_module_of_ours_that_is_missing_is_a_defect() -> None:
    """It would be hidden behind an advice that does not help."""
    with pytest.raises(ModuleNotFoundError):
        run_command("rangelog", "rangelog_no_such_part.main", "cli")
