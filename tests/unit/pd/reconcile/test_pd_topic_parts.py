"""What is left of a large change of a topic is proposed by the leader, round by round."""

from __future__ import annotations

from typing import Any

import pytest

from rangelog_pd.reconcile.topic_upkeep import UNFINISHED_TOPICS_MAX
from rangelog_pd.state import topic_work
from tests.support.pd_topics import TopicCalls


def test_deletions_go_on_until_nothing_is_left(pd: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A round goes on with a bounded number of topics; another leader goes on from the state alone."""
    monkeypatch.setattr(topic_work, "STREAMS_PER_ENTRY", 2)
    topics = TopicCalls(pd)
    for number in range(UNFINISHED_TOPICS_MAX + 1):
        topics.delete(topics.create(f"t{number}", shards=5).topic_id, force=True)
    assert len(pd.state.streams) == 3 * (UNFINISHED_TOPICS_MAX + 1)
    assert pd.reconcile().count("continue_topic") == UNFINISHED_TOPICS_MAX
    pd.reload()
    for _ in range(3):
        pd.reconcile()
    assert not pd.state.streams and not pd.state.topics.topics
    assert "continue_topic" not in pd.reconcile()
