"""The model of staging says what the product does: random walks, taken in step by its shards' cores and its coordinator."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from rangelog_broker.shards.finished import FinishedShards
from rangelog_broker.shards.owner import ShardOwner
from rangelog_broker.shards.producer_table import Standing
from rangelog_broker.shards.staging import Merges, StagedBatch, Staging, TransactionKey, run_of
from rangelog_core.batch_extension import MergedFrom, Producer
from rangelog_core.key_ranges import KeyRange
from rangelog_proto.v1 import topic_pb2
from tests.model import conformance_staging_shard
from tests.model.case import Case
from tests.model.conformance_staging import WEIGHTS, StagingWalk
from tests.model.conformance_walks import OutOfStep, follow, walk
from tests.model.staging_cases import STAGING_RIGHT, STAGING_WRONG
from tests.model.staging_state import Program

WALKS = 20
"""Of each instance. A walk takes some 3 ms; thousands more were taken while this was written."""
PROGRAMS = [case.instance for case in STAGING_RIGHT if isinstance(case.instance, Program)]

DECIDED_ELSEWHERE = (
    "begin-after-stage", "commit-unflushed", "participants-current", "numbers-per-transaction",  # by the program
    "staged-ack-in-flight", "side-log-ends", "any-order",  # by what is between the cores and the streams
)  # fmt: skip
"""Wrong choices that no step of the cores makes. The simulation's mutants are about some of them."""


def staging_walk(program: Program, seed: int) -> StagingWalk:
    """Take a random walk through the model of staging."""
    walked = StagingWalk(program, seed)
    walk(walked, seed, WEIGHTS, steps=150)
    return walked


def test_shards_and_the_coordinator_walk_with_the_staging_model() -> None:
    """They stand where the model does, over takeovers, snapshots, splits and merges."""
    taken: Counter[str] = Counter()
    for program in PROGRAMS:
        for seed in range(WALKS):
            walked = staging_walk(program, seed)
            taken.update(walked.taken)
            taken.update(snapshots=sum(shard.snapshots for shard in walked.shards))
    assert all(taken.values()), taken
    assert taken["snapshots"] > 500


@pytest.mark.parametrize(
    "case", [case for case in STAGING_WRONG if case.name not in DECIDED_ELSEWHERE], ids=lambda case: case.name
)
def test_the_cores_do_not_go_the_way_of_a_wrong_choice(case: Case) -> None:
    """Led along the way by which the model found it, the product falls out of step before the end."""
    assert isinstance(case.instance, Program)
    with pytest.raises(OutOfStep):
        follow(StagingWalk(case.instance, 0), case.search().path)


_offer, _next_sequence, _note = Staging.offer, Merges.next_sequence, Merges.note


async def _no_ways(self: FinishedShards, *_: object) -> list[tuple[KeyRange, int]]:
    return []


async def _one_way(
    self: FinishedShards, shard: topic_pb2.Shard, staging_id: int, key: TransactionKey
) -> list[tuple[KeyRange, int]]:
    return (await _between(self, shard, staging_id, key))[-1:]


_between = FinishedShards._between


def _from_anywhere(self: Staging, producer: Producer) -> Standing:
    standing = _offer(self, producer)
    return Standing.NEXT if standing is Standing.GAP else standing


def _no_epochs(self: Staging, producer: Producer) -> Standing:
    standing = _offer(self, producer)
    return Standing.NEXT if standing is Standing.FENCED else standing


def _all_of_it(self: Staging, key: TransactionKey) -> list[StagedBatch]:
    staged = self._transactions.get(key)
    return list(staged.batches) if staged is not None else []


def _each_alone(*args: Any) -> list[tuple[MergedFrom, bytes]]:
    return [(place._replace(follow=0), data) for place, data in run_of(*args)]


def _never_finished(self: Merges, key: TransactionKey, shard_id: int) -> int | None:
    return _next_sequence(self, key, shard_id) or 0


def _merged_when_appended(self: ShardOwner, merged: MergedFrom, records: int) -> int:
    offset = _merge(self, merged, records)
    self.state.merges._latest[merged.producer_id] = merged.number, {merged.shard_id: merged.sequence + 1}
    return offset


_merge = ShardOwner.merge


def _no_numbers(self: Staging) -> Iterator[bytes]:
    return iter(())


def _drop_with_number(self: Staging, key: TransactionKey) -> None:
    _drop(self, key)
    self._next.pop(key.producer_id, None)


_drop = Staging.drop


def _unread(self: Staging, pieces: Iterable[bytes]) -> None:
    list(pieces)


@pytest.mark.parametrize(
    ("target", "name", "broken"),
    [
        (FinishedShards, "_between", _no_ways),
        (FinishedShards, "_between", _one_way),
        (Staging, "offer", _from_anywhere),
        (Staging, "offer", _no_epochs),
        (Staging, "batches", _all_of_it),
        (Staging, "snapshot", _no_numbers),
        (Staging, "restore", _unread),
        (Staging, "drop", _drop_with_number),
        (conformance_staging_shard, "run_of", _each_alone),
        (Merges, "next_sequence", _never_finished),
        (Merges, "note", lambda self, merged: None),
        (ShardOwner, "merge", _merged_when_appended),
    ],
    ids=[
        "no-ways", "one-way", "gap-staged", "no-epochs", "unacked-merged", "no-numbers", "numbers-unread",
        "numbers-dropped", "no-follow", "never-finished", "merges-unread", "merged-when-appended",
    ],
)  # fmt: skip
def test_a_core_that_is_changed_falls_out_of_step(
    monkeypatch: pytest.MonkeyPatch, target: Any, name: str, broken: Any
) -> None:
    """Walks are worth something only if a rule that is left out in the product shows."""
    monkeypatch.setattr(target, name, broken)
    with pytest.raises(OutOfStep):
        for seed in range(WALKS):
            for program in PROGRAMS:
                staging_walk(program, seed)
