"""A probe of calls that seal many ranges: an item that was answered with an error was not carried out, before or after.

The harm may come late or never (a caller that repeats the item under another id meets its own work there), so the answer
itself is judged against what the state machines did under the item's request id.
"""

from __future__ import annotations

import contextlib
from typing import Any
from unittest import mock

import rangelog_pd.handlers.service as service
from rangelog_pd.state.machine import Machine
from rangelog_proto.v1 import pd_state_pb2
from tests.simulation.virtual_cluster import VirtualCluster
from tests.simulation.virtual_time import here


def watch_answers(watch: Any, stack: contextlib.ExitStack, cluster: VirtualCluster) -> None:
    """Note the answers of items and the results of commands, and compare them in either order."""
    carried_out: dict[str, None] = {}
    refused: dict[str, str] = {}

    def judge(request_id: str) -> None:
        if request_id in carried_out and request_id in refused:
            cluster.fail(f"item {request_id} was answered {refused[request_id]}, and was carried out")

    def decide(self: Machine, inner: Any, action: str, request_id: str, operand: Any) -> bytes:
        result: bytes = inner(self, action, request_id, operand)
        if "/" in request_id and not pd_state_pb2.CommandResult.FromString(result).error_code:
            carried_out[request_id] = None
            judge(request_id)
        return result

    def answering(handler: Any) -> Any:
        async def call(driver: Any, request: Any) -> Any:
            cluster.note("many ranges sealed in one call")
            if not driver.knows("seal_ranges"):
                cluster.note("many ranges sealed one by one, as one placement driver does not know the call")
            cluster.ambush("many", here().name)
            response = await handler(driver, request)
            for item, result in zip(request.seals, response.results, strict=True):
                if result.HasField("error"):
                    refused[item.request_id] = result.error.code
                    judge(item.request_id)
            return response

        return call

    watch(Machine, "_decide", decide)
    watched = [
        each._replace(
            calls=tuple(
                call._replace(handler=answering(call.handler)) if call.name == "SealRanges" else call
                for call in each.calls
            )
        )
        for each in service.SERVICES
    ]
    stack.enter_context(mock.patch.object(service, "SERVICES", watched))
