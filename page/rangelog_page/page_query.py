"""The queries of a browser: the parameters of every page and section, checked before anything is asked of the cluster."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from rangelog_core.limits import OFFSET_MAX

TEXT_LENGTH_MAX = 300
LIMIT_DEFAULT, LIMIT_MAX = 50, 200
RANGE_INDEX_MAX = (1 << 32) - 1


class PageQuery(BaseModel):
    """The parameters of a request. An unknown one is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(default="", max_length=TEXT_LENGTH_MAX)
    """Of a stream, topic or group. Of a topic: NAMESPACE/NAME."""
    prefix: str = Field(default="", max_length=TEXT_LENGTH_MAX)
    """Only names that begin so."""
    after: str = Field(default="", max_length=TEXT_LENGTH_MAX)
    """The token of a page: what the page before gave."""
    limit: int = Field(default=LIMIT_DEFAULT, ge=1, le=LIMIT_MAX)
    """Rows of a page."""
    first: int | None = Field(default=None, ge=0, le=RANGE_INDEX_MAX)
    """The index of the first range that is drawn; without it, the last ones are."""
    offset: int | None = Field(default=None, ge=0, le=OFFSET_MAX)
    """Where a live tail goes on; without it, it begins with the last records."""
