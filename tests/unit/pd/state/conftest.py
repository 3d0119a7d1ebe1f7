"""Topics in the state machine of a placement driver."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.pd_topics import TopicCalls


@pytest.fixture
def topics(pd: Any) -> TopicCalls:
    """Commands on topics, in namespace `ns`."""
    return TopicCalls(pd)
