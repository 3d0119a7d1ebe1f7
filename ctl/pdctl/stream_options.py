"""The options of a stream's configuration: of streams, and of the streams behind a topic's shards."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import click

from pdctl.units import Duration, Size

Command = Callable[..., Any]
_NEVER_MS = -1


def range_options(command: Command) -> Command:
    """Add the options of everything but retention."""
    for option in (
        click.option("--server-label", "server_labels", multiple=True, metavar="KEY=VALUE",
                     help='Replicas only on servers that have this label; again for more; "": no label is asked for any more.'),
        click.option("--zones-min", type=click.IntRange(0, 7), help="Zones that replicas span at least; 0: no least."),
        click.option("--tiered/--not-tiered", default=None, help="Upload sealed ranges to the object store."),
        click.option("--compression", type=click.Choice(["none", "zstd"]), help="Compression of batches."),
        click.option("--durability", type=click.Choice(["flushed", "memory"]),
                     help="flushed: acks come after fdatasync. memory: before; faster, and a power cut may lose acks."),
        click.option("--hot-retention", "hot_retention_seconds", type=Duration(never=True), metavar="DURATION|never",
                     help="How long a tiered range also stays on range servers."),
        click.option("--range-age", "range_age_seconds", type=Duration(), metavar="DURATION", help="Seal a range at this age."),
        click.option("--range-size", "range_size_bytes_max", type=Size(), metavar="SIZE", help="Seal a range at this size."),
        click.option("--acks", type=click.IntRange(1, 7), help="Replicas that hold a record durably before its ack."),
        click.option("--replicas", type=click.IntRange(1, 7), help="Replicas of each range."),
    ):  # fmt: skip
        command = option(command)
    return command


def retention_options(command: Command) -> Command:
    """Add the options of a stream's own retention."""
    for option in (
        click.option("--cursor-expiry", "cursor_expiry_seconds", type=Duration(), metavar="DURATION",
                     help="A cursor that was not set for so long keeps nothing; 0s: 7 days."),
        click.option("--cursor-retention", type=click.Choice(["none", "keep", "trim", "keep_and_trim"]),
                     help="keep: age and size wait for the cursors. trim: what all cursors have passed is trimmed."),
        click.option("--retention-size", "retention_bytes", type=Size(), metavar="SIZE", help="Trim above it; 0: never."),
        click.option("--retention", "retention_seconds", type=Duration(), metavar="DURATION", help="Trim at it; 0s: never."),
    ):  # fmt: skip
        command = option(command)
    return command


def given(options: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a StreamConfig that the options set."""
    found = {name: value for name, value in options.items() if value not in (None, ())}
    if "server_labels" in found:
        found["server_labels"] = tuple(label for label in found["server_labels"] if label)
    return {name: _time(value) if name.endswith("_seconds") else value for name, value in found.items()}


def _time(duration_ms: int) -> timedelta | float:
    return float("inf") if duration_ms == _NEVER_MS else timedelta(milliseconds=duration_ms)


_DEFAULTS = {
    "replicas": "3, unless the cluster has another",
    "acks": "2, or 1 with one replica",
    "range_size_bytes_max": "512MiB",
    "range_age_seconds": "54m to 60m, by the name",
    "hot_retention_seconds": "10m",
    "durability": "flushed",
    "compression": "none",
    "tiered": "tiered, where the cluster has a tier",
    "zones_min": "0",
    "retention_seconds": "never",
    "retention_bytes": "never",
    "cursor_retention": "none",
    "cursor_expiry_seconds": "7d",
}


def show_defaults(command: click.Command) -> None:
    """Say in the help of a verb that creates what it takes where an option is not given."""
    for option in command.params:
        default = _DEFAULTS.get(option.name or "")
        if default is not None and isinstance(option, click.Option):
            option.help = f"{option.help}  [default: {default}]"
