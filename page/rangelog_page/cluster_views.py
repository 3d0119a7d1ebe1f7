"""The views of the cluster: health, servers by zone with their load, findings, tasks and repairs."""

from __future__ import annotations

import dataclasses
from itertools import groupby
from typing import Any

from pdctl.cluster import describe_cluster
from pdctl.doctor.cluster import examine
from pdctl.doctor.findings import NOTE, OK, findings
from pdctl.repairs import repairs_of
from pdctl.top import rows as load_rows
from pdctl.top import take_sample
from pdctl.topics.calls import broker_counts
from pdctl.topics.views import broker_view
from pdctl.views import task_view
from rangelog_core.net.principals import Principal
from rangelog_page.asking import LONG_TIMEOUT_S, TIMEOUT_S, Asking, Need, may, within
from rangelog_page.page_query import PageQuery
from rangelog_proto.v1 import broker_pb2, pd_pb2

STATUS_AGE_S = 1.0
LOAD_AGE_S = 2.0
LOAD_SPAN_S_MAX = 30.0
"""Rates are measured between two looks that are no further apart."""
FINDINGS_AGE_S = 5.0
TASKS_AGE_S = 2.0
SERVERS_SHOWN_MAX = 300
TASKS_SHOWN_MAX = 200
REPAIRS_SHOWN_MAX = 100

LOAD_NEEDS: tuple[Need, ...] = ("rangelog.v1.PlacementDriver/ListServers", "rangelog.v1.RangeServer/GetStatus")
_GOOD_MODES = ("active", "")


async def health(asking: Asking, principal: Principal | None, query: PageQuery) -> dict[str, Any]:
    """Return the state of the cluster as `pdctl cluster status` has it."""
    return {"cluster": await _described(asking)}


async def servers(asking: Asking, principal: Principal | None, query: PageQuery) -> dict[str, Any]:
    """Return the range servers by zone, with their load where the viewer may see it, and the brokers."""
    described = await _described(asking)
    load: dict[str, Any] = {}
    if may(principal, *LOAD_NEEDS) and may(asking.own, *LOAD_NEEDS):
        load = await asking.share("load", LOAD_AGE_S, lambda: _load(asking))
    listed = sorted(described["servers"], key=lambda each: (each["zone"], each["name"]))
    known = [_server(each, load.get(each["name"])) for each in listed[:SERVERS_SHOWN_MAX]]
    zones = [{"name": zone, "servers": list(found)} for zone, found in groupby(known, key=lambda each: each["zone"])]
    brokers = await asking.share("brokers", STATUS_AGE_S, lambda: broker_counts(asking.pd, TIMEOUT_S))
    counts, nothing = {each.broker: each for each in brokers.owned}, broker_pb2.OwnedCount()
    return {
        "zones": zones,
        "left_out": len(listed) - len(known),
        "with_load": bool(load),
        "members": described["members"],
        "brokers": [
            broker_view(each, counts.get(each.name, nothing))
            for each in sorted(brokers.brokers, key=lambda each: each.name)
        ],
    }


async def examined(asking: Asking, principal: Principal | None, query: PageQuery) -> dict[str, Any]:
    """Return the findings of `pdctl doctor cluster`, problems first."""

    async def ask() -> list[dict[str, Any]]:
        told = await within(LONG_TIMEOUT_S, examine(asking.session, asking.pd), "the examination of the cluster")
        return [dataclasses.asdict(each) for each in findings(told)]

    found = await asking.share("findings", FINDINGS_AGE_S, ask)
    ordered = sorted(found, key=lambda each: (each["state"] == OK, each["state"] == NOTE))
    return {"findings": ordered, "problem_count": sum(each["state"] not in (OK, NOTE) for each in found)}


async def tasks(asking: Asking, principal: Principal | None, query: PageQuery) -> dict[str, Any]:
    """Return the tasks as `pdctl task list` has them, those that fail first."""

    async def ask() -> list[dict[str, Any]]:
        found = await asking.pd.call(pd_pb2.ListTasksRequest(), pd_pb2.ListTasksResponse, timeout_s=TIMEOUT_S)
        return [task_view(each) for each in found.tasks]

    found = await asking.share("tasks", TASKS_AGE_S, ask)
    ordered = sorted(found, key=lambda each: (not each["last_error"], -each["age_ms"]))
    return {
        "tasks": ordered[:TASKS_SHOWN_MAX],
        "task_count": len(found),
        "failing_count": sum(bool(each["last_error"]) for each in found),
    }


async def repairs(asking: Asking, principal: Principal | None, query: PageQuery) -> dict[str, Any]:
    """Return the ranges that lack copies as `pdctl repair list` has them, and how far their repair is."""
    return await asking.share(  # type: ignore[no-any-return]
        "repairs", TASKS_AGE_S, lambda: repairs_of(asking.pd, TIMEOUT_S, None, REPAIRS_SHOWN_MAX)
    )


async def _described(asking: Asking) -> dict[str, Any]:
    return await asking.share(  # type: ignore[no-any-return]
        "cluster", STATUS_AGE_S, lambda: describe_cluster(asking.pd, TIMEOUT_S)
    )


async def _load(asking: Asking) -> dict[str, Any]:
    """Return what each server does now, by name, measured since the look before; without one, rates are None."""
    sample = await within(LONG_TIMEOUT_S, take_sample(asking.session, asking.pd), "asking the range servers")
    before = asking.load_before
    if before is None or sample.at_s - before.at_s > LOAD_SPAN_S_MAX:
        before = sample  # of two looks an hour apart one would see the mean of an hour, as if it were now
    asking.load_before = sample
    return {each["name"]: each for each in load_rows(before, sample)}


def _server(found: dict[str, Any], load: dict[str, Any] | None) -> dict[str, Any]:
    state = found["mode"] if found["health"] == "alive" and found["mode"] not in _GOOD_MODES else found["health"]
    capacity = found["capacity_bytes"]
    tone = {"alive": "good", "suspect": "warn", "dead": "bad"}.get(state, "idle")
    return found | {
        "state": state,
        "tone": "warn" if tone == "good" and found["health_reason"] else tone,
        "used_percent": min(100, round(100 * found["used_bytes"] / capacity)) if capacity else None,
        "load": load,
    }
