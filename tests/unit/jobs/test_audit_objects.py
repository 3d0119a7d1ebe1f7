"""An audit's look at one object: whole, damaged, missing, not to be read, and trimmed meanwhile."""

from __future__ import annotations

import hashlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rangelog_core.errors import Unavailable
from rangelog_jobs import audit_tasks
from rangelog_tier.file_store import FileStore

DATA = bytes(range(256))


@pytest.fixture
def listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The task of an object that the cluster lists, and that its store has."""
    store = FileStore(tmp_path)
    store.put_if_absent("a/b", DATA)
    task = {"key": "a/b", "start": 3, "end": 9, "size_bytes": len(DATA), "stream_id": 1, "listed": ["a/b"]}

    async def objects(*_: Any, **__: Any) -> list[Any]:
        return [SimpleNamespace(key=each) for each in task["listed"]]

    def run(work: Any) -> Any:
        with pytest.raises(StopIteration) as ended:
            work.send(None)
        return ended.value.value

    inside = SimpleNamespace(metadata=SimpleNamespace(objects=objects))
    task["cluster"] = SimpleNamespace(client=lambda: SimpleNamespace(asynchronous=inside, run=run))
    monkeypatch.setattr(audit_tasks, "store_of", lambda cluster: store)
    return task | {"digest": f"sha256:{hashlib.sha256(DATA).hexdigest()}", "store": store}


def _found(task: dict[str, Any]) -> list[tuple[str, int, int, str]]:
    findings = audit_tasks._check_object(task["cluster"], task)
    return [(each.kind, each.start, each.end, each.key) for each in findings]


def test_an_object_is_what_is_listed_or_damaged(listed: dict[str, Any], tmp_path: Path) -> None:
    """Its size and each of its bytes."""
    assert _found(listed) == []
    (tmp_path / "a" / "b").chmod(0o644)
    for data in (b"x" + DATA[1:], DATA[1:], DATA + b"x"):
        (tmp_path / "a" / "b").write_bytes(data)
        assert _found(listed) == [("damaged", 3, 9, "a/b")]


def test_a_missing_object_counts_while_it_is_listed(listed: dict[str, Any]) -> None:
    """What was trimmed meanwhile is no finding."""
    listed["store"].delete("a/b")
    assert _found(listed) == [("missing", 3, 9, "a/b")]
    listed["listed"].clear()
    assert _found(listed) == []


def test_a_store_that_fails_is_no_damage(listed: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is the object missing."""

    def head(key: str) -> Any:
        raise Unavailable("away")

    monkeypatch.setattr(listed["store"], "head", head)
    assert _found(listed) == [("unreadable", 3, 9, "a/b")]
