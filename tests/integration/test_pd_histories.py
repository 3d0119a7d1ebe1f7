"""Three real placement drivers, clients that contend for the same streams, leaders that die and pause: one history, judged."""

from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path
from typing import Any

import grpc
import pytest

from rangelog_core.net.grpc_errors import from_rpc_error
from rangelog_core.net.pd_client import PdClient
from rangelog_core.net.routes import route_of
from rangelog_pd.state.versions import FEATURE_LEVEL
from tests.integration.helpers.pd_group import FakeServers, Group, channel, running_group, wait_for_version
from tests.integration.helpers.pd_members import Members
from tests.support.figures import publish
from tests.support.pd_checker import check_pd
from tests.support.pd_history import Call, NotingPd, PdHistory, Reply
from tests.support.waiting import Seen, until

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(240)]

STREAMS = ("a", "b", "c")
CLIENTS = 4
CALL_S = 6.0
DIGEST = "sha256:" + "0" * 64
FAULTS = ("kill", "pause", "kill", "pause", "kill")


class Client:
    """One client: opens streams, goes on where it knows a stream to be, repeats some requests under their ids."""

    def __init__(self, name: str, pd: Any, history: PdHistory, seed: int) -> None:
        self.name = name
        self.dice = random.Random(seed)
        self.history = history
        self.noting = NotingPd(pd, name, history, time.monotonic)
        self.known: dict[str, Reply] = {}
        self.stopping = False

    async def run(self) -> None:
        """Until told to stop."""
        while not self.stopping:
            await self.step(self.dice.choice(STREAMS))

    async def step(self, stream: str) -> None:
        """One call, and what is learned from it."""
        name, arguments = self._pick(stream)
        before = len(self.history.calls)
        reply = await self._call(name, stream, arguments)
        if self.dice.random() < 0.1:
            await self._repeat(self.history.calls[before], arguments)
        if name == "open_writer" and reply is not None:
            self.known[stream] = reply
        elif reply is not None and stream in self.known and reply.ranges and name != "list_ranges":
            last = reply.next_range or reply.ranges[-1]
            self.known[stream] = self.known[stream]._replace(ranges=(last,))
        elif reply is None and self.history.calls[before].outcome == "refused":
            self.known.pop(stream, None)  # somebody else has it

    async def _call(self, name: str, stream: str, arguments: dict[str, Any], request_id: str = "") -> Reply | None:
        timeout_s = (
            CALL_S if self.dice.random() < 0.5 else self.dice.uniform(0.1, 1.0)
        )  # impatience leaves UNKNOWN calls
        return await self.noting.call(name, stream, timeout_s=timeout_s, request_id=request_id, **arguments)

    async def _repeat(self, call: Call, arguments: dict[str, Any]) -> None:
        """The same request once more: to learn what became of it, or because it was delayed on the way."""
        if call.request_id and call.client == self.name:
            await self._call(call.name, call.stream, arguments, call.request_id)

    def _pick(self, stream: str) -> tuple[str, dict[str, Any]]:
        known, chance = self.known.get(stream), self.dice.random()
        if known is None or known.stream is None or chance < 0.04:
            return ("open_writer", {}) if chance < 0.4 else ("list_ranges", {})
        if chance < 0.14:
            return "list_ranges" if chance < 0.1 else "describe_stream", {}
        stream_id, epoch = known.stream.stream_id, known.stream.epoch
        last = known.ranges[-1] if known.ranges else None
        if last is None or last.end is not None:
            start = last.end if last is not None else known.stream.next_offset
            return "create_range", {"stream_id": stream_id, "epoch": epoch, "start_offset": start}
        if chance < 0.2:
            return "trim_stream", {"trim_offset": self.dice.randrange(last.start + 1)}
        end = last.start + self.dice.randrange(5)
        seal = {"stream_id": stream_id, "epoch": epoch, "range_index": last.index, "end_offset": end}
        return "seal_range", seal | {"create_next": self.dice.random() < 0.6}


