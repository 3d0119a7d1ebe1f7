"""`rangelog pd`, `range-server` and `broker`: settings from flags, environment and file, then the server until it stops.

Precedence: a flag over the environment, the environment over the file, the file over the default.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rangelog_core.errors import ConfigInvalid, InvalidArgument

PD_ENV_PREFIX = "RANGELOG_PD_"
SERVER_ENV_PREFIX = "RANGELOG_SERVER_"
BROKER_ENV_PREFIX = "RANGELOG_BROKER_"


def run_pd(config: Path | None, flags: Mapping[str, Any]) -> int:
    """Run a placement driver until it is stopped; return its exit code."""
    members = parse_members(flags["members"])
    values = merge(config, dict(flags) | {"members": members}, PD_ENV_PREFIX)

    from rangelog_page.serving import serve_page
    from rangelog_pd.main import run
    from rangelog_pd.settings import PdSettings
    from rangelog_server_common.settings import load_settings

    return run(load_settings(PdSettings, values), serve_page)


def run_range_server(config: Path | None, flags: Mapping[str, Any]) -> int:
    """Run a range server until it is stopped; return its exit code."""
    given = dict(flags)
    processes = given.pop("processes")
    lists = {"pd": list(flags["pd"]), "labels": list(flags["labels"])}
    values = merge(config, given | lists, SERVER_ENV_PREFIX)

    from rangelog_server.settings import RangeServerSettings
    from rangelog_server_common.settings import load_settings

    settings = load_settings(RangeServerSettings, values)
    if processes is not None:
        return _run_several(config, given, settings, SERVER_ENV_PREFIX, processes)

    from rangelog_server.main import run

    return run(settings)


def run_broker(config: Path | None, flags: Mapping[str, Any]) -> int:
    """Run a broker until it is stopped; return its exit code."""
    given = dict(flags)
    processes = given.pop("processes")
    values = merge(config, given | {"pd": list(flags["pd"])}, BROKER_ENV_PREFIX)

    from rangelog_broker.settings import BrokerSettings
    from rangelog_server_common.settings import load_settings

    settings = load_settings(BrokerSettings, values)
    if processes is not None:
        return _run_several(config, given, settings, BROKER_ENV_PREFIX, processes)

    from rangelog_broker.main import run

    return run(settings)


def _run_several(config: Path | None, flags: Mapping[str, Any], settings: Any, env_prefix: str, processes: int) -> int:
    import click

    from rangelog_cli.several import run_several

    command = click.get_current_context().command
    return run_several(command, {"config": config, **flags}, settings, env_prefix, processes)


def parse_members(given: tuple[str, ...]) -> dict[str, dict[str, str]]:
    """`NAME=RAFT@API` → {name: {raft_address, api_address}}; raises InvalidArgument for anything else."""
    members: dict[str, dict[str, str]] = {}
    for text in given:
        name, equals, addresses = text.partition("=")
        raft, at, api = addresses.partition("@")
        if not (name and equals and at and raft and api):
            raise InvalidArgument(
                f"--member {text!r} is not NAME=RAFT_HOST:PORT@API_HOST:PORT: see `rangelog pd --help`"
            )
        if name in members:
            raise InvalidArgument(f"--member {name!r} was given twice: each name stands for one placement driver")
        members[name] = {"raft_address": raft, "api_address": api}
    return members


def merge(config: Path | None, flags: Mapping[str, Any], env_prefix: str) -> dict[str, Any]:
    """Return the values for the settings class: given flags, and keys of the file that the environment does not set."""
    given = {key: value for key, value in flags.items() if value not in (None, [], {}, ())}
    from_env = {key.removeprefix(env_prefix).lower() for key in os.environ if key.upper().startswith(env_prefix)}
    file = read_toml(config) if config is not None else {}
    return {key: value for key, value in file.items() if key not in from_env} | given


def read_toml(path: Path) -> dict[str, Any]:
    """Return the keys of a configuration file; raises ConfigInvalid, which names the file and, where possible, the line."""
    try:
        return tomllib.loads(path.read_text())
    except OSError as error:
        raise ConfigInvalid(f"cannot read {path}: {error.strerror}: check --config") from None
    except (ValueError, RecursionError) as error:  # also a number of 5,000 digits, and lists in lists without end
        raise ConfigInvalid(f"{path} is not TOML ({error}): correct it") from None
