"""Several processes on one host: their names, ports, directories; one line for a bad setting."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest

from rangelog_broker.settings import BrokerSettings
from rangelog_cli.main import cli, run
from rangelog_cli.several import PORT_STEP, arguments_of, changes_of
from rangelog_core.errors import InvalidArgument
from rangelog_server.settings import RangeServerSettings


def server(tmp_path: Path, **more: Any) -> RangeServerSettings:
    """The settings that N processes share."""
    return RangeServerSettings(name="rs1", data_dir=tmp_path, pd=["127.0.0.1:7100"], **more)


def test_each_process_has_its_name_ports_and_directory(tmp_path: Path) -> None:
    """The first one has the configured ports; port 0 stays; all have one host, that of the machine by default."""
    first, second = changes_of(server(tmp_path, metrics_listen="[::1]:0"), 2, Path("/nowhere"))
    assert (first["name"], second["name"]) == ("rs1-1", "rs1-2")
    assert (first["data_listen"], second["data_listen"]) == ("127.0.0.1:7180", f"127.0.0.1:{7180 + PORT_STEP}")
    assert second["metrics_listen"] == "[::1]:0"
    assert (first["data_dir"], second["data_dir"]) == (tmp_path / "1", tmp_path / "2")
    assert first["host"] == second["host"] != ""
    assert {each["host"] for each in changes_of(server(tmp_path, host="h"), 2, Path("/nowhere"))} == {"h"}


def test_the_doors_of_a_broker_have_ports_of_their_own(tmp_path: Path) -> None:
    """With their other keys; a broker without a directory of its own gets a temporary one."""
    doors = {"kafka": {"listen": "127.0.0.1:9092", "key": 1}}
    settings = BrokerSettings(name="b", pd=["127.0.0.1:7100"], doors=doors, rest_listen="")
    _, second = changes_of(settings, 2, tmp_path)
    assert second["doors"] == {"kafka": {"listen": "127.0.0.1:9192", "key": 1}}
    assert second["run_dir"] == tmp_path / "2" and "rest_listen" not in second
    assert doors["kafka"]["listen"] == "127.0.0.1:9092"


def test_what_cannot_be_shared_is_refused(tmp_path: Path) -> None:
    """A port that would be too high, and a directory with the data of one server."""
    with pytest.raises(InvalidArgument, match=r"data_listen 127\.0\.0\.1:65500 leaves no port 65600 to process 2"):
        list(changes_of(server(tmp_path, data_listen="127.0.0.1:65500"), 2, tmp_path))
    (tmp_path / "identity.json").touch()
    with pytest.raises(InvalidArgument, match="has the data of one range server"):
        list(changes_of(server(tmp_path), 2, tmp_path))


def test_flags_are_passed_on() -> None:
    """All kinds: a value, several of one option, a switch; those that were not given are left out."""
    command = cli.commands["range-server"]
    given = {"pd": ("a:1", "b:2"), "insecure": True, "zone": "z", "config": None, "labels": ()}
    assert arguments_of(command, given) == ["--pd", "a:1", "--pd", "b:2", "--zone", "z", "--insecure"]
    parsed = command.make_context("range-server", arguments_of(command, given)).params
    assert isinstance(command, click.Command) and {key: parsed[key] for key in given} == given


def test_a_bad_setting_is_one_line_and_starts_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The settings are read before any process begins; a number of processes beyond the limit is wrong usage."""
    arguments = ["range-server", "--processes", "2", "--name", "rs1", "--data-dir", str(tmp_path)]
    assert run([*arguments, "--pd", "nowhere"]) == 1
    said = capfd.readouterr().err
    assert said.startswith("rangelog: pd") and said.count("\n") == 1
    assert not list(tmp_path.iterdir())
    assert run(["broker", "--processes", "65"]) == 2
