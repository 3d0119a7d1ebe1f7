"""The walks see the wrong choices: each edit of the core, made in memory, breaks a promise within the walks' seeds."""

from __future__ import annotations

import inspect
from collections import Counter
from types import ModuleType

import pytest

from rangelog._consume import core
from tests.unit.client.consume import test_reading_walks as walks

SEEDS = 400

WRONG_CHOICES = {
    "followers begin after one of several predecessors": (
        "not all(self._is_finished(each) for each in found.ended)",
        "not any(self._is_finished(each) for each in found.ended)",
    ),
    "only the last of the predecessors leaves the position": (
        "            del self._position[each]\n",
        "            self._position.pop(each if each == shard_id else -1, None)\n",
    ),
    "a follower begins behind its first record": (
        "dict.fromkeys(found.followers, 0)",
        "dict.fromkeys(found.followers, 1)",
    ),
    "the end cut does not hold": (
        "return self._end.get(shard_id, 0)  #",
        "return end_offset  #",
    ),
    "what precedes the end cut is left out": (
        "if self._end is None or shard_id in self._before_end:\n            return end_offset",
        "if self._end is None:\n            return end_offset",
    ),
    "followers of the end cut are read": (
        "        if self._end is not None and shard_id not in self._before_end:\n            return True\n",
        "",
    ),
    "a predecessor that ends together with the last one stays open": (
        "            self._close(each)  #",
        "            pass  #",
    ),
    "records that were read are not noted": (
        "            self._position[shard_id] = offset\n",
        "            self._position[shard_id] = offset - 1\n",
    ),
}


@pytest.mark.parametrize("choice", WRONG_CHOICES)
def test_a_wrong_choice_is_seen(choice: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each edit fits exactly once, and some walk fails with it."""
    old, new = WRONG_CHOICES[choice]
    source = inspect.getsource(core)
    assert source.count(old) == 1
    edited = ModuleType("edited_core")
    exec(compile(source.replace(old, new), "edited_core", "exec"), edited.__dict__)
    for name in ("CloseShard", "OpenShard", "TopicReading"):
        monkeypatch.setattr(walks, name, getattr(edited, name))
    for seed in range(SEEDS):
        try:
            walks.walk(seed, Counter())
        except (AssertionError, KeyError, IndexError):
            return
    raise AssertionError("no walk fails")
