"""Changes of a topic: update, tag, seal, delete, cancel-scale."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from pdctl.output import emit_done, emit_one
from pdctl.session import Session, confirm, output_option, session_of
from pdctl.stream_options import range_options
from pdctl.topics.options import (
    COLUMNS,
    MORE,
    progress_line,
    table_instead,
    topic_argument,
    topic_config,
    topic_options,
    wait_options,
    yes_option,
)
from pdctl.topics.text import ScalingChoice, TagType
from rangelog_core.errors import PreconditionFailed, TopicNotFound, TopicStateForbids
from rangelog_core.topic_names import TopicName

if TYPE_CHECKING:
    from rangelog_core.net.pd_client import PdClient
    from rangelog_proto.v1 import topic_pb2


@click.command()
@topic_argument
@topic_options
@range_options
@output_option
@session_of
def update(
    session: Session,
    name: TopicName,
    scaling: ScalingChoice | None,
    age_ms: int | None,
    shard_size_bytes: int | None,
    consumed: bool | None,
    output: str,
    **options: Any,
) -> None:
    """Change the given options only. A scaling policy is replaced as a whole.

    \b
    Examples:
      pdctl topic update flights --retention 30d
      pdctl topic update flights --scaling bytes:8MiB,min=2
    """

    from pdctl.topics.calls import reference
    from rangelog_proto.v1 import topic_pb2

    config, fields = topic_config(options, scaling, age_ms, shard_size_bytes, consumed)
    if not fields:
        raise click.UsageError("nothing to change: give at least one option, such as --retention 7d")
    request = topic_pb2.UpdateTopicRequest(
        request_id=uuid.uuid4().hex, topic=reference(name), config=config, fields=fields
    )

    async def work(pd: PdClient) -> topic_pb2.Topic:
        if "retention" in fields and None in (age_ms, shard_size_bytes, consumed):  # the rest stays as it is
            described = topic_pb2.DescribeTopicRequest(topic=reference(name))
            now = (await pd.call(described, topic_pb2.DescribeTopicResponse, timeout_s=session.timeout_s)).topic
            kept, known = request.config.retention, now.config.retention
            kept.age_ms = known.age_ms if age_ms is None else age_ms
            kept.shard_size_bytes = known.shard_size_bytes if shard_size_bytes is None else shard_size_bytes
            kept.consumed = known.consumed if consumed is None else consumed
            request.expected_version = now.version
        return (await pd.call(request, topic_pb2.UpdateTopicResponse, timeout_s=session.timeout_s)).topic

    _emit_changed(session, work, output)


@click.command()
@topic_argument
@click.argument("tags", type=TagType(), nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--remove", multiple=True, metavar="KEY", help="Remove this tag; may be given several times.")
@output_option
@session_of
def tag(
    session: Session, name: TopicName, tags: tuple[tuple[str, str], ...], remove: tuple[str, ...], output: str
) -> None:
    """Set and remove tags.

    \b
    Example:
      pdctl topic tag flights team=air tier=gold --remove trial
    """

    from pdctl.topics.calls import reference
    from rangelog_proto.v1 import topic_pb2

    if not tags and not remove:
        raise click.UsageError("nothing to change: give KEY=VALUE, or --remove KEY")
    request = topic_pb2.UpdateTopicRequest(
        request_id=uuid.uuid4().hex, topic=reference(name), set_tags=dict(tags), remove_tags=remove
    )

    async def work(pd: PdClient) -> topic_pb2.Topic:
        return (await pd.call(request, topic_pb2.UpdateTopicResponse, timeout_s=session.timeout_s)).topic

    _emit_changed(session, work, output)


@click.command()
@topic_argument
@wait_options("all shards have ended")
@yes_option
@output_option
@session_of
@table_instead("it is deleted with `pdctl table drop`")
def seal(session: Session, name: TopicName, no_wait: bool, wait_ms: int, yes: bool, output: str) -> None:
    """Seal a topic for good, and wait until its shards are ended by their owners.

    \b
    Example:
      pdctl topic seal flights --yes
    """

    from pdctl.topics.calls import reference
    from pdctl.topics.waiting import wait_until_over
    from rangelog_proto.v1 import topic_pb2

    confirm(str(name), f"This seals topic {name} for good: it takes no records any more", yes=yes)
    request = topic_pb2.SealTopicRequest(request_id=uuid.uuid4().hex, topic=reference(name))

    async def work(pd: PdClient) -> topic_pb2.Topic:
        started = (await pd.call(request, topic_pb2.SealTopicResponse, timeout_s=session.timeout_s)).topic
        if no_wait:
            return started
        return await wait_until_over(pd, name, started, session.timeout_s, wait_ms / 1000, progress_line(output))

    _emit_changed(session, work, output)


@click.command()
@topic_argument
@click.option("--force", is_flag=True, help="Also a topic that is not sealed.")
@wait_options("a large topic is deleted in all its parts")
@yes_option
@output_option
@session_of
@table_instead("it is deleted with `pdctl table drop`")
def delete(session: Session, name: TopicName, force: bool, no_wait: bool, wait_ms: int, yes: bool, output: str) -> None:
    """Delete a sealed topic and all its records, objects included; with --force any topic.

    Nobody reads its records from the start on; its name is free at the end.

    \b
    Examples:
      pdctl topic delete flights --yes
      pdctl topic delete flights --force --yes
    """

    from pdctl.topics.calls import reference
    from pdctl.topics.waiting import wait_until_gone
    from rangelog_core.topic_kinds import check_kind
    from rangelog_proto.v1 import topic_pb2

    confirm(str(name), f"This deletes topic {name} with all its records", yes=yes)
    request = topic_pb2.DeleteTopicRequest(request_id=uuid.uuid4().hex, force=force)

    async def work(pd: PdClient) -> bool:
        described = topic_pb2.DescribeTopicRequest(topic=reference(name))
        found = (await pd.call(described, topic_pb2.DescribeTopicResponse, timeout_s=session.timeout_s)).topic
        check_kind(found, topic_pb2.TOPIC_KIND_RECORDS)
        request.topic.CopyFrom(topic_pb2.TopicReference(topic_id=found.topic_id))
        try:
            deleted = (await pd.call(request, topic_pb2.DeleteTopicResponse, timeout_s=session.timeout_s)).topic
        except TopicStateForbids as error:
            raise TopicStateForbids(f"{error.message}: `pdctl topic seal {name}` first, or pass --force") from error
        if not no_wait:
            show = progress_line(output)
            await wait_until_gone(pd, name, deleted, session.timeout_s, wait_ms / 1000, show)
            return True
        again = topic_pb2.DescribeTopicRequest(topic=topic_pb2.TopicReference(topic_id=deleted.topic_id))
        try:
            await pd.call(again, topic_pb2.DescribeTopicResponse, timeout_s=session.timeout_s)
        except TopicNotFound:
            return True
        return False

    whole = session.with_pd(work)
    said = f"{name} is deleted" if whole else f"{name} is being deleted: see `pdctl task list`"
    emit_done(said, {"topic": str(name), "deleted": whole}, output)


@click.command("cancel-scale")
@topic_argument
@output_option
@session_of
def cancel_scale(session: Session, name: TopicName, output: str) -> None:
    """Drop the plan of a scale that is not committed: the shards stay as they are.

    \b
    Example:
      pdctl topic cancel-scale flights
    """

    from pdctl.topics.calls import reference
    from rangelog_proto.v1 import topic_pb2

    async def work(pd: PdClient) -> topic_pb2.Topic:
        described = topic_pb2.DescribeTopicRequest(topic=reference(name))
        found = await pd.call(described, topic_pb2.DescribeTopicResponse, timeout_s=session.timeout_s)
        if not found.HasField("scale"):
            raise PreconditionFailed(f"topic {name} is not being scaled: see `pdctl topic show {name}`")
        request = topic_pb2.CancelScaleRequest(
            request_id=uuid.uuid4().hex, topic_id=found.topic.topic_id, scale_id=found.scale.scale_id
        )
        return (await pd.call(request, topic_pb2.CancelScaleResponse, timeout_s=session.timeout_s)).topic

    _emit_changed(session, work, output)


def _emit_changed(session: Session, work: Callable[[PdClient], Any], output: str) -> None:
    from pdctl.topics.views import topic_view

    emit_one(topic_view(session.with_pd(work)), output, [*COLUMNS, *MORE])
