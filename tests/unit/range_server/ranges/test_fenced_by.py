"""Who raised a fence, in the error of the writer behind it."""

from __future__ import annotations

import pytest

from rangelog_core.errors import WriterFenced
from rangelog_server.ranges.replica import Replica


def told(replica: Replica, epoch: int = 1) -> str:
    """What a writer of this epoch is told."""
    with pytest.raises(WriterFenced) as caught:
        replica.append(epoch, [], 0)
    assert caught.value.epoch == replica.epoch
    return caught.value.message


def test_the_client_that_raised_the_fence_is_named() -> None:
    """The last one. A repeated seal without a name keeps the name that is known; of an epoch without a name none is said."""
    replica = Replica(1, 0, 0, 1)
    replica.seal(2, "web-7/4711")
    assert told(replica) == told(replica, 2) == "epoch 2 fenced this range, by web-7/4711"
    replica.seal(2)
    assert told(replica) == "epoch 2 fenced this range, by web-7/4711"
    replica.seal(3)
    assert told(replica) == "epoch 3 fenced this range"
    replica.seal(4, "web-8/1")
    assert told(replica) == "epoch 4 fenced this range, by web-8/1"
    with pytest.raises(WriterFenced, match="by web-8/1"):
        replica.seal(3, "too-late/1")
    nameless = Replica(1, 1, 0, 1)
    nameless.seal(2)
    assert told(nameless) == "epoch 2 fenced this range"
