"""`pdctl topic …`: topics. changes.py has the commands that change one, positions.py those for cuts."""

from __future__ import annotations

import uuid
from collections import Counter
from typing import TYPE_CHECKING, Any

import click

from pdctl.output import emit_list, emit_one
from pdctl.session import Session, output_option, session_of
from pdctl.stream_options import range_options, show_defaults
from pdctl.topics.changes import cancel_scale, delete, seal, tag, update
from pdctl.topics.consume import consume
from pdctl.topics.options import COLUMNS, KIND, MORE, topic_argument, topic_config, topic_options
from pdctl.topics.positions import cut, truncate
from pdctl.topics.produce import produce
from pdctl.topics.text import KeyRangeType, ScalingChoice, TagType
from pdctl.units import show_time
from rangelog_core.errors import NamespaceExists, NamespaceNotFound
from rangelog_core.key_ranges import KeyRange
from rangelog_core.limits import COMMAND_SHARDS_MAX
from rangelog_core.net.pages import pages_by_token
from rangelog_core.topic_names import DEFAULT_NAMESPACE, TopicName

if TYPE_CHECKING:
    from rangelog_core.net.pd_client import PdClient
    from rangelog_proto.v1 import topic_pb2

_PAGE_SIZE = 500


def _owners(row: Any) -> str:
    owners = [f"{name} {count}" for name, count in row["shards"]["owners"].items()]
    without = row["shards"]["without_owner"]
    return ", ".join([*owners, *([f"none {without}"] if without else [])]) or "-"


def _plan(row: Any) -> str:
    from pdctl.topics.views import show_view_of_key_range

    plan = row["scale"]
    if plan is None:
        return "-"
    parents = ", ".join(str(each) for each in plan["parents"])
    ranges = ", ".join(show_view_of_key_range(each) for each in plan["key_ranges"])
    return f"{plan['scale_id']} since {show_time(plan['started_ms'])}: shards {parents} become {ranges}"


_SHOWN = [
    ("SHARDS EVER", lambda row: row["shards"]["ever"]),
    ("OWNERS", _owners),
    ("SCALE", _plan),
]


@click.group()
def topic() -> None:
    """Topics: sets of shards that cover the key space. NAME is NAMESPACE/NAME, or a name in `default`."""


@topic.command()
@topic_argument
@click.option("--shards", "shard_count", type=click.IntRange(1, COMMAND_SHARDS_MAX),
              help="Equal parts of the key space.  [default: 1]")  # fmt: skip
@click.option("--key-range", "key_ranges", type=KeyRangeType(), multiple=True, metavar="LOW..HIGH",
              help="Of one shard; once for each. The leading hexadecimal digits of a key are enough.")  # fmt: skip
@click.option("--tag", "tags", type=TagType(), multiple=True, metavar="KEY=VALUE", help="May be given several times.")
@topic_options
@range_options
@output_option
@session_of
def create(
    session: Session,
    name: TopicName,
    shard_count: int | None,
    key_ranges: tuple[KeyRange, ...],
    tags: tuple[tuple[str, str], ...],
    scaling: ScalingChoice | None,
    age_ms: int | None,
    shard_size_bytes: int | None,
    consumed: bool | None,
    output: str,
    **options: Any,
) -> None:
    """Create a topic, and the namespace `default` if the topic is the first one in it.

    \b
    Examples:
      pdctl topic create flights --shards 4
      pdctl topic create airports/gates --key-range 0..4 --key-range 4..end --tag team=ground
      pdctl topic create clicks --scaling events:1000,factor=2,min=2 --retention 7d
    """

    from pdctl.topics.calls import encode_key_range
    from pdctl.topics.views import topic_view
    from rangelog_proto.v1 import topic_pb2

    if shard_count and key_ranges:
        raise click.UsageError("--shards and --key-range exclude each other")
    config, _ = topic_config(options, scaling, age_ms, shard_size_bytes, consumed)
    request = topic_pb2.CreateTopicRequest(
        request_id=uuid.uuid4().hex,
        namespace=name.namespace,
        name=name.name,
        config=config,
        tags=dict(tags),
        shard_count=shard_count or 0,
        key_ranges=[encode_key_range(each) for each in key_ranges],
    )

    async def work(pd: PdClient) -> topic_pb2.Topic:
        try:
            return (await pd.call(request, topic_pb2.CreateTopicResponse, timeout_s=session.timeout_s)).topic
        except NamespaceNotFound:
            if name.namespace != DEFAULT_NAMESPACE:
                raise
        first = topic_pb2.CreateNamespaceRequest(request_id=uuid.uuid4().hex, name=DEFAULT_NAMESPACE)
        try:
            await pd.call(first, topic_pb2.CreateNamespaceResponse, timeout_s=session.timeout_s)
        except NamespaceExists:
            pass  # another caller was first
        request.request_id = uuid.uuid4().hex  # a repeat of the first one would get its first answer
        return (await pd.call(request, topic_pb2.CreateTopicResponse, timeout_s=session.timeout_s)).topic

    emit_one(topic_view(session.with_pd(work)), output, [*COLUMNS, *MORE])


