"""The models say what the product does: random walks through them, taken by the product's own classes in step."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from rangelog.protocol.window import Window
from rangelog_pd.state import objects, ranges
from rangelog_pd.state.operations import OPERATIONS
from rangelog_pd.state.store import State
from rangelog_proto.v1 import common_pb2, pd_pb2
from rangelog_server.ranges.replica import Replica
from tests.model.case import Case
from tests.model.conformance_seal import WEIGHTS as SEAL_WEIGHTS
from tests.model.conformance_seal import SealWalk
from tests.model.conformance_tier import WEIGHTS as TIER_WEIGHTS
from tests.model.conformance_tier import TierWalk
from tests.model.conformance_walks import OutOfStep, follow, walk
from tests.model.model_cases import CASES
from tests.model.seal_state import IN_TURN, Seal
from tests.model.tier_state import Instance

SEAL_WALKS, TIER_WALKS = 40, 25
"""Of each instance. A walk takes some 10 ms; thousands more were taken while this was written."""

SEALS = [
    Seal(recoverers=2, disks=1),
    Seal(records=3, recoverers=2, disks=1, restarts=2),
    Seal(recoverers=2, disks=1, restarts=1, active=True),
    Seal(disks=1, restarts=1, rot=True),
    Seal(replicas=4, acks=3, disks=2),
    Seal(replicas=2, disks=1, restarts=1),
    Seal(records=3, active=True, reader=IN_TURN, goes_on=True),
    Seal(recoverers=2, disks=1, restarts=1, rot=True, active=True, reader=IN_TURN),
]

TIERS = [
    Instance(tier=False, keys=0, faults=2, rot=True, suspicions=2),
    Instance(tier=False, keys=0, faults=1, suspicions=2, late_drops=True),
    Instance(tier=False, keys=0, members="WW", faults=1, suspicions=1, downs=1),
    Instance(keys=3, faults=1, rot=True, lates=1, losses=1, spoils=1, trim=True),
    Instance(servers=3, keys=3, spans=1, lates=1, losses=1, spoils=1, trim=True),
    Instance(keys=2, spans=1, faults=1, downs=1, suspicions=1, lates=1, hot_stays=True),
]

DECIDED_BY_THE_PRODUCT = (
    "min", "ack-formula", "seal-one", "seal-one-max-copy", "third-unfenced", "no-copy", "doubtful-counts", "fence-volatile",
    "gaps", "stale-recovery", "pd-last-wins", "no-freeze", "late-cut", "drop-hot-before-commit", "two-commits-of-one-span",
    "collect-before-delete", "drop-superfluous-too-early", "count-what-is-being-dropped", "proof-without-arbitration",
    "floor-ignored", "floor-after-seal", "floor-goes-down", "proof-by-one", "proof-like-a-seal", "proof-by-who-answers",
    "proof-of-unflushed", "confirms-all-it-sent", "confirm-while-frozen", "confirm-goes-back",
)  # fmt: skip
"""Wrong choices that a step of a walk would make; the others are about what is around it."""


def seal_walk(instance: Seal, seed: int) -> SealWalk:
    """Take a random walk through the seal model."""
    walked = SealWalk(instance)
    walk(walked, seed, SEAL_WEIGHTS, steps=60)
    return walked


def tier_walk(instance: Instance, seed: int) -> TierWalk:
    """Take a random walk through the tier model."""
    walked = TierWalk(instance)
    walk(walked, seed, TIER_WEIGHTS, steps=80)
    return walked


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Damage is logged; here there is much of it."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.reset_defaults()


def test_the_product_walks_with_the_seal_model() -> None:
    """Replicas on logs, recoveries, the writer and the driver stand where the model does, and refuse what it lacks."""
    taken: Counter[str] = Counter()
    refused = 0
    for instance in SEALS:
        for seed in range(SEAL_WALKS):
            walked = seal_walk(instance, seed)
            taken.update(walked.taken)
            refused += walked.refused
    assert all(taken.values()), taken
    assert refused > 500


def test_the_product_walks_with_the_tier_model() -> None:
    """The driver's machine, view and planner, and the servers' replicas, stand where the model does."""
    taken: Counter[str] = Counter()
    for instance in TIERS:
        for seed in range(TIER_WALKS):
            taken.update(tier_walk(instance, seed).taken)
    assert all(taken.values()), taken


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.name in DECIDED_BY_THE_PRODUCT], ids=lambda case: case.name
)
def test_the_product_does_not_go_the_way_of_a_wrong_choice(case: Case) -> None:
    """Led along the way by which the model found it, the product falls out of step before the end."""
    instance = case.instance
    product = SealWalk(instance) if isinstance(instance, Seal) else TierWalk(instance)
    with pytest.raises(OutOfStep):
        follow(product, case.search().path)


def _commit_anything(state: State, request: pd_pb2.CommitObjectRequest, now_ms: int) -> pd_pb2.CommitObjectResponse:
    found = state.objects[request.object_id]
    found.state = common_pb2.OBJECT_STATE_COMMITTED
    state.range(found.stream_id, found.range_index).tiered_end_offset = found.end_offset
    return pd_pb2.CommitObjectResponse(object=found)


def _believe_the_last_reader(state: State, request: pd_pb2.ProveEndRequest, now_ms: int) -> pd_pb2.ProveEndResponse:
    found = state.range(request.stream_id, request.range_index)
    if found.state == common_pb2.RANGE_STATE_OPEN:
        found.floor_offset = request.end_offset
    return pd_pb2.ProveEndResponse(range=found)


def _serve_from_any_disk(self: Replica, offset: int, readable_end: int) -> None:
    return


def _confirm_nothing(self: Window, floor_offset: int) -> bool:
    return True


def _fence_any_epoch(self: Replica, epoch: int, by: str = "") -> None:
    self.epoch, self.fenced = epoch, True


def _take_any_epoch(self: Replica, epoch: int, *, recovery: bool) -> None:
    return


def _trust_any_disk(self: Replica, problem: str) -> None:
    return


def _ack_while_frozen(self: Window, now_ms: float | None) -> bool:
    self.frozen = False
    return _advance(self, now_ms)


_advance = Window._advance


@pytest.mark.parametrize(
    ("target", "name", "broken"),
    [
        (objects, "commit_object", _commit_anything),
        (ranges, "prove_end", _believe_the_last_reader),
        (Replica, "check_fetch", _serve_from_any_disk),
        (Window, "confirm_to", _confirm_nothing),
        (Replica, "seal", _fence_any_epoch),
        (Replica, "_check_epoch", _take_any_epoch),
        (Replica, "doubt", _trust_any_disk),
        (Window, "_advance", _ack_while_frozen),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_product_that_is_changed_falls_out_of_step(
    monkeypatch: pytest.MonkeyPatch, target: Any, name: str, broken: Any
) -> None:
    """Walks are worth something only if a rule that is left out in the product shows."""
    monkeypatch.setattr(target, name, broken)
    if name in OPERATIONS:
        monkeypatch.setitem(OPERATIONS, name, OPERATIONS[name]._replace(apply=broken))
    with pytest.raises(OutOfStep):
        for seed in range(SEAL_WALKS):
            for instance in TIERS if target is objects else SEALS:
                (tier_walk if isinstance(instance, Instance) else seal_walk)(instance, seed)
