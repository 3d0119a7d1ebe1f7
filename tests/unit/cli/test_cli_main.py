"""The command line: help, exit codes, one-line errors."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click
import pytest

from rangelog_cli import installed_commands, main
from rangelog_core.errors import StreamNotFound


@pytest.mark.parametrize(
    "command", ["pd", "range-server", "broker", "demo", "local", "local status", "local stop", "local logs"]
)
def test_help_shows_an_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Every command's help ends well and shows how it is called."""
    assert main.run([*command.split(), "--help"]) == 0
    out = capsys.readouterr().out
    assert "Example" in out
    assert f"rangelog {command}" in out


@pytest.mark.parametrize(
    ("arguments", "code", "part"),
    [
        (["pd", "--nope"], 2, "--nope"),
        (["nope"], 2, "nope"),
        (["local", "--port", "x"], 2, "--port"),
        (["pd", "--member", "pd1"], 1, "NAME=RAFT_HOST:PORT@API_HOST:PORT"),
        (["pd", "--member", "a=b:1@c:2", "--member", "a=b:1@c:2"], 1, "twice"),
        (["pd", "--config", "/nonexistent/x.toml"], 1, "/nonexistent/x.toml"),
    ],
)
def test_bad_usage_is_one_line(arguments: list[str], code: int, part: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Bad input yields one line that names the culprit, and the documented exit code."""
    assert main.run(arguments) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("rangelog: ")
    assert captured.err.count("\n") == 1
    assert part in captured.err


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (StreamNotFound("no stream 'x':\n list them with pdctl stream list"), "rangelog: no stream 'x': list them"),
        (PermissionError(13, "Permission denied", "/data"), "rangelog: /data: Permission denied: check"),
        (ModuleNotFoundError("No module named 'rich'"), "pip install 'rangelog[all]'"),
        (ZeroDivisionError("division by zero"), "internal error ZeroDivisionError"),
        (KeyboardInterrupt(), "rangelog: interrupted"),
    ],
)
def test_failures_are_one_line_without_a_trace(
    error: BaseException, said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever a command raises becomes one line and exit code 1."""

    @click.command()
    def broken() -> None:
        raise error

    monkeypatch.setattr(main, "cli", broken)
    monkeypatch.delenv(main.DEBUG_ENV, raising=False)
    assert main.run([]) == 1
    err = capsys.readouterr().err
    assert said in err
    assert err.strip().count("\n") == 0  # click adds an empty line after ^C
    assert "Traceback" not in err


def test_help_imports_nothing_heavy() -> None:
    """`rangelog --help` does not import grpc, pyarrow, pydantic, boto3, matplotlib or pyspark."""
    code = (
        "import sys; from rangelog_cli import main; main.run(['--help']);"
        "heavy = {'grpc', 'pyarrow', 'pydantic', 'boto3', 'matplotlib', 'pyspark', 'pandas', 'rich'} & set(sys.modules);"
        "print(heavy, file=sys.stderr); sys.exit(bool(heavy))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=30, check=False, text=True)
    assert done.returncode == 0, done.stderr


def test_unknown_key_in_the_file_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A configuration file with a key nobody knows is refused by that key's name."""
    config = tmp_path / "pd.toml"
    config.write_text('colour = "blue"\n')
    assert main.run(["pd", "--config", str(config), "--name", "pd1", "--data-dir", str(tmp_path / "d")]) == 1
    err = capsys.readouterr().err
    assert "colour" in err
    assert err.count("\n") == 1
    assert not (tmp_path / "d").exists()


@pytest.mark.parametrize("command", ["bench", "demo"])
def test_a_command_of_another_package_says_what_to_install(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without it the help does not list the command, and the command is one line."""
    monkeypatch.setattr(installed_commands, "entry_points", lambda **_: ())
    assert main.run([command]) == 1
    assert capsys.readouterr().err == f"rangelog: {command} is in another package: pip install rangelog-workbench\n"
    assert main.run(["--help"]) == 0
    assert f"\n  {command} " not in capsys.readouterr().out
    assert main.run(["nonsense"]) == 2