@topic.command("list")
@click.option("--namespace", default="", help="Only topics in it.")
@click.option("--prefix", default="", help="Only names with this prefix; with --namespace.")
@click.option("--tag", "tags", type=TagType(), multiple=True, metavar="KEY=VALUE",
              help="Only topics with this tag; of several, with all of them.")  # fmt: skip
@click.option("--all", "with_tables", is_flag=True, help="Tables, too, which share names with topics.")
@output_option
@session_of
def list_topics(
    session: Session,
    namespace: str,
    prefix: str,
    tags: tuple[tuple[str, str], ...],
    with_tables: bool,
    output: str,
) -> None:
    """List topics by namespace and name. `pdctl table list` has the tables.

    \b
    Examples:
      pdctl topic list
      pdctl topic list --namespace airports --prefix ga --tag team=ground
    """

    from pdctl.topics.views import topic_view
    from rangelog_proto.v1 import topic_pb2

    if prefix and not namespace:
        raise click.UsageError(f"--prefix goes with --namespace, such as --namespace {DEFAULT_NAMESPACE}")

    async def page_through(pd: PdClient) -> list[dict[str, Any]]:
        request = topic_pb2.ListTopicsRequest(namespace=namespace, prefix=prefix, tags=dict(tags), page_size=_PAGE_SIZE)
        pages = pages_by_token(pd, request, topic_pb2.ListTopicsResponse, session.timeout_s)
        found = [each async for page in pages for each in page.topics]
        return [topic_view(each) for each in found if with_tables or each.config.kind != topic_pb2.TOPIC_KIND_TABLE]

    columns = [COLUMNS[0], KIND, *COLUMNS[1:]] if with_tables else COLUMNS
    emit_list(session.with_pd(page_through), output, columns, empty="there are no topics")


@topic.command()
@topic_argument
@output_option
@session_of
def show(session: Session, name: TopicName, output: str) -> None:
    """Show a topic, its configuration, who owns its shards, and the plan of its scale.

    \b
    Example:
      pdctl topic show flights -o yaml
    """

    from pdctl.topics.calls import all_brokers, list_shards, reference
    from pdctl.topics.views import is_alive, plan_view, topic_view
    from rangelog_proto.v1 import topic_pb2

    async def work(pd: PdClient) -> dict[str, Any]:
        request = topic_pb2.DescribeTopicRequest(topic=reference(name))
        described = await pd.call(request, topic_pb2.DescribeTopicResponse, timeout_s=session.timeout_s)
        listed = await list_shards(pd, reference(name), session.timeout_s)
        brokers = await all_brokers(pd, session.timeout_s)
        owners = Counter(
            each.broker for each in listed.owners.values() if is_alive(brokers.get(each.broker), each.incarnation)
        )
        return {
            **topic_view(described.topic),
            "shards": {
                "current": len(listed.shards),
                "ever": listed.topic.next_shard_id,
                "owners": {each: owners[each] for each in sorted(owners)},
                "without_owner": len(listed.shards) - owners.total(),
            },
            "scale": plan_view(described.scale) if described.HasField("scale") else None,
        }

    emit_one(session.with_pd(work), output, [*COLUMNS, *MORE, *_SHOWN])


show_defaults(create)
for _command in (update, tag, seal, delete, cut, truncate, cancel_scale, produce, consume):
    topic.add_command(_command)