class Member:
    """One placement driver, asked without looking for the leader: one that was cut off must not answer from the past."""

    def __init__(self, address: str) -> None:
        self._address = address

    async def call(self, request: Any, response: Any, *, timeout_s: float) -> Any:
        """See PdClient."""
        async with channel(self._address) as stub:
            try:
                return await getattr(stub, route_of(type(request)).name)(request, timeout=timeout_s)
            except grpc.RpcError as error:
                raise from_rpc_error(error, self._address) from error


async def ask_one_member(noting: NotingPd, dice: random.Random, stopping: asyncio.Event) -> None:
    """Reads at one member, whoever leads."""
    while not stopping.is_set():
        await noting.call(dice.choice(("list_ranges", "describe_stream")), dice.choice(STREAMS), timeout_s=1.5)
        await asyncio.sleep(0.02)


async def upload(noting: NotingPd, dice: random.Random, stopping: asyncio.Event) -> None:
    """Objects of sealed ranges are prepared and committed, meanwhile."""
    while not stopping.is_set():
        stream = dice.choice(STREAMS)
        listed = await noting.call("list_ranges", stream, timeout_s=CALL_S)
        await asyncio.sleep(0.01)
        if listed is None or listed.stream is None:
            continue
        for each in listed.ranges[:2]:
            if each.end is None or each.tiered_end == each.end:
                continue
            holder = dice.choice(("rs1", "rs2", "rs3", "rs4"))
            owner: dict[str, Any] = {"server": holder, "incarnation": 999 + int(holder[-1])}
            span = {"range_index": each.index, "start_offset": each.tiered_end, "end_offset": each.end}
            asked: dict[str, Any] = {"stream_id": listed.stream.stream_id, **span, **owner}
            prepared = await noting.call("prepare_object", stream, timeout_s=CALL_S, **asked)
            if prepared is not None:
                content: dict[str, Any] = {"size_bytes": 9, "digest": DIGEST, "epoch": each.epoch}
                object_id = prepared.objects[0].object_id
                await noting.call("commit_object", stream, timeout_s=CALL_S, object_id=object_id, **content, **owner)


async def trouble(group: Group, history: PdHistory) -> int:
    """Leaders die and pause while calls are under way; each time until calls are answered again. Returns how many."""
    for fault in FAULTS:
        leader = await group.leader()
        if fault == "kill":
            group.cluster.kill(leader)
            await answers(history, 30)
            await asyncio.to_thread(group.cluster.start_member, leader)
        else:
            group.cluster.pause(leader)
            try:
                await answers(history, 30)
            finally:
                group.cluster.resume(leader)
        await answers(history, 60)
    return len(FAULTS)


async def answers(history: PdHistory, count: int) -> None:
    """Until this many calls more were answered that began after now."""
    began = time.monotonic()

    def answered() -> Seen:
        since = [call for call in history.calls[-1000:] if call.invoked_s > began]
        told = "\n".join(f"{call} {call.code}" for call in since[-10:])
        return Seen(sum(call.outcome == "ok" for call in since) >= count, told)

    await until(answered, f"fewer than {count} calls were answered", 15)


async def change_members(group: ChangingGroup, history: PdHistory) -> int:
    """Three become five, then others, then one, while calls are under way. Returns how many changes were made."""
    pdctl, members = group.members.ok, group.members
    for name in ("pd4", "pd5"):
        added = await asyncio.to_thread(members.join, name, "pd2")
        await asyncio.to_thread(pdctl, "pd", "add", added)
        await answers(history, 30)
    leader = await asyncio.to_thread(members.leader)
    await asyncio.to_thread(pdctl, "pd", "remove", leader, "--yes")
    await answers(history, 30)
    victim = await asyncio.to_thread(members.leader)
    added = await asyncio.to_thread(members.join, "pd6", victim)
    members.processes[victim].kill()
    await asyncio.to_thread(pdctl, "pd", "replace", victim, added, "--yes")
    await answers(history, 30)
    gone = sorted(await asyncio.to_thread(members.voters))
    for name in gone[:-1]:
        await asyncio.to_thread(pdctl, "pd", "remove", name, "--yes")
        await answers(history, 30)
    assert await asyncio.to_thread(members.voters) == {gone[-1]}
    return 5 + len(gone) - 1


