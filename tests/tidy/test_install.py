"""tools/install.py gives pip's settings to uv, and shows progress and failures; tools/check.py fails as a check does."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
CONFIGURED = """:env:.cert='/of/env.pem'
global.cert='/of/file.pem'
global.index-url='https://a.example/simple'
install.extra-index-url='https://b.example/simple\\nhttps://c.example/simple'
list.index-url='https://d.example/simple'
"""
INDEXES = {
    "UV_DEFAULT_INDEX": "https://a.example/simple",
    "UV_INDEX": "https://b.example/simple https://c.example/simple",
    "UV_INDEX_STRATEGY": "unsafe-best-match",
}


def tool(name: str) -> ModuleType:
    """A program of tools/ as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_an_index_of_pip_is_one_of_uv() -> None:
    """The environment counts more than a file, other commands of pip not at all, and variables of uv stay as they are."""
    settings = tool("install").settings_for_uv
    assert settings(CONFIGURED, {}) == {**INDEXES, "SSL_CERT_FILE": "/of/env.pem"}
    assert settings(CONFIGURED, {"UV_INDEX_URL": "https://e.example", "SSL_CERT_FILE": "/of/uv.pem"}) == {}
    assert settings("", {}) == {}


def test_uv_is_pinned_with_hashes() -> None:
    """Its lines of the lock file end before the next package; without hashes there is no pin."""
    pin = tool("install").pin_of("uv", (ROOT / "requirements.lock").read_text())
    assert pin.startswith("uv==") and pin.count("==") == 1 and pin.count("--hash=sha256:") > 10
    assert tool("install").pin_of("uv", "uv==1.0\n") is None


def test_it_speaks_while_an_installer_works(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the seconds and the installer's last line; after a success nothing more."""
    install = tool("install")
    assert install.TICK_S <= 10
    monkeypatch.setattr(install, "TICK_S", 0.05)
    program = "import sys, threading; print('one'); print('two', flush=True); threading.Event().wait(1)"
    assert install.run([sys.executable, "-c", program]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[-1] == "  1 s: two" and all(line.startswith("  ") for line in shown)


def test_a_failure_shows_the_last_words(capsys: pytest.CaptureFixture[str]) -> None:
    """The exit code comes through as well."""
    install = tool("install")
    assert install.run([sys.executable, "-c", "for i in range(90): print(i)\nraise SystemExit(3)"]) == 3
    assert capsys.readouterr().out.split() == [str(number) for number in range(90 - install.LINES_KEPT, 90)]


def test_where_uv_does_not_work_pip_installs(tmp_path: Path) -> None:
    """Which is said; what pip refuses by itself, before it asks any index, fails with its words."""
    (tmp_path / "bad.lock").write_text("click=>1\n")
    command = [sys.executable, str(ROOT / "tools" / "install.py"), str(tmp_path / "bad.lock")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "uv does not work here" in done.stdout and "Invalid requirement" in done.stdout


async def test_a_check_that_fails_is_shown_whole_and_the_others_run(capsys: pytest.CaptureFixture[str]) -> None:
    """Its commands end with the first that fails."""
    check = tool("check")
    bad = check.TreeCheck("bad", (("sh", "-c", "echo one; echo two >&2; exit 3"), ("sh", "-c", "echo never")))
    good = [check.TreeCheck(f"good {number}", (("sh", "-c", "echo quiet"),)) for number in range(3)]
    assert await check.run(good) == 0
    assert await check.run([bad, *good]) == 1
    shown = capsys.readouterr().out
    assert "bad failed with 3:\none\ntwo\n" in shown and "never" not in shown and "quiet" not in shown
    assert shown.count(" in order\n") == 6


def test_make_lists_its_targets_in_one_column_and_those_of_users_first() -> None:
    """However long a name is, the texts begin in one column."""
    done = subprocess.run(["make", "-s", "help"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith("  make ")]
    assert len(lines) > 25
    assert {len(line) - len(line[2:].split(maxsplit=2)[2]) for line in lines} == {27}
    assert [line.split()[1] for line in lines[:2]] == ["install", "demo"]
