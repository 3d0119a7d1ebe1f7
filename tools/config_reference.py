"""Write docs/configuration.md, every key of the servers' settings, from the settings classes; or check it with --check.

Defaults, bounds and units come from the classes, flags from the commands, meanings from config_meanings.toml beside this
file. A key without a meaning, and a meaning without a key, are errors.
"""

from __future__ import annotations

import pathlib
import sys
import tomllib
from collections.abc import Mapping
from typing import Any, NamedTuple, get_args

import click
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined
from pydantic_settings import BaseSettings

from rangelog_broker.settings import BrokerSettings
from rangelog_cli.main import cli
from rangelog_pd.settings import PdSettings
from rangelog_server.settings import RangeServerSettings

HERE = pathlib.Path(__file__).resolve().parent
TARGET = HERE.parent / "docs" / "configuration.md"
MEANINGS = HERE / "config_meanings.toml"
SIZES = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
UNITS = (("_bytes_per_s", "bytes/s"), ("_bytes", "bytes"), ("_ms", "ms"), ("_s", "s"), ("_fraction", "0 … 1"))


class ServerKind(NamedTuple):
    """One kind of process."""

    title: str
    command: str
    settings: type[BaseSettings]


PROCESSES = (
    ServerKind("Placement driver", "pd", PdSettings),
    ServerKind("Range server", "range-server", RangeServerSettings),
    ServerKind("Broker", "broker", BrokerSettings),
)

HEAD = """# Configuration

This page is made from the programs by `python tools/config_reference.py`; `make check` compares. What the settings are for:
[Operations](OPERATIONS.md).

A flag has precedence over the environment, the environment over the file of `--config` (TOML), the file over the default. An
unknown key of the file is refused, and so is a value out of bounds; the process then ends with one line that names the key. Unknown
variables are not refused: Kubernetes gives processes some with such names. Secrets (`token`, `raft_secret`) have no
flag, so that no list of processes shows them. Files for systemd are in [`deploy/systemd`](../deploy/systemd/rangelog-pd.service), values
for Kubernetes in [the chart](kubernetes.md).

In the environment a list is written `a,b` (`page_hosts`: as JSON), a placement driver's member as
`RANGELOG_PD_MEMBERS__pd1__RAFT_ADDRESS`.
"""  # noqa: E501

PROGRAMS = """## Programs and commands

These count for programs that connect to a cluster.

| variable | meaning |
|---|---|
| `RANGELOG_PD` | addresses of placement drivers, `host:port,…`: `pdctl` (or `--pd`), Spark, `rangelog-spark`; the SDK is given them by `connect` |
| `RANGELOG_TOKEN`, `RANGELOG_TOKEN_FILE` | a token, or the cluster's shared one; or the file that has it, which may change: all of them, the SDK included; `pdctl --token`, `--token-file` |
| `RANGELOG_CONTEXT` | the context that `pdctl` takes (or `--context`) |
| `RANGELOG_REPLICA_LAG_MS_MIN`, `RANGELOG_REPLICA_LAG_MS_MAX` | how long a replica may hold a writer's batches back until the writer takes it for slow, in ms: all of them, the SDK included, where `connect` is given no limits; Spark's executors as well, each of its own environment |
| `RANGELOG_INSECURE` | 1: a token may go to another machine without TLS |
| `RANGELOG_TLS_CA`, `RANGELOG_TLS_CERT`, `RANGELOG_TLS_KEY` | PEM files for mutual TLS: all of them, the SDK included; `pdctl --ca`, `--cert`, `--key` |
| `RANGELOG_ENCRYPTION_KEYS_DIR`, `RANGELOG_ENCRYPTION_KMS_KEY_ID` | the keys of encrypted objects: programs that read the tier, and servers without the setting |
| `RANGELOG_DEBUG` | 1: a command that fails shows its trace |
| `RANGELOG_JAVA` | the Java that `rangelog.spark.create_session` uses |
| `RANGELOG_PURE` | 1: the loops over records run in Python, also where they were compiled |
| `AWS_…` | credentials and region of an object store, as boto3 reads them |

Without these, `pdctl` takes the context in use (`pdctl context list`); they are in `~/.config/rangelog/context.json` (or `$XDG_CONFIG_HOME`).
"""  # noqa: E501


