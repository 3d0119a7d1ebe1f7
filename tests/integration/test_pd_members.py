"""Real placement drivers whose group grows, shrinks and is replaced member by member, under a load of stream creations."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from rangelog_core.errors import OutcomeUnknown, RangelogError, StreamExists
from rangelog_core.net.pd_client import PdClient
from rangelog_proto.v1 import pd_pb2 as pb
from tests.integration.helpers.pd_members import Members
from tests.support.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(300)]


class Load:
    """A client that creates streams one after the other, on a thread of its own, and knows which were acknowledged."""

    def __init__(self, endpoints: list[str]) -> None:
        self.acked: list[str] = []
        self.failed: list[str] = []
        self._endpoints = endpoints
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))

    def __enter__(self) -> Load:
        self._thread.start()
        eventually(lambda: self.acked, "the load has begun")
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(60)

    def goes_on(self) -> None:
        """Wait until it has got further."""
        count = len(self.acked)
        eventually(lambda: len(self.acked) > count + 3, f"the load goes on; {self.failed[-3:]}")

    async def _run(self) -> None:
        pd, number = PdClient(self._endpoints), 0
        try:
            while not self._stopping.is_set():
                number += 1
                name = f"s{number}"
                request = pb.CreateStreamRequest(request_id=uuid.uuid4().hex, name=name)
                try:
                    await pd.call(request, pb.CreateStreamResponse, timeout_s=20)
                    self.acked.append(name)
                except (OutcomeUnknown, StreamExists):
                    self.failed.append(f"{name} is unknown")
                except RangelogError as error:
                    self.failed.append(f"{name}: {error}")
                await asyncio.sleep(0.01)
        finally:
            await pd.close()


@pytest.fixture
def members(tmp_path: Path) -> Iterator[Members]:
    """No placement driver yet; all are ended."""
    made = Members(tmp_path / "pds")
    yield made
    made.stop()


async def _streams(endpoints: list[str]) -> set[str]:
    pd, found, token = PdClient(endpoints), set(), ""
    try:
        while True:
            page = await pd.call(
                pb.ListStreamsRequest(page_token=token, page_size=1000), pb.ListStreamsResponse, timeout_s=20
            )
            found |= {each.name for each in page.streams}
            token = page.next_page_token
            if not token:
                return found
    finally:
        await pd.close()


def test_a_group_grows_from_one_to_five_and_shrinks_to_one(members: Members) -> None:
    """1 → 3 → 5 → 3 → 1 under load: nothing acknowledged is lost, removed members end by themselves, with 0."""
    members.begin("pd1")
    eventually(lambda: members.listed()["has_majority"], "it leads")
    with Load([members.api["pd1"]]) as load:
        for name in ("pd2", "pd3", "pd4", "pd5"):
            added = members.join(name, "pd1")
            view = members.ok("pd", "add", added)
            assert name in {each["name"] for each in view["members"] if each["voter"]}
            assert view["passing"] == (view["voters"] in (2, 4))
            load.goes_on()
        assert members.voters() == {"pd1", "pd2", "pd3", "pd4", "pd5"}
        members.ok("pd", "transfer-leader", "pd1")
        for name in ("pd5", "pd4", "pd3", "pd2"):
            members.ok("pd", "remove", name, "--yes")
            assert members.processes[name].wait(30) == 0, members.processes[name].last_words()
            load.goes_on()
    assert members.voters() == {"pd1"}
    assert set(load.acked) <= asyncio.run(_streams([members.api["pd1"]]))
    assert members.pdctl("pd", "remove", "pd1", "--yes").returncode == 2
    members.processes["pd1"].kill()
    members.processes["pd1"].start()
    members.processes["pd1"].wait_ready()
    assert members.voters() == {"pd1"}, "a restarted member goes by its log, not by what it was started with"
    members.processes["pd1"].kill()
    members.start_with_join("pd1", "pd2")
    assert members.voters() == {"pd1"}, "one that began the group may be started with --join; nobody needs to answer"


def test_all_three_are_replaced_while_leaders_die(members: Members) -> None:
    """Each of the first three is replaced by one on an empty disk, the leader killed meanwhile; then all restart."""
    members.begin("pd1", "pd2", "pd3")
    eventually(lambda: members.listed()["has_majority"], "somebody leads")
    with Load([members.api[name] for name in ("pd1", "pd2", "pd3")]) as load:
        for old, new, wanted in (("pd1", "pd4", {"pd2", "pd3", "pd4"}), ("pd2", "pd5", {"pd3", "pd4", "pd5"})):
            added = members.join(new, "pd3")
            members.ok("pd", "replace", old, added, "--no-wait", "--yes")
            leader = members.leader()
            members.processes[leader].kill()
            if leader != old:
                members.processes[leader].start()
            eventually(lambda wanted=wanted: members.voters() == wanted, f"{old} is replaced")  # type: ignore[misc]
            load.goes_on()
        # The load knows pd1, pd2 and pd3 only. It follows the leader to pd4, and learns of pd5 there.
        members.ok("pd", "transfer-leader", "pd4")
        load.goes_on()
        added = members.join("pd6", "pd4")
        members.ok("pd", "replace", "pd3", added, "--yes")
        members.processes["pd4"].kill()
        load.goes_on()
        members.processes["pd4"].start()
    eventually(lambda: members.voters() == {"pd4", "pd5", "pd6"}, "three others vote")  # pd4 begins just now
    endpoints = [members.api[name] for name in ("pd4", "pd5", "pd6")]
    assert set(load.acked) <= asyncio.run(_streams(endpoints))
    for name in ("pd4", "pd5", "pd6"):
        members.processes[name].kill()
    for name in ("pd4", "pd5", "pd6"):
        members.processes[name].start()
    for name in ("pd4", "pd5", "pd6"):
        members.processes[name].wait_ready()
    assert set(load.acked) <= asyncio.run(_streams([members.api[name] for name in ("pd4", "pd5", "pd6")]))
    assert members.voters() == {"pd4", "pd5", "pd6"}


def test_a_saved_state_begins_a_new_group(members: Members, tmp_path: Path) -> None:
    """Saved, checked, restored after all are gone: streams are there, epochs go on with a gap; old members stay out."""
    members.begin("pd1", "pd2", "pd3")
    with Load([members.api[name] for name in ("pd1", "pd2", "pd3")]) as load:
        load.goes_on()
    file = str(tmp_path / "saved.state")
    saved = members.ok("pd", "snapshot", "save", file)
    assert saved["stream_count"] >= len(load.acked)
    assert members.pdctl("pd", "snapshot", "save", file).returncode == 5
    assert members.ok("pd", "snapshot", "inspect", file) == saved
    later = members.ok("stream", "create", "created-later")
    before = members.ok("stream", "show", load.acked[0])
    for name in ("pd1", "pd2", "pd3"):
        members.processes[name].kill()
    members.api["new1"], members.raft["new1"] = members.api["pd1"], members.raft["pd1"]  # at the old addresses
    members.begin("new1", more=("--restore-snapshot", file))
    eventually(lambda: members.listed()["has_majority"], "it leads")
    assert set(load.acked) <= asyncio.run(_streams([members.api["new1"]]))
    after = members.ok("stream", "show", load.acked[0])
    assert (after["stream_id"], after["epoch"] - before["epoch"]) == (before["stream_id"], 1 << 20)
    assert members.ok("stream", "create", "created-now")["stream_id"] > later["stream_id"] + (1 << 19)
    # What is left of the old group stays out, although it looks for pd1 at the same address.
    members.processes["pd2"].start()
    members.processes["pd2"].wait_ready()
    eventually(lambda: "refused a connection" in members.log("new1"), "pd2 is refused")
    assert members.voters_of("new1") == {"new1"}
    members.processes["pd2"].kill()
    for name in ("new2", "new3"):
        members.ok("pd", "add", members.join(name, "new1"))
    assert members.voters() == {"new1", "new2", "new3"}
    members.processes["new1"].kill()
    assert set(load.acked) <= asyncio.run(_streams([members.api[name] for name in ("new2", "new3")]))
    damaged = bytearray(Path(file).read_bytes())
    damaged[len(damaged) // 2] ^= 1
    Path(file).write_bytes(damaged)
    run = members.pdctl("pd", "snapshot", "inspect", file)
    assert run.returncode == 1 and "the checksum does not fit" in run.stderr
