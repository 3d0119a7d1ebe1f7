"""What all resources share: the base of requests and answers, names, numbers, and pages.

What holds: a request has no unknown field and no value of another type than declared; numbers fit their messages.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Annotated, TypeVar, cast

from fastapi import Depends, Path, Query, Request
from pydantic import BaseModel, ConfigDict, Field

from rangelog import Client
from rangelog_core.limits import NAME_LENGTH_MAX, OFFSET_MAX

PAGE_SIZE_DEFAULT = 100
PAGE_SIZE_MAX = 1_000
CALL_TIMEOUT_S = 20.0
WAIT_S_MAX = 60.0
_ID_MAX = (1 << 64) - 1

T = TypeVar("T")


class RequestBody(BaseModel):
    """Base of what callers send."""

    model_config = ConfigDict(extra="forbid", strict=True)


class AnswerBody(BaseModel):
    """Base of what callers receive; made from a value of the client by the names of its attributes."""

    model_config = ConfigDict(from_attributes=True)


async def the_client(request: Request) -> Client:
    """Return the client of the application. A coroutine, since FastAPI runs a function on a thread."""
    return cast(Client, request.app.state.client)


TheClient = Annotated[Client, Depends(the_client)]
StreamName = Annotated[str, Path(description="The stream's name.", examples=["clicks"])]
NamespaceName = Annotated[str, Path(description="The namespace's name.", examples=["air"])]
ShortName = Annotated[str, Path(description="The name in the namespace.", examples=["flights"])]
GroupName = Annotated[str, Path(description="The group's name.", examples=["billing"])]

Name = Annotated[str, Field(examples=["flights"], description="Letters, digits, '.', '_' and '-'.")]
Offset = Annotated[int, Field(ge=0, le=OFFSET_MAX, examples=[250])]
ShardId = Annotated[int, Field(ge=0, le=_ID_MAX, examples=[0])]
WaitSeconds = Annotated[float, Field(gt=0, le=WAIT_S_MAX, strict=False, description="How long to wait, in seconds.")]
Tags = Annotated[dict[str, str], Field(examples=[{"team": "ops"}])]

Prefix = Annotated[str, Query(description="Only names that start so.", max_length=NAME_LENGTH_MAX)]
PageSize = Annotated[int, Query(description="Entries of a page at most.", ge=1, le=PAGE_SIZE_MAX)]
PageToken = Annotated[
    str, Query(description="`next_page_token` of the page before.", max_length=2 * NAME_LENGTH_MAX + 1)
]
ExpectedVersion = Annotated[
    int | None, Query(ge=1, le=_ID_MAX, description="Change nothing if the topic has another `version`.")
]
NextPageToken = Annotated[
    str, Field(description="`page_token` of the next page; empty: this is the last one.", examples=[""])
]


async def one_page(entries: AsyncIterator[T], size: int, name_of: Callable[[T], str]) -> tuple[list[T], str]:
    """Return the first `size` entries, and the name of the last one if there are more."""
    found: list[T] = []
    try:
        async for each in entries:
            if len(found) == size:
                return found, name_of(found[-1])
            found.append(each)
        return found, ""
    finally:
        await cast(AsyncGenerator[T, None], entries).aclose()
