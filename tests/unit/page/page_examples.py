"""What each section of the page shows, as examples: with all its parts, and with nothing."""

from __future__ import annotations

from typing import Any

from pdctl.views import config_view
from rangelog_page.drawing import draw
from rangelog_page.page_query import PageQuery
from rangelog_proto.v1 import common_pb2

NAME = "NAME"
"""Every text that others choose; `hostile` replaces it."""

_CLUSTER = {
    "health": "degraded", "reasons": [NAME], "cluster_id": NAME, "cluster_version": 7, "stream_count": 1, "range_count": 2,
    "open_range_count": 1, "object_count": 1, "under_replicated_range_count": 1, "lost_range_count": 0, "failing_task_count": 1,
    "tier_url": NAME, "members": [],
}  # fmt: skip
_SERVER = {
    "name": NAME, "state": "alive", "tone": "good", "rack": NAME, "zone": NAME, "health_reason": NAME, "used_percent": 10,
    "used_bytes": 10, "capacity_bytes": 100, "replica_count": 3, "labels": [NAME, NAME],
    "load": {"open_ranges": 1, "problem": "", "appended_bytes_per_s": 1.5, "fetched_bytes_per_s": 0.0, "records_per_s": 3.0},
}  # fmt: skip
_STREAM = {
    "name": NAME, "stream_id": 1, "range_count": 2, "sealed_end_offset": 10, "trim_offset": 10, "writer": NAME, "created_ms": 1,
    "config": config_view(common_pb2.StreamConfig()), "epoch": 3, "sealed_for_good": False,
}  # fmt: skip
_REPLICA = {"server": NAME, "health": "alive", "reason": NAME, "data_address": NAME}
_RANGES = [
    {
        "index": 0, "start_offset": 0, "end_offset": 100, "state": "sealed", "lost": False, "hot_dropped": False,
        "tiered_end_offset": 100, "epoch": 1, "replicas": [_REPLICA],
    },
    {
        "index": 1, "start_offset": 100, "end_offset": None, "state": "open", "lost": False, "hot_dropped": False,
        "tiered_end_offset": 0, "epoch": 2, "replicas": [_REPLICA, _REPLICA | {"health": "dead"}],
    },
]  # fmt: skip
_OBJECTS = [{"object_id": 5, "start_offset": 0, "end_offset": 100, "size_bytes": 1_000, "key": NAME}]
_TOPIC = {
    "name": f"{NAME}/{NAME}", "kind": "records", "state": "active", "shard_count": 1, "map_version": 2, "created_ms": 1,
    "tags": {NAME: NAME},
}  # fmt: skip
_SHARD = {
    "shard_id": 0, "key_text": "0..end", "key_place": 0.0, "key_width": 100.0, "trim_offset": 5, "next_offset": 50,
    "problem": NAME,
    "owner": {"broker": NAME, "alive": False}, "predecessors": [1], "stream": NAME, "last": _RANGES[1],
}  # fmt: skip
_TASK = {
    "task_id": NAME, "kind": NAME, "stream": NAME, "topic": "", "range_index": 1, "server": NAME, "state": "", "shards_left": 0,
    "age_ms": 5, "since_ms": 5, "last_error": NAME, "detail": NAME,
}  # fmt: skip
_REPAIRS = {
    "left": 1, "orphaned": 0, "waiting": 1, "copying": 0, "blocked": 0, "lost": 0, "done": 2, "copied_bytes": 10, "more": True,
    "repairs": [
        {"state": "waiting", "stream": NAME, "range_index": 1, "copies": 2, "wanted": 3, "servers": [NAME], "reason": NAME}
    ],
}  # fmt: skip
_RECORD = {
    "offset": 7, "timestamp_ms": 1, "key": NAME, "value": NAME, "is_text": True, "size_bytes": 4, "headers": [(NAME, NAME)],
    "headers_left_out": 1,
}  # fmt: skip
_GROUP = {
    "name": NAME, "members": [{"member_id": NAME, "joined": True, "shards": [1], "session_s": 10, "silent_s": 0.1}],
    "generation": 2, "topics": [f"{NAME}/{NAME}"], "checkpoints": [NAME],
}  # fmt: skip
_LAG = {
    "topic": f"{NAME}/{NAME}", "shard_id": 1, "offset": 1, "end_offset": 9, "records": 8, "seconds": 1.5, "member_id": NAME,
    "is_deleted": False,
}  # fmt: skip
_QUERY = PageQuery(prefix=NAME, after=NAME)

