"""A data plane without a network."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from rangelog_server.serving.connection import DataPlane
from tests.support.memory_server import memory_plane


@pytest.fixture
async def plane() -> AsyncIterator[DataPlane]:
    """A data plane over a disk in memory."""
    async with memory_plane() as made:
        yield made
