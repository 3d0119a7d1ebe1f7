"""The blocking classes are generated from the asynchronous ones: a change of these that is not generated is found."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from tests.tidy.test_reference_pages import ROOT, tool


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A copy of the client."""
    return Path(
        shutil.copytree(ROOT / "client/rangelog", tmp_path / "rangelog", ignore=shutil.ignore_patterns("__pycache__"))
    )


@pytest.fixture
def generator(package: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The tool, on the copy."""
    made = tool("generate_blocking")
    monkeypatch.setattr(made, "PACKAGE", package)
    return made


def edited(path: Path, old: str, new: str) -> None:
    """A file with one text replaced, at its first place."""
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


NEW_METHOD = '''    async def note(self, time_ms: int = 0) -> int:
        """Note a time.{}"""
        return time_ms

    async def flush('''


@pytest.mark.parametrize(
    ("file", "old", "new", "stale", "line"),
    [
        pytest.param(
            "_append/writer.py", "async def flush(self, *,", "async def flush(self, at: int = 7, *,",
            "_sync_writer", "def flush(self, at: int = 7, *, timeout_s: float | None = None) -> None:", id="a parameter",
        ),
        pytest.param(
            "_client.py", "first_contact_s: float = FIRST_CONTACT_S", "first_contact_s: float = 2.0 * FIRST_CONTACT_S",
            "_sync_client", "first_contact_s: float = 2.0 * FIRST_CONTACT_S,", id="a default of connect",
        ),
        pytest.param(
            "_append/writer.py", "    async def flush(", NEW_METHOD.format(""),
            "_sync_writer", "return self._loop.run(self._of.note(time_ms))", id="a method",
        ),
        pytest.param(
            "_client.py", "key_serializer: None = ...,", "key_serializer: None,",
            "_sync_client", "key_serializer: None, value_serializer", id="an overload",
        ),
        pytest.param(
            "_sync_writer.py", "class Writer", "class  Writer",
            "_sync_writer", "class Writer(", id="the generated module itself",
        ),
    ],
)  # fmt: skip
def test_a_change_that_is_not_generated_is_found(
    generator: ModuleType, package: Path, capsys: pytest.CaptureFixture[str], file: str, old: str, new: str,
    stale: str, line: str,
) -> None:  # fmt: skip
    """By --check, which names the module; then the tool writes it."""
    assert generator.main(["--check"]) == 0
    edited(package / file, old, new)
    assert generator.main(["--check"]) == 1
    assert f"{stale}.py is not what the asynchronous classes make" in capsys.readouterr().out
    assert generator.main([]) == 0 and generator.main(["--check"]) == 0
    assert line in (package / f"{stale}.py").read_text()


def test_what_is_for_the_packages_own_use_has_no_blocking_form(generator: ModuleType, package: Path) -> None:
    """Nothing changes with it."""
    edited(package / "_append/writer.py", "    async def flush(", NEW_METHOD.format(" For the package's own use."))
    assert generator.main(["--check"]) == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda made: made.READS.update(Writer=("peek",)), "names Writer.peek, which is not generated"),
        (lambda made: made.ON_ANY_THREAD.update(Topics=("cut_in",)), "names Topics.cut_in, which is not generated"),
    ],
)
def test_the_tables_name_methods_that_there_are(
    generator: ModuleType, change: Callable[[ModuleType], None], message: str
) -> None:
    """What was renamed stays in no table."""
    change(generator)
    with pytest.raises(SystemExit, match=message):
        generator.generate()