EXAMPLES: dict[str, dict[str, Any]] = {
    "health": {"cluster": _CLUSTER},
    "health, empty": {"cluster": _CLUSTER | {"health": "healthy", "reasons": []}},
    "servers": {
        "zones": [{"name": NAME, "servers": [_SERVER, _SERVER | {"load": None}]}], "left_out": 1, "with_load": True,
        "members": [{"name": NAME, "leader": True, "reachable": True, "address": NAME}],
        "brokers": [{"name": NAME, "state": "lost", "zone": NAME, "shards": 1, "journals": 2, "address": NAME}],
    },
    "servers, empty": {"zones": [], "left_out": 0, "with_load": False, "members": [], "brokers": []},
    "findings": {
        "findings": [{"check": NAME, "state": "problem", "subject": NAME, "detail": NAME, "advice": NAME}], "problem_count": 1,
    },
    "findings, empty": {"findings": [], "problem_count": 0},
    "tasks": {"tasks": [_TASK, _TASK | {"topic": f"{NAME}/{NAME}"}], "task_count": 3, "failing_count": 1},
    "tasks, empty": {"tasks": [], "task_count": 0, "failing_count": 0},
    "repairs": _REPAIRS,
    "repairs, empty": _REPAIRS | {"left": 0, "repairs": [], "more": False},
    "streams": {"streams": [_STREAM], "next": NAME, "query": _QUERY},
    "streams, empty": {"streams": [], "next": "", "query": PageQuery()},
    "stream": {
        "stream": _STREAM, "ranges": _RANGES, "objects": _OBJECTS, "objects_left_out": True, "end_offset": 200,
        "end_problem": NAME, "first": 40, "earlier": 0, "later": 80,
    },
    "stream, empty": {
        "stream": _STREAM, "ranges": [], "objects": [], "objects_left_out": False, "end_offset": 0, "end_problem": "",
        "drawing": draw([], [], trim_offset=0, end_offset=None), "first": 0, "earlier": None, "later": None,
    },
    "tail": {"records": [_RECORD, _RECORD | {"is_text": False, "key": None}], "next_offset": 8, "skipped": 3},
    "tail, empty": {"records": [], "next_offset": 0, "skipped": 0},
    "topics": {"topics": [_TOPIC], "next": NAME, "query": _QUERY},
    "topics, empty": {"topics": [], "next": "", "query": PageQuery()},
    "topic": {
        "topic": _TOPIC, "scale": {"scale_id": 1, "parents": [1], "key_ranges": [1, 2]}, "shards": [_SHARD], "longest": 50,
        "next": NAME, "query": _QUERY,
    },
    "topic, empty": {"topic": _TOPIC, "scale": None, "shards": [], "longest": 0, "next": "", "query": PageQuery()},
    "groups": {
        "groups": [{"name": NAME, "members": 1, "generation": 1}], "next": NAME, "query": _QUERY, "without_broker": False,
    },
    "groups, empty": {"groups": [], "next": "", "query": PageQuery(), "without_broker": True},
    "group": {
        "group": _GROUP, "lags": [_LAG, _LAG | {"is_deleted": True}], "lag_count": 3, "lag_records": 8, "lag_seconds": 1.5,
    },
    "group, empty": {
        "group": _GROUP | {"members": [], "topics": [], "checkpoints": []}, "lags": [], "lag_count": 0, "lag_records": 0,
        "lag_seconds": 0.0,
    },
}  # fmt: skip


def hostile(found: Any, text: str) -> Any:
    """Return an example with another text in place of every NAME; a stream's drawing is made of the outcome."""
    made = _replaced(found, text)
    if isinstance(made, dict) and "ranges" in made and "drawing" not in made:
        made["drawing"] = draw(made["ranges"], made["objects"], trim_offset=10, end_offset=made["end_offset"])
    return made


def _replaced(found: Any, text: str) -> Any:
    if isinstance(found, str):
        return found.replace(NAME, text)
    if isinstance(found, dict):
        return {_replaced(key, text): _replaced(value, text) for key, value in found.items()}
    if isinstance(found, (list, tuple)):
        return type(found)(_replaced(each, text) for each in found)
    if isinstance(found, PageQuery):
        return PageQuery(**{key: _replaced(value, text) for key, value in found.model_dump().items()})
    return found