class ChangingGroup:
    """A group whose members change, in the shape of `Group`: addresses of all that ever belong to it are known before."""

    def __init__(self, members: Members) -> None:
        self.members = members
        self.names = [f"pd{number}" for number in range(1, 7)]
        members.begin("pd1", "pd2", "pd3", reserve=("pd4", "pd5", "pd6"))
        self.cluster = self

    @property
    def pd_addresses(self) -> list[str]:
        return [self.members.api[name] for name in self.names]

    def address(self, name: str) -> str:
        return self.members.api[name]


async def contend(group: Any, history: PdHistory, seed: int, trouble: Any) -> int:
    """All clients at once, under trouble; then one last look at every stream. Returns the number of faults."""
    pds = [PdClient(group.cluster.pd_addresses) for _ in range(CLIENTS + 3)]
    servers = FakeServers(pds[-1], "rs1", "rs2", "rs3", "rs4")
    await servers.start()
    clients = [Client(f"c{number}", pds[number], history, seed + number) for number in range(CLIENTS)]
    uploader = NotingPd(pds[-2], "uploader", history, time.monotonic)
    stopping = asyncio.Event()
    await asyncio.gather(
        *(each.noting.call("create_stream", name, timeout_s=15) for each in clients for name in STREAMS)
    )
    tasks = [asyncio.create_task(each.run()) for each in clients]
    tasks.append(asyncio.create_task(upload(uploader, random.Random(seed), stopping)))
    for name in group.names:
        member = NotingPd(Member(group.address(name)), f"at {name}", history, time.monotonic)
        tasks.append(asyncio.create_task(ask_one_member(member, random.Random(name), stopping)))
    try:
        faults = await trouble(group, history)
        for each in clients:
            each.stopping = True
        stopping.set()
        await asyncio.gather(*tasks)
        last = NotingPd(pds[-3], "last", history, time.monotonic)
        for name in STREAMS:
            assert await last.call("list_ranges", name, timeout_s=15) is not None
            assert await last.call("list_objects", name, timeout_s=15) is not None
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await servers.stop()
        for pd in pds:
            await pd.close()
    return faults


async def test_calls_on_contended_streams_have_one_order(tmp_path: Path) -> None:
    """Opens, seals, creates, trims and commits of five clients fit one order per stream, through five lost leaders."""
    history, seed = PdHistory(), random.SystemRandom().randrange(1_000_000)
    with running_group(tmp_path / "group") as group:
        await wait_for_version(group.cluster, FEATURE_LEVEL)  # the model has the rules of this level
        faults = await contend(group, history, seed, trouble)
    report = check_pd(history.calls)
    print(f"\n{report.summary()} faults={faults} seed={seed}")
    by_call: dict[str, int] = {}
    for call in history.calls:
        by_call[call.name] = by_call.get(call.name, 0) + (call.outcome == "ok")
    publish("pd_histories", {**report.figures(), "faults": faults, "answered": by_call})
    assert report.clean, "\n".join(report.violations)
    assert min(by_call.values()) > 0, by_call


async def test_calls_have_one_order_while_members_change(tmp_path: Path) -> None:
    """The same clients, while three members become five, others, and one, and a leader that is replaced dies."""
    history, seed = PdHistory(), random.SystemRandom().randrange(1_000_000)
    members = Members(tmp_path / "group")
    try:
        group = ChangingGroup(members)
        await wait_for_version(group.cluster, FEATURE_LEVEL)
        changes = await contend(group, history, seed, change_members)
    finally:
        members.stop()
    report = check_pd(history.calls)
    print(f"\n{report.summary()} changes={changes} seed={seed}")
    publish("pd_histories_over_changes", {**report.figures(), "changes": changes})
    assert report.clean, "\n".join(report.violations)
