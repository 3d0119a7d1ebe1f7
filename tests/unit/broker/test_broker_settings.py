"""A broker's settings: what is refused, in one line that names the key; and how `rangelog broker` gets them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rangelog_broker.settings import BrokerSettings
from rangelog_cli.main import run
from rangelog_core.errors import ConfigInvalid, RangelogError
from rangelog_server_common.settings import load_settings

GOOD: dict[str, Any] = {"name": "broker1", "pd": ["127.0.0.1:7100"]}


def load(**changes: Any) -> BrokerSettings:
    """Good settings, but for some keys."""
    return load_settings(BrokerSettings, {key: value for key, value in (GOOD | changes).items() if value is not None})


def test_defaults_are_loopback_and_no_secrets_show() -> None:
    """Name and placement drivers are enough; the token is not in the representation."""
    made = load(token="hunter2")
    assert made.listen.startswith("127.0.0.1:") and made.control_listen.startswith("127.0.0.1:")
    assert made.listen != made.control_listen
    assert "hunter2" not in repr(made)


def test_placement_drivers_come_as_a_list_or_with_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    """From flags one by one, from the environment in one string."""
    monkeypatch.setenv("RANGELOG_BROKER_PD", "127.0.0.1:7100, 127.0.0.1:7101,")
    assert load(pd=None).pd == ["127.0.0.1:7100", "127.0.0.1:7101"]


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"name": None}, "name"),
        ({"name": ""}, "name"),
        ({"name": "a b"}, "name"),
        ({"name": "_topic"}, "name"),
        ({"name": "n" * 300}, "name"),
        ({"pd": None}, "pd"),
        ({"pd": []}, "pd"),
        ({"pd": " , "}, "pd"),
        ({"pd": ["no-port"]}, "pd"),
        ({"listen": "nowhere"}, "listen"),
        ({"listen": "127.0.0.1:70000"}, "listen"),
        ({"control_listen": ":"}, "control_listen"),
        ({"rest_listen": "7192"}, "rest_listen"),
        ({"listen": "0.0.0.0:7190"}, "advertise_host"),
        ({"control_listen": "[::]:7191"}, "advertise_host"),
        ({"data_dir": "/tmp"}, "data_dir"),
        ({"replica_lag_ms_min": 1}, "replica_lag_ms_min"),
        ({"replica_lag_ms_max": 1e6}, "replica_lag_ms_max"),
        ({"replica_lag_ms_min": 3_000}, "replica_lag_ms_min must not be more"),
    ],
)
def test_bad_values_are_one_line_that_names_the_key(changes: dict[str, Any], named: str) -> None:
    """Nothing is started with them."""
    with pytest.raises(ConfigInvalid) as refused:
        load(**changes)
    assert named in refused.value.message
    assert "\n" not in refused.value.message


def test_all_addresses_need_a_host_to_be_reached_by() -> None:
    """With it they are fine."""
    assert (
        load(listen="0.0.0.0:7190", control_listen="0.0.0.0:0", advertise_host="10.0.0.7").advertise_host == "10.0.0.7"
    )


def test_ports_may_be_left_to_the_system() -> None:
    """Port 0."""
    assert load(listen="127.0.0.1:0").listen == "127.0.0.1:0"


def test_the_rest_interface_can_be_off() -> None:
    """An empty address; by default it is on loopback, on a port of its own."""
    assert load(rest_listen="").rest_listen == ""
    made = load()
    assert made.rest_listen.startswith("127.0.0.1:")
    assert len({made.rest_listen, made.listen, made.control_listen}) == 3


@pytest.mark.parametrize(
    "arguments",
    [
        ["--name", "a b", "--pd", "127.0.0.1:1"],
        ["--name", "b"],
        ["--name", "b", "--pd", "127.0.0.1:1", "--listen", "x"],
        ["--name", "b", "--pd", "no-port"],
        ["--name", "b", "--pd", "127.0.0.1:1", "--config", "/nowhere.toml"],
        ["--name", "b", "--pd", "127.0.0.1:1", "--tier-url", "ftp://x"],
        ["--nonsense"],
    ],
)
def test_the_command_refuses_in_one_line(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 1, or 2 for wrong usage; no traceback."""
    assert run(["broker", *arguments]) in (1, 2)
    said = capsys.readouterr().err.strip().splitlines()
    assert len(said) == 1, said


def test_a_file_a_flag_and_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A flag has precedence over the environment, and it over the file; an unknown key of the file is named."""
    from rangelog_cli.servers import BROKER_ENV_PREFIX, merge

    path = tmp_path / "broker.toml"
    path.write_text('name = "file"\nzone = "file"\nlisten = "127.0.0.1:1"\npd = ["127.0.0.1:7100"]\n')
    monkeypatch.setenv("RANGELOG_BROKER_ZONE", "env")
    values = merge(path, {"name": "flag", "zone": None, "pd": []}, BROKER_ENV_PREFIX)
    made = load_settings(BrokerSettings, values)
    assert (made.name, made.zone, made.listen) == ("flag", "env", "127.0.0.1:1")
    path.write_text('name = "b"\npd = ["127.0.0.1:7100"]\nbogus = 1\n')
    with pytest.raises(RangelogError, match="bogus"):
        load_settings(BrokerSettings, merge(path, {}, BROKER_ENV_PREFIX))


def test_help_has_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    """What a user types first, with the flags that are needed."""
    assert run(["broker", "--help"]) == 0
    said = capsys.readouterr().out
    assert "Example:" in said and "rangelog broker --name" in said and "RANGELOG_BROKER_TOKEN" in said
