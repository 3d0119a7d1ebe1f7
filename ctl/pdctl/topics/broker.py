"""`pdctl broker …`: the brokers, and what each of them owns."""

from __future__ import annotations

from typing import Any

import click

from pdctl.output import emit_list, field
from pdctl.session import Session, output_option, session_of
from pdctl.units import show_time
from rangelog_core.errors import RangeNotFound, Unavailable

_COLUMNS = [
    field("NAME", "name"),
    field("STATE", "state"),
    field("SHARDS", "shards"),
    field("JOURNALS", "journals"),
    field("ZONE", "zone", lambda zone: zone or "-"),
    field("ADDRESS", "address"),
    field("REGISTERED", "registered_ms", show_time),
    field("VERSION", "version", lambda version: version or "-"),
]
_OWNED = [
    field("KIND", "kind"),
    field("TOPIC", "topic", lambda topic: topic or "-"),
    field("NUMBER", "number"),
    field("OWNER EPOCH", "owner_epoch"),
    ("STATE", lambda row: "owned" if row["alive"] else "waits for another broker"),
]


@click.group()
def broker() -> None:
    """Brokers: they own shards of topics, and coordinator journals."""


@broker.command("list")
@output_option
@session_of
def list_brokers(session: Session, output: str) -> None:
    """List all brokers that have registered, and how many shards and coordinator journals are assigned to each.

    \b
    Example:
      pdctl broker list
    """
    from pdctl.topics.calls import broker_counts
    from pdctl.topics.views import broker_view
    from rangelog_proto.v1 import broker_pb2

    listed = session.with_pd(lambda pd: broker_counts(pd, session.timeout_s))
    owned = {each.broker: each for each in listed.owned}
    nothing = broker_pb2.OwnedCount()
    found = sorted(listed.brokers, key=lambda each: each.name)
    rows = [broker_view(each, owned.get(each.name, nothing)) for each in found]
    emit_list(rows, output, _COLUMNS, empty="no broker is registered")


@broker.command()
@click.argument("name")
@output_option
@session_of
def owned(session: Session, name: str, output: str) -> None:
    """List the shards and coordinator journals that are assigned to a broker.

    An assignment is a hint; the epoch of the stream decides who writes.

    \b
    Example:
      pdctl broker owned b1
    """
    found = session.with_pd(lambda pd: _owned(pd, name, session.timeout_s))
    emit_list(found, output, _OWNED, empty=f"nothing is assigned to broker {name}")


async def _owned(pd: Any, name: str, timeout_s: float) -> list[dict[str, Any]]:

    from pdctl.topics.calls import all_brokers, for_each
    from pdctl.topics.views import is_alive
    from rangelog_proto.v1 import topic_pb2

    known = (await all_brokers(pd, timeout_s)).get(name)
    if known is None:
        raise RangeNotFound(f"no broker {name!r}: see `pdctl broker list`")
    assigned = await _assignments(pd, name, timeout_s)

    async def name_of(topic_id: int) -> tuple[int, str]:
        request = topic_pb2.DescribeTopicRequest(topic=topic_pb2.TopicReference(topic_id=topic_id))
        topic = (await pd.call(request, topic_pb2.DescribeTopicResponse, timeout_s=timeout_s)).topic
        return topic_id, f"{topic.namespace}/{topic.name}"

    ids = sorted({each.topic_id for each in assigned} - {0})
    names = dict(await for_each(ids, name_of))
    rows = [
        {
            "kind": "shard" if each.topic_id else "journal",
            "topic": names.get(each.topic_id),
            "topic_id": each.topic_id or None,
            "number": each.shard_id,
            "owner_epoch": each.owner_epoch,
            "incarnation": f"{each.incarnation:016x}",
            "alive": is_alive(known, each.incarnation),
        }
        for each in assigned
    ]
    return sorted(rows, key=lambda row: (row["kind"], str(row["topic"]), row["number"]))


async def _assignments(pd: Any, name: str, timeout_s: float) -> list[Any]:
    """Return what is assigned to a broker: the first rows that a watch of it gets."""
    from rangelog_proto.v1 import pd_pb2

    request = pd_pb2.WatchRequest(begin_broker=name, call=1)
    found: dict[tuple[int, int], Any] = {}
    while True:
        page = await pd.call(request, pd_pb2.WatchResponse, timeout_s=timeout_s)
        if not page.session:
            raise Unavailable("another placement driver leads by now: run the command again")
        for each in page.assignments:
            key = each.topic_id, each.shard_id
            if each.broker == name:
                found[key] = each
            else:
                found.pop(key, None)
        if not page.more:
            return list(found.values())
        request = pd_pb2.WatchRequest(session=page.session, acked=page.sequence, call=request.call + 1)
