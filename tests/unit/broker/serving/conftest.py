"""A broker's port, and a client that it has greeted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from rangelog_broker.serving.connection import ProducerPort
from rangelog_core.frame import Opcode
from tests.support.producer_client import (
    INCARNATION,
    NAME,
    TOKEN,
    ProducerClient,
    ScriptedShards,
)


@pytest.fixture
async def shards() -> ScriptedShards:
    """What the broker owns."""
    return ScriptedShards()


@pytest.fixture
async def port(shards: ScriptedShards) -> AsyncIterator[ProducerPort]:
    """A port with a token."""
    made = ProducerPort(NAME, INCARNATION, TOKEN, shards, asyncio.get_running_loop())
    yield made
    made.close()


@pytest.fixture
async def client(port: ProducerPort) -> ProducerClient:
    """A greeted client."""
    made = ProducerClient(port)
    made.hello()
    (reply,) = await made.replies()
    assert reply.opcode is Opcode.HELLO_REPLY
    return made
