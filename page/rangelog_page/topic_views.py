"""The views of topics, with their shards beside each other, and of groups of consumers with their lag.

What holds: a list costs no more than its page, a topic no more than SHARDS_SHOWN_MAX of its shards.
"""

from __future__ import annotations

from typing import Any

from pdctl.groups.group import group_view, lag_view, summary_view
from pdctl.topics.calls import all_brokers, broker_counts, for_each, reference
from pdctl.topics.text import show_key_range
from pdctl.topics.views import key_range_of, owner_view, plan_view, shard_view, topic_view
from pdctl.views import range_view, stream_view
from rangelog_core.errors import RangelogError
from rangelog_core.ids import check_name
from rangelog_core.key_ranges import KEY_SPACE_END
from rangelog_core.net.principals import Principal
from rangelog_core.topic_names import parse_topic_name
from rangelog_page.asking import LONG_TIMEOUT_S, TIMEOUT_S, Asking, within
from rangelog_page.page_query import PageQuery
from rangelog_proto.v1 import pd_pb2, topic_pb2

LIST_AGE_S = 1.0
TOPIC_AGE_S = 2.0
GROUP_AGE_S = 3.0
SHARDS_SHOWN_MAX = 64
GROUP_SHARDS_SHOWN_MAX = 200


async def topics(asking: Asking, principal: Principal | None, query: PageQuery) -> dict[str, Any]:
    """Return a page of the topics; a prefix is NAMESPACE/PREFIX, or, without a slash, of names in the namespace `default`."""
    namespace, slash, prefix = query.prefix.partition("/")
    if not slash:
        namespace, prefix = ("default", query.prefix) if query.prefix else ("", "")

    async def ask() -> dict[str, Any]:
        request = topic_pb2.ListTopicsRequest(
            namespace=namespace, prefix=prefix, page_token=query.after, page_size=query.limit
        )
        page = await asking.pd.call(request, topic_pb2.ListTopicsResponse, timeout_s=TIMEOUT_S)
        return {"topics": [topic_view(each) for each in page.topics], "next": page.next_page_token}

    key = ("topics", namespace, prefix, query.after, query.limit)
    return await asking.share(key, LIST_AGE_S, ask) | {"query": query}  # type: ignore[no-any-return]


async def topic(asking: Asking, principal: Principal | None, query: PageQuery) -> dict[str, Any]:
    """Return a topic with a page of its current shards. Raises TopicNotFound."""
    name = parse_topic_name(query.name)

    async def ask() -> dict[str, Any]:
        named = reference(name)
        described = await asking.pd.call(
            topic_pb2.DescribeTopicRequest(topic=named), topic_pb2.DescribeTopicResponse, timeout_s=TIMEOUT_S
        )
        request = topic_pb2.ListShardsRequest(
            topic=named,
            selection=topic_pb2.SHARD_SELECTION_CURRENT,
            page_token=query.after,
            page_size=SHARDS_SHOWN_MAX,
        )
        listed = await asking.pd.call(request, topic_pb2.ListShardsResponse, timeout_s=TIMEOUT_S)
        brokers = await all_brokers(asking.pd, TIMEOUT_S)
        owners = {each.shard_id: owner_view(each, brokers) for each in listed.owners}
        shards = await for_each(listed.shards, lambda each: _shard(asking, each, owners.get(each.shard_id)))
        longest = max((each["next_offset"] or 0 for each in shards), default=0)
        return {
            "topic": topic_view(described.topic),
            "scale": plan_view(described.scale) if described.HasField("scale") else None,
            "shards": shards,
            "longest": longest,
            "next": listed.next_page_token,
        }

    found = await asking.share(("topic", str(name), query.after), TOPIC_AGE_S, ask)
    return found | {"query": query}  # type: ignore[no-any-return]


async def _shard(asking: Asking, found: topic_pb2.Shard, owner: dict[str, Any] | None) -> dict[str, Any]:
    """Return a shard with the end of its log as the placement driver knows it: that of its sealed ranges."""
    key_range = key_range_of(found.key_range)
    row = shard_view(found, owner) | {
        "key_text": show_key_range(key_range),
        "key_place": 100 * key_range.low / KEY_SPACE_END,
        "key_width": 100 * (key_range.high - key_range.low) / KEY_SPACE_END,
        "trim_offset": 0,
        "next_offset": None,
        "last": None,
        "problem": "",
    }
    try:
        request = pd_pb2.ListRangesRequest(stream_id=found.stream_id, last_only=True)
        page = await asking.pd.call(request, pd_pb2.ListRangesResponse, timeout_s=TIMEOUT_S)
    except RangelogError as error:
        return row | {"problem": error.message}
    stream = stream_view(page.stream)
    row |= {"trim_offset": stream["trim_offset"], "next_offset": stream["sealed_end_offset"]}
    if page.ranges:
        row["last"] = range_view(page.ranges[-1])
    try:
        end = await within(TIMEOUT_S, asking.client.end_offset(row["stream"]), "finding the end")
        row["next_offset"] = max(end, row["next_offset"])
    except RangelogError as error:
        row["problem"] = error.message
    return row


async def groups(asking: Asking, principal: Principal | None, query: PageQuery) -> dict[str, Any]:
    """Return a page of the groups by name. Brokers keep them: where none is registered, none is asked."""

    async def ask() -> dict[str, Any]:
        brokers = await broker_counts(asking.pd, TIMEOUT_S)
        if not any(not each.lost for each in brokers.brokers):
            return {"groups": [], "next": "", "without_broker": True}
        return {
            "without_broker": False,
            **await within(LONG_TIMEOUT_S, _listed_groups(asking, query), "listing groups"),
        }

    key = ("groups", query.prefix, query.after, query.limit)
    return await asking.share(key, LIST_AGE_S, ask) | {"query": query}  # type: ignore[no-any-return]


async def group(asking: Asking, principal: Principal | None, query: PageQuery) -> dict[str, Any]:
    """Return a group: members, positions, lag by shard. Raises GroupNotFound."""
    name = check_name("group", query.name)

    async def ask() -> dict[str, Any]:
        found = group_view(
            await within(LONG_TIMEOUT_S, asking.client.groups.describe(name), f"asking about group {name}")
        )
        lags = await within(LONG_TIMEOUT_S, asking.client.groups.lag(name), f"measuring the lag of group {name}")
        rows = sorted(
            (lag_view(each) for each in lags), key=lambda row: (-row["records"], row["topic"], row["shard_id"])
        )
        holders = {(each["topic"], each["shard_id"]): each["member_id"] for each in found["shards"]}
        return {
            "group": found,
            "lags": [
                row | {"member_id": holders.get((row["topic"], row["shard_id"]))}
                for row in rows[:GROUP_SHARDS_SHOWN_MAX]
            ],
            "lag_count": len(rows),
            "lag_records": sum(row["records"] for row in rows),
            "lag_seconds": max((row["seconds"] for row in rows), default=0.0),
        }

    return await asking.share(("group", name), GROUP_AGE_S, ask)  # type: ignore[no-any-return]


async def _listed_groups(asking: Asking, query: PageQuery) -> dict[str, Any]:
    rows: list[dict[str, Any]] = []
    async for each in asking.client.groups.list(query.prefix, after=query.after):
        if len(rows) == query.limit:
            return {"groups": rows, "next": rows[-1]["name"]}
        rows.append(summary_view(each))
    return {"groups": rows, "next": ""}
