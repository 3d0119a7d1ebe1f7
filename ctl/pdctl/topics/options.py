"""The common parts of the commands on topics: the columns of their output, their options, the configuration that these name."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from pdctl.output import field
from pdctl.stream_options import given
from pdctl.topics.text import ScalingChoice, ScalingType, TopicNameType
from pdctl.units import Duration, Size, show_bytes, show_ms, show_time
from rangelog_core.errors import TopicKindForbids

if TYPE_CHECKING:
    from rangelog_proto.v1 import topic_pb2


def _scaling(row: Any) -> str:
    policy = row["config"]["scaling"]
    if policy["kind"] == "fixed":
        return "fixed"
    target = show_bytes(policy["target_per_s"]) if policy["kind"] == "bytes" else policy["target_per_s"]
    return f"{policy['kind']}: {target}/s, factor {policy['factor']}, {policy['shards_min']} to {policy['shards_max']} shards"


def _stream(key: str, show: Callable[[Any], object] = str) -> Callable[[Any], object]:
    return lambda row: show(row["config"]["stream"][key])


def _size(size_bytes: int) -> str:
    return show_bytes(size_bytes) if size_bytes else "any"


COLUMNS = [
    field("NAME", "name"),
    field("STATE", "state"),
    field("SHARDS", "shard_count"),
    ("SCALING", _scaling),
    ("RETENTION", lambda row: show_ms(row["config"]["retention"]["age_ms"], "for ever")),
    field("TAGS", "tags", lambda tags: ", ".join(f"{key}={tags[key]}" for key in tags) or "-"),
    field("CREATED", "created_ms", show_time),
]
KIND = field("KIND", "kind")
MORE = [
    KIND,
    field("ID", "topic_id"),
    field("IN THIS STATE", "state_since_ms", show_time),
    field("MAP VERSION", "map_version"),
    ("CONSUMED GOES", lambda row: "yes" if row["config"]["retention"]["consumed"] else "no"),
    ("RETENTION SIZE", lambda row: _size(row["config"]["retention"]["shard_size_bytes"])),
    ("COPIES", lambda row: "{acks} of {replicas}".format(**row["config"]["stream"])),
    ("DURABILITY", _stream("durability")),
    ("COMPRESSION", _stream("compression")),
    ("TIERED", _stream("tiered", lambda value: "yes" if value else "no")),
    ("RANGE SIZE", _stream("range_size_bytes_max", show_bytes)),
    ("RANGE AGE", _stream("range_age_ms_max", lambda value: show_ms(value, "any"))),
    ("HOT RETENTION", _stream("hot_retention_ms", lambda value: show_ms(value, "default"))),
]
SHARD = click.IntRange(0, (1 << 63) - 1)
topic_argument = click.argument("name", type=TopicNameType(), metavar="NAME")
yes_option = click.option("--yes", is_flag=True, help="Do not ask.")


@contextmanager
def table_instead(advice: str) -> Iterator[None]:
    """Of a command that a table does not have: its error ends with what tables have instead. Also a decorator."""
    try:
        yield
    except TopicKindForbids as error:
        raise TopicKindForbids(f"{error.message}: {advice}") from error


def wait_options(until: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add --wait and --no-wait to a command that starts something; `until`: what is waited for."""

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in (
            click.option("--no-wait", is_flag=True, help="Return once the placement driver has the command."),
            click.option("--wait", "wait_ms", type=Duration(), default="1m", show_default=True, metavar="DURATION",
                         help=f"How long to wait until {until}. It goes on afterwards."),
        ):  # fmt: skip
            command = option(command)
        return command

    return add


def progress_line(output: str) -> Callable[[str], None]:
    """Return what prints a line on how far a wait is, for somebody who looks at a terminal."""

    def show(line: str) -> None:
        if output == "table" and sys.stderr.isatty():
            click.echo(line, err=True)

    return show


def topic_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of a topic's own configuration."""
    for option in (
        click.option("--retention-size", "shard_size_bytes", type=Size(), metavar="SIZE",
                     help="Trim the oldest records of a topic that has more for each of its shards; 0: never."),
        click.option("--retention-consumed/--no-retention-consumed", "consumed", default=None,
                     help="Trim what all subscribed groups have consumed, or not."),
        click.option("--retention", "age_ms", type=Duration(), metavar="DURATION", help="Trim records at it; 0s: never."),
        click.option("--scaling", type=ScalingType(), metavar="POLICY",
                     help="fixed, events:1000 or bytes:1MiB per second and shard; then also ,factor=2 ,min=1 and ,max=100."),
    ):  # fmt: skip
        command = option(command)
    return command


def topic_config(
    options: dict[str, Any],
    scaling: ScalingChoice | None,
    age_ms: int | None,
    shard_size_bytes: int | None,
    consumed: bool | None,
) -> tuple[topic_pb2.TopicConfig, list[str]]:
    """Return the configuration that the options name, and the fields of it that are set."""
    from rangelog_core.stream_config import StreamConfigChange, config_message
    from rangelog_proto.v1 import topic_pb2

    stream, fields = config_message(StreamConfigChange(**given(options)))
    config = topic_pb2.TopicConfig(stream=stream)
    names = [f"stream.{each}" for each in fields]
    if scaling is not None:
        config.scaling.CopyFrom(
            topic_pb2.ScalingPolicy(
                kind=f"SCALING_KIND_{scaling.kind.upper()}",
                target_per_s=scaling.target_per_s,
                factor=scaling.factor,
                shards_min=scaling.shards_min,
                shards_max=scaling.shards_max,
            )
        )
        names.append("scaling")
    if (age_ms, shard_size_bytes, consumed) != (None, None, None):
        retention = topic_pb2.Retention(
            age_ms=age_ms or 0, shard_size_bytes=shard_size_bytes or 0, consumed=bool(consumed)
        )
        config.retention.CopyFrom(retention)
        names.append("retention")
    return config, names
