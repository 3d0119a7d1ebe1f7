"""Tables: listed, created, deleted. Rows are read and changed with the client."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response
from pydantic import Field

from rangelog import TableInfo
from rangelog_broker.rest.resources.topics import full_name
from rangelog_broker.rest.values import (
    CALL_TIMEOUT_S,
    PAGE_SIZE_DEFAULT,
    AnswerBody,
    NamespaceName,
    NextPageToken,
    PageSize,
    PageToken,
    RequestBody,
    ShortName,
    Tags,
    TheClient,
    one_page,
)
from rangelog_core.limits import TAGS_MAX
from rangelog_server_common.http_answers import possible


class NewTable(RequestBody):
    """A table to be created."""

    name: Annotated[str, Field(examples=["counts"])]
    partitions: int = Field(
        default=4, description="The number of partitions, 1 to 1,000. It never changes.", examples=[4]
    )
    replicas: int = Field(default=3, description="Replicas of each range of a partition's log, 1 to 7.")
    acks: int | None = Field(default=None, description="Replicas that hold a change before it is acked.")
    tags: Tags = Field(default_factory=dict, max_length=TAGS_MAX)


class TableAnswer(AnswerBody):
    """A table."""

    name: str = Field(examples=["air/counts"])
    table_id: int = Field(description="Never reused, unlike the name.", examples=[8])
    partition_count: int = Field(examples=[4])
    replicas: int = Field(examples=[3])
    acks: int = Field(examples=[2])
    tags: dict[str, str] = Field(examples=[{"team": "ops"}])
    version: int = Field(description="Raised by each change of the configuration.", examples=[1])
    created_ms: int = Field(description="Milliseconds since the Unix epoch.", examples=[1790000000000])


class TablesPage(AnswerBody):
    """A page of tables, by namespace and name."""

    tables: list[TableAnswer]
    next_page_token: NextPageToken


def _table_answer(table: TableInfo) -> TableAnswer:
    fields = {name: getattr(table, name) for name in TableAnswer.model_fields if name != "tags"}
    return TableAnswer(tags=dict(table.tags), **fields)


router = APIRouter(prefix="/v1", tags=["tables"])


@router.get("/tables", summary="List tables", responses=possible())
async def list_tables(
    client: TheClient,
    namespace: Annotated[str, Query(description="Only tables of this namespace.")] = "",
    prefix: Annotated[str, Query(description="Only names that start so; with `namespace` only.")] = "",
    page_size: PageSize = PAGE_SIZE_DEFAULT,
    page_token: PageToken = "",
) -> TablesPage:
    """Return a page of the tables, by namespace and name."""
    listed = client.tables.list(namespace=namespace, prefix=prefix, after=page_token)
    found, token = await one_page(listed, page_size, lambda each: each.name)
    return TablesPage(tables=[_table_answer(each) for each in found], next_page_token=token)


@router.post("/namespaces/{namespace}/tables", status_code=201, summary="Create a table", responses=possible(404, 409))
async def create_table(client: TheClient, namespace: NamespaceName, body: NewTable) -> TableAnswer:
    """Create a table. The namespace must exist; "default" is created where it is missing."""
    made = await client.tables.create(
        full_name(namespace, body.name),
        partitions=body.partitions,
        replicas=body.replicas,
        acks=body.acks,
        tags=body.tags,
        timeout_s=CALL_TIMEOUT_S,
    )
    return _table_answer(made)


@router.get("/namespaces/{namespace}/tables/{table}", summary="Describe a table", responses=possible(404, 409))
async def describe_table(client: TheClient, namespace: NamespaceName, table: ShortName) -> TableAnswer:
    """Return the configuration of a table."""
    return _table_answer(await client.tables.describe(full_name(namespace, table), timeout_s=CALL_TIMEOUT_S))


@router.delete(
    "/namespaces/{namespace}/tables/{table}",
    status_code=204,
    summary="Delete a table",
    responses=possible(404, 409),
)
async def delete_table(client: TheClient, namespace: NamespaceName, table: ShortName) -> Response:
    """Delete a table with all its rows."""
    await client.tables.delete(full_name(namespace, table), timeout_s=CALL_TIMEOUT_S)
    return Response(status_code=204)
