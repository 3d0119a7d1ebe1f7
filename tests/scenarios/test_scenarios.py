"""Scenarios of the protocol cores: what a writer, a failover seal and a reader decide, command by command."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.scenarios.appender_driver import AppenderDriver
from tests.scenarios.datadriven import BadScenario, check, parse
from tests.scenarios.reading_driver import ReadingDriver
from tests.scenarios.recovery_driver import RecoveryDriver

HERE = Path(__file__).parent
DRIVERS: dict[str, type[Any]] = {"appender": AppenderDriver, "reading": ReadingDriver, "recovery": RecoveryDriver}
FILES = sorted(HERE.glob("*/*.txt"))


@pytest.mark.parametrize("path", FILES, ids=[f"{path.parent.name}-{path.stem}" for path in FILES])
def test_a_scenario_gives_its_output(path: Path, rewrite: bool) -> None:
    """Each step's output is what the file has; `pytest tests/scenarios --rewrite` brings the files up to date."""
    differing = check(path, DRIVERS[path.parent.name](), rewrite=rewrite)
    assert not differing, "\n".join(differing)


def test_every_driver_has_scenarios() -> None:
    """No driver is left without a file, and no file without a driver."""
    assert {path.parent.name for path in FILES} == set(DRIVERS)


class Echo:
    """A driver that gives back what it gets."""

    def do_say(self, *words: str, twice: str = "no") -> list[str]:
        """Words."""
        return [" ".join(words)] * (2 if twice == "yes" else 1)


def test_a_difference_is_found_and_a_rewrite_ends_it(tmp_path: Path) -> None:
    """The step that differs is named by its line; rewritten, the file keeps its comments and gives what it says."""
    path = tmp_path / "echo.txt"
    path.write_text("# first\nsay a b\n----\na b\n\n# second\nsay c twice=yes\nsay d\n----\nc\n")
    (differing,) = check(path, Echo(), rewrite=False)
    assert differing.startswith("echo.txt:6: say c twice=yes ; say d")
    assert check(path, Echo(), rewrite=True) == []
    assert check(path, Echo(), rewrite=False) == []
    assert path.read_text() == "# first\nsay a b\n----\na b\n\n# second\nsay c twice=yes\nsay d\n----\nc\nc\nd\n"


@pytest.mark.parametrize("text", ["say a\n", "----\n", "say a\n\nsay b\n----\n", "# only a comment\n"])
def test_a_file_without_its_dashes_is_refused(text: str) -> None:
    """A step that is not finished is an error, not a step that is passed over."""
    with pytest.raises(BadScenario):
        parse(text, "bad.txt")


@pytest.mark.parametrize("line", ["shout a\n", "say a loud=yes\n"])
def test_an_unknown_command_is_refused(tmp_path: Path, line: str) -> None:
    """So is an argument that the command does not take."""
    path = tmp_path / "bad.txt"
    path.write_text(f"{line}----\n")
    with pytest.raises(BadScenario):
        check(path, Echo(), rewrite=False)
