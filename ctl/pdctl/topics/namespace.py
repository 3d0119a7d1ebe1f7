"""`pdctl namespace …`: the first part of topics' names."""

from __future__ import annotations

import uuid
from typing import Any

import click

from pdctl.output import emit_done, emit_list, emit_one, field
from pdctl.session import Session, confirm, output_option, session_of
from pdctl.units import show_time
from rangelog_core.net.pages import pages_by_token

_PAGE_SIZE = 500
_COLUMNS = [field("NAME", "name"), field("CREATED", "created_ms", show_time)]


@click.group()
def namespace() -> None:
    """Namespaces of topics."""


@namespace.command()
@click.argument("name")
@output_option
@session_of
def create(session: Session, name: str, output: str) -> None:
    """Create a namespace. The one named `default` is created with the first topic in it.

    \b
    Example:
      pdctl namespace create airports
    """

    from pdctl.topics.views import namespace_view
    from rangelog_proto.v1 import topic_pb2

    request = topic_pb2.CreateNamespaceRequest(request_id=uuid.uuid4().hex, name=name)
    made = session.call(request, topic_pb2.CreateNamespaceResponse)
    emit_one(namespace_view(made.namespace), output, _COLUMNS)


@namespace.command("list")
@click.option("--prefix", default="", help="Only names with this prefix.")
@output_option
@session_of
def list_namespaces(session: Session, prefix: str, output: str) -> None:
    """List namespaces by name.

    \b
    Example:
      pdctl namespace list
    """

    from pdctl.topics.views import namespace_view
    from rangelog_proto.v1 import topic_pb2

    async def page_through(pd: Any) -> list[dict[str, Any]]:
        request = topic_pb2.ListNamespacesRequest(prefix=prefix, page_size=_PAGE_SIZE)
        pages = pages_by_token(pd, request, topic_pb2.ListNamespacesResponse, session.timeout_s)
        return [namespace_view(each) async for page in pages for each in page.namespaces]

    emit_list(session.with_pd(page_through), output, _COLUMNS, empty="there are no namespaces")


@namespace.command()
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@output_option
@session_of
def delete(session: Session, name: str, yes: bool, output: str) -> None:
    """Delete a namespace that has no topics.

    \b
    Example:
      pdctl namespace delete airports --yes
    """
    from rangelog_proto.v1 import topic_pb2

    confirm(name, f"This deletes namespace {name}", yes=yes)
    request = topic_pb2.DeleteNamespaceRequest(request_id=uuid.uuid4().hex, name=name)
    session.call(request, topic_pb2.DeleteNamespaceResponse)
    emit_done(f"{name} is deleted", {"namespace": name, "deleted": True}, output)
