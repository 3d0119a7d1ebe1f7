"""Which call takes a request: the services of a file of protos are where their requests are."""

from __future__ import annotations

from typing import NamedTuple, Protocol, TypeVar

from google.protobuf.message import Message

from rangelog_core.errors import InternalError

_Response = TypeVar("_Response", bound=Message)


class PdCalls(Protocol):
    """Makes calls on the placement driver; see PdClient."""

    async def call(self, request: Message, response: type[_Response], *, timeout_s: float) -> _Response:
        """Make the call that takes this request."""


class Route(NamedTuple):
    """One call of one service."""

    service: str
    name: str

    @property
    def path(self) -> str:
        """As HTTP/2 names it: "/rangelog.v1.Topics/DescribeTopic"."""
        return f"/{self.service}/{self.name}"


_ROUTES: dict[type[Message], Route] = {}


def route_of(request: type[Message]) -> Route:
    """Return the call whose request is of this type.

    >>> from rangelog_proto.v1.topic_pb2 import DescribeTopicRequest
    >>> route_of(DescribeTopicRequest).path
    '/rangelog.v1.Topics/DescribeTopic'
    """
    found = _ROUTES.get(request)
    if found is None:
        found = _ROUTES[request] = _find(request)
    return found


def _find(request: type[Message]) -> Route:
    described = request.DESCRIPTOR
    for service in described.file.services_by_name.values():
        for method in service.methods:
            if method.input_type is described:
                return Route(service.full_name, method.name)
    raise InternalError(f"no call takes a {described.name}")
