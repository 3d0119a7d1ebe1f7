"""What a range server exports: counted where the work is done; and when it is ready."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from rangelog_core.frame import Opcode
from rangelog_proto.v1 import data_pb2
from rangelog_server.metrics import COMMIT_S_MAX, FIGURES, Watched, look
from rangelog_server.serving.connection import DataPlane
from rangelog_server.testing import batch
from rangelog_server.wal.entry import Kind
from rangelog_server.wal.log import HERE_BYTES_MAX, Wal
from rangelog_server_common.metrics.call_tally import CallTally
from tests.fakes.faces import LogDisk
from tests.support.memory_server import Client
from tests.support.waiting import until


def values(plane: DataPlane, agent: Any = None) -> dict[str, Any]:
    """All figures at this moment, by name."""
    facts = look(plane.store, plane, agent, Path("/"), 0)
    return {figure.name.removeprefix("rangelog_server_"): figure.read(facts) for figure in FIGURES}


async def test_appends_and_fetches(plane: DataPlane) -> None:
    """A repeated append is a request and writes nothing; a refused one is an error; a fetch is what it sent."""
    client = Client(plane).hello()
    for offset in range(3):
        client.append(offset, b"value")
    client.append(2, b"value")
    client.append(9, b"value")
    size_bytes = len(batch(0, [b"value"], stream_id=1))
    found = values(plane)
    assert (found["appends_total"], found["append_batches_total"], found["append_records_total"]) == (4, 3, 3)
    assert found["append_bytes_total"] == 3 * size_bytes
    assert sum(found["append_errors_total"].values()) == 1 and len(found["append_errors_total"]) == 1
    client.confirm(3)
    client.fetch(0)
    assert [frame for frame in client.wire.frames() if frame.opcode is Opcode.FETCH_REPLY]
    found = values(plane)
    assert found["fetch_replies_total"] == {"memory": 1, "disk": 0}
    assert found["fetch_bytes_total"] == {"memory": 3 * size_bytes, "disk": 0}
    assert found["replicas"] == 1 and found["connections"] == 1
    client.send(Opcode.FETCH, data_pb2.Fetch(stream_id=5, range_index=0, bytes_max=1))
    assert values(plane)["fetch_errors_total"] == {"RANGE_NOT_FOUND": 1}


async def test_the_log_is_measured(plane: DataPlane) -> None:
    """Each commit once, each entry once."""
    client = Client(plane).hello()
    client.append(0)
    before = values(plane)
    client.append(1)
    found = values(plane)
    assert found["log_flushes_total"] == before["log_flushes_total"] + 1
    commits = found["log_commit_duration_seconds"]
    assert commits.count == found["log_flushes_total"] and commits.total_s > 0
    assert found["log_bytes_total"] > found["append_bytes_total"] and found["log_pending_bytes"] == 0


async def test_entries_on_the_thread_are_measured() -> None:
    """Groups that the committer joins are counted apart, all of them, from their own beginning."""
    wal = Wal(Path("/log"), 1, io=LogDisk(), segment_bytes=1 << 22)
    wal.open()
    loop = asyncio.get_running_loop()
    done: list[Any] = []
    wal.on_flushed = done.extend
    wal.start(loop.call_soon_threadsafe, loop.call_soon)
    async with asyncio.timeout(20):
        await until(lambda: not wal.waits_for_segment)
        for number in range(20):
            wal.submit(Kind.BATCHES, 1, 0, b"x" * (HERE_BYTES_MAX + 1 if number % 3 == 0 else 10), b"", 0, number)
            wal.kick()
        await until(lambda: len(done) >= 20)
    assert wal.write_durations.count == 20 and not wal._groups_on_thread
    assert wal.commit_durations.count <= 20 and wal.committing_s == 0
    wal.close()


async def test_quarantines_and_refusals_are_counted(plane: DataPlane) -> None:
    """A replica is counted once, however often it is found damaged."""
    client = Client(plane).hello()
    client.append(0)
    hosted = next(iter(plane.store.replicas.values()))
    plane.store.quarantine(hosted, "rot")
    plane.store.quarantine(hosted, "rot")
    plane.refused(1.0)
    found = values(plane)
    assert found["quarantines_total"] == 1 and found["connections_refused_total"] == 1


async def test_what_concerns_the_cluster(plane: DataPlane) -> None:
    """Silence counts from the last answer; without a cluster there is nothing to say."""
    alone = values(plane)
    assert alone["registered"] is None and alone["heartbeat_silence_seconds"] is None
    agent = SimpleNamespace(registered=True, answered_s=plane.loop.time() - 3, tier_error="ACCESS_DENIED: …")
    found = values(plane, agent)
    assert found["registered"] == 1 and found["tier_failing"] == 1
    assert 3 <= found["heartbeat_silence_seconds"] < 60


async def test_ready(plane: DataPlane) -> None:
    """Registered and serving, while the log grows and the disk finishes what it began; the placement driver may be away."""
    watched = Watched(plane.store, plane, CallTally(), Path("/"), 0)
    assert "not serving" in watched.problems()[0]
    agent: Any = SimpleNamespace(registered=False, answered_s=None, tier_error="")
    watched.agent, watched.serving = agent, True
    assert "not registered" in watched.problems()[0]
    agent.registered = True
    assert watched.problems() == []
    wal = plane.store.wal
    wal.problem = "no space left on the device"
    assert watched.problems() == ["the log cannot grow: no space left on the device"]
    assert values(plane)["log_full"] == 1
    wal.problem = ""
    wal._committer.began_s = -COMMIT_S_MAX  # of the performance counter, which starts above 0
    assert "does not finish a write" in watched.problems()[0]


async def test_a_full_disk_is_seen(plane: DataPlane) -> None:
    """The flag is that of the log itself, by a disk that has no room for another segment."""
    disk: Any = plane.store.wal.io

    def fail(call: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    disk.fail = fail
    plane.store.wal._spares.clear()
    plane.store.wal.retry_spare()
    watched = Watched(plane.store, plane, CallTally(), Path("/"), 0)
    watched.serving = True
    assert values(plane)["log_full"] == 1 and "cannot grow" in watched.problems()[0]
    disk.fail = lambda call: None
    plane.store.wal.retry_spare()
    assert values(plane)["log_full"] == 0 and watched.problems() == []
