"""Namespaces: create, and delete once empty."""

from __future__ import annotations

from rangelog_core.errors import InvalidArgument, NamespaceExists, PreconditionFailed
from rangelog_core.ids import check_name
from rangelog_core.limits import NAMESPACES_MAX
from rangelog_pd.state.store import State
from rangelog_pd.state.topic_tables import full_name
from rangelog_proto.v1 import topic_pb2


def create_namespace(
    state: State, request: topic_pb2.CreateNamespaceRequest, now_ms: int
) -> topic_pb2.CreateNamespaceResponse:
    """Create a namespace. Raises NamespaceExists, InvalidArgument."""
    check_name("namespace", request.name)
    if request.name in state.topics.namespaces:
        raise NamespaceExists(f"namespace {request.name!r} exists already")
    if len(state.topics.namespaces) >= NAMESPACES_MAX:
        raise InvalidArgument(f"{NAMESPACES_MAX} namespaces exist, which is the limit")
    namespace = topic_pb2.Namespace(name=request.name, created_ms=now_ms)
    state.topics.namespaces.put(request.name, namespace)
    return topic_pb2.CreateNamespaceResponse(namespace=namespace)


def delete_namespace(
    state: State, request: topic_pb2.DeleteNamespaceRequest, now_ms: int
) -> topic_pb2.DeleteNamespaceResponse:
    """Delete a namespace without topics. Raises NamespaceNotFound, PreconditionFailed."""
    namespace = state.topics.namespace(request.name)
    topics = state.topics.names.page(full_name(request.name, ""), "", 1)
    if topics:
        raise PreconditionFailed(f"namespace {request.name!r} has topics, {topics[0]!r} among them: delete them first")
    state.topics.namespaces.remove(request.name)
    return topic_pb2.DeleteNamespaceResponse(namespace=namespace)
