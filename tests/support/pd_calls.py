"""Placement drivers of tests that have a method for each call."""

from __future__ import annotations

import re
from typing import Any

from google.protobuf.message import Message

from rangelog_core.net.routes import route_of


def method_of(request: Message) -> str:
    """Return the call that takes a request as a method's name: "describe_topic" for DescribeTopic."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", route_of(type(request)).name).lower()


class CallsByName:
    """Stands where PdClient stands: a call goes to the method of its name."""

    async def call(self, request: Any, response: Any, *, timeout_s: float, wait_for_placement: bool = False) -> Any:
        """See PdClient."""
        return await getattr(self, method_of(request))(request, timeout_s=timeout_s)
