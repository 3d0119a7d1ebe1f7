"""The sections of the page: what each shows, what one must be allowed to see it, and how often it is looked at again.

What holds: a section is shown only to those who may make all calls that it consists of: the page itself may more
than a viewer of role client.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rangelog_core.net.principals import Port, Principal
from rangelog_page import cluster_views, stream_views, topic_views
from rangelog_page.asking import Asking, Need
from rangelog_page.page_query import PageQuery
from rangelog_proto.v1.rights_pb2 import RESOURCE_KIND_GROUP, RESOURCE_KIND_STREAM, RESOURCE_KIND_TOPIC, ResourceKind

Look = Callable[[Asking, Principal | None, PageQuery], Awaitable[dict[str, Any]]]

_PD = "rangelog.v1.PlacementDriver"


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a page that is looked at again by itself. `every_s`: 0: it is not."""

    name: str
    title: str
    look: Look
    needs: tuple[Need, ...]
    every_s: int
    parameters: tuple[str, ...] = ()
    """Of PageQuery: those that the section depends on."""
    reads: ResourceKind | None = None
    """What it shows, if rights are about it: see viewer_rights."""


_ALL = (
    Section("health", "Health", cluster_views.health,
            (f"{_PD}/DescribeCluster", "rangelog.v1.Tier/DescribeTier"), 3),
    Section("servers", "Servers", cluster_views.servers,
            (f"{_PD}/DescribeCluster", "rangelog.v1.Tier/DescribeTier", "rangelog.v1.Brokers/ListBrokers"), 3),
    Section("findings", "Examination", cluster_views.examined,
            (f"{_PD}/DescribeCluster", f"{_PD}/ListRanges", "rangelog.v1.Inspection/InspectMember",
             "rangelog.v1.RangeServer/GetStatus", "rangelog.v1.RangeServer/ListReplicas"), 15),
    Section("tasks", "Tasks", cluster_views.tasks, (f"{_PD}/ListTasks",), 3),
    Section("repairs", "Repairs", cluster_views.repairs, ("rangelog.v1.Repairs/ListRepairs",), 3),
    Section("streams", "Streams", stream_views.streams, (f"{_PD}/ListStreams",), 5, ("prefix", "after", "limit"),
            RESOURCE_KIND_STREAM),
    Section("stream", "Ranges", stream_views.stream,
            (f"{_PD}/ListRanges", f"{_PD}/ListObjects", f"{_PD}/DescribeStream", Port.RANGE_DATA), 2, ("name", "first"),
            RESOURCE_KIND_STREAM),
    Section("tail", "Live tail", stream_views.tail,
            (f"{_PD}/DescribeStream", f"{_PD}/ListRanges", f"{_PD}/Watch", f"{_PD}/ListObjects", f"{_PD}/ProveEnd",
             Port.RANGE_DATA), 0, ("name", "offset"), RESOURCE_KIND_STREAM),
    Section("topics", "Topics", topic_views.topics, ("rangelog.v1.Topics/ListTopics",), 5, ("prefix", "after", "limit"),
            RESOURCE_KIND_TOPIC),
    Section("topic", "Shards", topic_views.topic,
            ("rangelog.v1.Topics/DescribeTopic", "rangelog.v1.Topics/ListShards", "rangelog.v1.Brokers/ListBrokers",
             f"{_PD}/ListRanges", f"{_PD}/DescribeStream", Port.RANGE_DATA), 5, ("name", "after"), RESOURCE_KIND_TOPIC),
    Section("groups", "Groups", topic_views.groups,
            ("rangelog.v1.Brokers/ListBrokers", "rangelog.v1.Brokers/FindOwners", "rangelog.v1.Groups/ListGroups",
             Port.BROKER_CONTROL), 5, ("prefix", "after", "limit"), RESOURCE_KIND_GROUP),
    Section("group", "Lag", topic_views.group,
            ("rangelog.v1.Groups/DescribeGroup", "rangelog.v1.Brokers/FindOwners", "rangelog.v1.Topics/DescribeTopic",
             "rangelog.v1.Topics/ListShards", f"{_PD}/DescribeStream", f"{_PD}/ListRanges", Port.RANGE_DATA,
             Port.BROKER_CONTROL), 5, ("name",), RESOURCE_KIND_GROUP),
)  # fmt: skip

SECTIONS: Mapping[str, Section] = {each.name: each for each in _ALL}


@dataclass(frozen=True, slots=True)
class PageView:
    """One address of the page, and the sections on it."""

    title: str
    sections: tuple[str, ...]
    tab: str
    """The entry of the navigation that it is under."""


VIEWS: Mapping[str, PageView] = {
    "cluster": PageView("Cluster", ("health", "servers"), "cluster"),
    "streams": PageView("Streams", ("streams",), "streams"),
    "stream": PageView("Stream", ("stream", "tail"), "streams"),
    "topics": PageView("Topics", ("topics",), "topics"),
    "topic": PageView("Topic", ("topic",), "topics"),
    "groups": PageView("Groups", ("groups",), "groups"),
    "group": PageView("Group", ("group",), "groups"),
    "tasks": PageView("Tasks", ("tasks", "repairs"), "tasks"),
    "health": PageView("Health", ("health", "findings"), "health"),
}
