"""Transactions: the transactional ids with their latest transactions, and the abort of one that is open."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query
from pydantic import Field

from rangelog_broker.rest.values import (
    PAGE_SIZE_DEFAULT,
    AnswerBody,
    NextPageToken,
    PageSize,
    PageToken,
    Prefix,
    TheClient,
    one_page,
)
from rangelog_server_common.http_answers import possible

States = Literal["none", "open", "waiting", "committing", "committed", "aborted"]
TransactionalId = Annotated[str, Path(description="The transactional id.", examples=["billing-1"])]


class TransactionAnswer(AnswerBody):
    """A transactional id and its latest transaction."""

    transactional_id: str = Field(examples=["billing-1"])
    producer_id: int = Field(description="The number by which shards know the id.", examples=[3])
    epoch: int = Field(description="Counts the instances of the id.", examples=[1])
    number: int = Field(description="The number of the latest transaction; 0: there was none.", examples=[12])
    state: str = Field(description="Of the latest transaction.", examples=["open"])
    used: datetime = Field(description="When the id was last used.", examples=["2026-01-01T00:00:00Z"])


class TransactionsPage(AnswerBody):
    """A page of transactional ids, in order."""

    transactions: list[TransactionAnswer]
    next_page_token: NextPageToken


router = APIRouter(prefix="/v1/transactions", tags=["transactions"])


@router.get("", summary="List transactions", responses=possible())
async def list_transactions(
    client: TheClient,
    prefix: Prefix = "",
    state: Annotated[States | None, Query(description="Only those in this state.", examples=["open"])] = None,
    page_size: PageSize = PAGE_SIZE_DEFAULT,
    page_token: PageToken = "",
) -> TransactionsPage:
    """Return a page of the transactional ids in order, each with its latest transaction."""
    listed = _after(client.transactions.list(prefix, state=state), page_token)
    found, token = await one_page(listed, page_size, lambda each: str(each.transactional_id))
    return TransactionsPage(
        transactions=[TransactionAnswer.model_validate(each) for each in found], next_page_token=token
    )


@router.get("/{transactional_id}", summary="Describe a transaction", responses=possible(404))
async def describe_transaction(client: TheClient, transactional_id: TransactionalId) -> TransactionAnswer:
    """Return the latest transaction of a transactional id."""
    return TransactionAnswer.model_validate(await client.transactions.describe(transactional_id))


@router.post("/{transactional_id}/abort", summary="Abort a transaction", responses=possible(404, 409))
async def abort_transaction(client: TheClient, transactional_id: TransactionalId) -> TransactionAnswer:
    """Abort the open transaction of a transactional id, whose program learns of it at its commit."""
    return TransactionAnswer.model_validate(await client.transactions.abort(transactional_id))


async def _after(entries: AsyncIterator[Any], last: str) -> AsyncIterator[Any]:
    async for each in entries:
        if each.transactional_id > last:
            yield each
