"""`range-server --processes N` and `broker --processes N`: N processes of one host under one supervisor.

What holds: process i is NAME-i; it has the directory DIR/i, and each configured port plus PORT_STEP for each process before it
(port 0 stays 0); all have one host label, so no range has two copies here, and what a lost broker owned goes to other hosts.
A process that cannot serve at the first start ends all with exit code 1. Later a process that ends is started again, after a
pause that doubles up to 30 s: the others have other ranges, and go on. SIGTERM and Ctrl-C stop all; no process outlives the
supervisor.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from rangelog_cli.local.keeper import Keeper
from rangelog_cli.local.process import Process, stop_all
from rangelog_core.errors import InvalidArgument
from rangelog_core.exit_codes import EXIT_DIRECTORY_GIVEN_UP

PROCESSES_MAX = 64
PORT_STEP = 100
_PORT_MAX = 65_535
_CHECK_S = 0.2
STOP_S = 30.0
"""For a clean end of all; then they are killed."""
_DIRECTORIES = ("data_dir", "run_dir")


def run_several(command: click.Command, flags: Mapping[str, Any], settings: Any, env_prefix: str, count: int) -> int:
    """Run `count` processes of a command until a signal stops them. Raises InvalidArgument, Unavailable (none is left running).

    `flags`: those given to the command. `settings`: what they, the environment and the file make together.
    """
    with tempfile.TemporaryDirectory(prefix="rangelog-run-") as run_dir:
        changes = list(changes_of(settings, count, Path(run_dir)))
        processes = [_process(command, flags, each, env_prefix) for each in changes]
        stop = threading.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: stop.set())
        try:
            return _supervise(processes, stop)
        finally:
            stop_all(processes, STOP_S)


def changes_of(settings: Any, count: int, run_dir: Path) -> Iterator[dict[str, Any]]:
    """Yield the settings by which each process differs from the given ones. Raises InvalidArgument."""
    directory = getattr(settings, "data_dir", None) or settings.run_dir or run_dir
    key = "data_dir" if hasattr(settings, "data_dir") else "run_dir"
    if (directory / "identity.json").exists():
        raise InvalidArgument(
            f"{directory} has the data of one range server: give --processes N a directory of its own"
        )
    host = settings.host or socket.gethostname()
    for number in range(count):
        changed: dict[str, Any] = {
            "name": f"{settings.name}-{number + 1}",
            "host": host,
            key: directory / str(number + 1),
        }
        doors = {name: dict(keys) for name, keys in getattr(settings, "doors", {}).items()}
        for address_key, address in settings.listened():
            door = address_key.split(".")
            if len(door) > 1:
                doors[door[1]]["listen"] = _shifted(address_key, address, number)
            elif address:
                changed[address_key] = _shifted(address_key, address, number)
        yield changed | ({"doors": doors} if doors else {})


def _shifted(key: str, address: str, number: int) -> str:
    host, _, port = address.rpartition(":")
    shifted = int(port) and int(port) + number * PORT_STEP
    if shifted > _PORT_MAX:
        raise InvalidArgument(
            f"{key} {address} leaves no port {shifted} to process {number + 1}: give a lower port, or 0"
        )
    return f"{host}:{shifted}"


def _process(command: click.Command, flags: Mapping[str, Any], changed: dict[str, Any], env_prefix: str) -> Process:
    """Return one process: what is changed goes by environment, which has precedence over the file; the other flags are kept."""
    directory = next(Path(changed[key]) for key in _DIRECTORIES if key in changed)
    directory.mkdir(parents=True, exist_ok=True)
    env: dict[str, str] = {}
    for key, value in changed.items():
        env[f"{env_prefix}{key.upper()}"] = json.dumps(value) if isinstance(value, dict) else str(value)
    for name, keys in changed.get("doors", {}).items():
        one = f"{env_prefix}DOORS__{name}__LISTEN".upper()  # where it is set, it has precedence over the whole
        env |= {one: keys["listen"]} if one in os.environ else {}
    kept = {key: value for key, value in flags.items() if key not in changed}
    arguments = ["-m", "rangelog_cli", str(command.name), *arguments_of(command, kept)]
    return Process(changed["name"], arguments, log_path=None, ready_file=directory / "endpoint.json", env=env)


def arguments_of(command: click.Command, flags: Mapping[str, Any]) -> list[str]:
    """Return the arguments that give a command these flags."""
    arguments: list[str] = []
    for option in command.params:
        value = flags.get(option.name or "")
        if isinstance(option, click.Option) and option.is_flag:
            arguments += [option.opts[0]] if value else []
        elif value not in (None, ()):
            for each in value if option.multiple else [value]:
                arguments += [option.opts[0], str(each)]
    return arguments


def _supervise(processes: Sequence[Process], stop: threading.Event) -> int:
    for process in processes:
        process.start()
    left_out: set[str] = set()
    starting = list(processes)
    while starting and not stop.wait(_CHECK_S):
        left_out.update(_given_up(starting))
        starting = [each for each in starting if each.name not in left_out and not each.ready()]
    keeper = Keeper({each.name: each for each in processes}, time.monotonic(), _say, left_out)
    while not stop.wait(_CHECK_S):
        left_out.update(_given_up(processes))
        if len(left_out) == len(processes):
            return EXIT_DIRECTORY_GIVEN_UP
        keeper.check(time.monotonic())
    return 0


def _given_up(processes: Sequence[Process]) -> list[str]:
    """Return the names of range servers that were removed from the cluster: they are not started again."""
    return [each.name for each in processes if not each.running and each.returncode == EXIT_DIRECTORY_GIVEN_UP]


def _say(line: str) -> None:
    sys.stderr.write(f"rangelog: {line}\n")
    sys.stderr.flush()