def amount(value: float, unit: str) -> str:
    """Return a number as people read it: `60,000`, `64 MiB`, `0.5`."""
    if unit.startswith("bytes"):
        for size, name in SIZES:
            if value and value % size == 0:
                return f"{int(value) // size:,} {name}" + ("/s" if unit.endswith("/s") else "")
    return f"{int(value):,}" if float(value).is_integer() else f"{value:g}"


def unit_of(key: str, field: FieldInfo) -> str:
    """Return what a value is: a unit, or a kind of text."""
    if field.annotation is bool:
        return "true, false"
    measure = key.removesuffix("_min").removesuffix("_max")
    for ending, unit in UNITS:
        if measure.endswith(ending):
            return unit
    if field.annotation in (int, float):
        return "number"
    text = str(field.annotation)
    if key.endswith("listen") or key == "join":
        return "host:port"
    if key.endswith(("_ca", "_cert", "_key")):
        return "path"
    if choices := [str(each) for each in get_args(field.annotation) if isinstance(each, str)]:
        return ", ".join(choices)
    kinds = (("dict", "table"), ("list", "list"), ("Path", "path"))
    return next((kind for sign, kind in kinds if sign in text), "text")


def default_of(field: FieldInfo, unit: str, said: str | None) -> str:
    """Return the default: as the program says, else as the class has it."""
    if said:
        return said
    if field.is_required():
        return "required"
    value = field.default
    if isinstance(value, bool):
        return "true" if value else "false"
    if value in ("", None, PydanticUndefined):
        return "none"
    return amount(value, unit) if isinstance(value, int | float) else str(value)


def bounds_of(field: FieldInfo, unit: str) -> str:
    """Return the least and the greatest value."""
    found = []
    for each in field.metadata:
        for name, sign in (("ge", "≥ "), ("gt", "> "), ("le", "≤ "), ("lt", "< ")):
            if (bound := getattr(each, name, None)) is not None:
                found.append(sign + amount(bound, unit))
    return ", ".join(found)


def flag_of(command: click.Command, key: str) -> str:
    """Return the flag that sets a key, empty where there is none."""
    return next((f"`{each.opts[0]}`" for each in command.params if each.name == key), "")


def section(process: ServerKind, meanings: Mapping[str, dict[str, str]], problems: list[str]) -> list[str]:
    """Return the table of one process; note what does not fit."""
    prefix = str(process.settings.model_config["env_prefix"])
    known = meanings[process.command] | meanings["every"]
    fields = process.settings.model_fields
    problems += [f"[{process.command}] {key}: has no meaning" for key in fields if key not in known]
    problems += [f"[{process.command}] {key}: is no setting" for key in known if key not in fields]
    lines = [
        f"## {process.title}\n",
        f"`rangelog {process.command}`; in the environment `{prefix}` and the key in capitals.\n",
        "| key | default | unit or kind | bounds | flag | environment | meaning |",
        "|---|---|---|---|---|---|---|",
    ]
    for key, field in sorted(fields.items(), key=lambda item: list(known).index(item[0]) if item[0] in known else -1):
        unit = unit_of(key, field)
        default = default_of(field, unit, meanings["defaults"].get(f"{process.command}.{key}"))
        cells = (f"`{key}`", default, unit, bounds_of(field, unit), flag_of(cli.commands[process.command], key))
        lines.append(f"| {' | '.join(cells)} | `{prefix}{key.upper()}` | {known.get(key, '')} |")
    return [*lines, ""]


def page(meanings: Mapping[str, Any]) -> tuple[str, list[str]]:
    """Return the page, and what does not fit, one line each."""
    problems: list[str] = []
    lines = [HEAD]
    for process in PROCESSES:
        lines += section(process, meanings, problems)
    return "\n".join([*lines, PROGRAMS]), problems


def main(arguments: list[str]) -> int:
    """Return 0 when the page is written, or in step."""
    made, problems = page(tomllib.loads(MEANINGS.read_text()))
    for each in problems:
        print(f"config_reference: {each}: correct tools/config_meanings.toml")
    if problems:
        return 1
    if "--check" not in arguments:
        TARGET.write_text(made)
        return 0
    if TARGET.exists() and TARGET.read_text() == made:
        return 0
    print("config_reference: docs/configuration.md is out of step; run `python tools/config_reference.py`")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
