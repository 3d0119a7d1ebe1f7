"""The models say what the product does: random walks through them, taken by the product's own classes in step."""

from __future__ import annotations

import logging
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

sys.path[:0] = [str(Path(__file__).parent)]

from conformance_seal import walk as seal_walk  # noqa: E402
from seal_model import Seal  # noqa: E402

SEAL_WALKS = 40
"""A walk takes some 10 ms; thousands more were taken while this was written."""

SEALS = [
    Seal(recoverers=2, disks=1),
    Seal(records=3, recoverers=2, disks=1, restarts=2),
    Seal(recoverers=2, disks=1, restarts=1, active=True),
    Seal(disks=1, restarts=1, rot=True),
    Seal(replicas=4, acks=3, disks=2),
    Seal(replicas=2, disks=1, restarts=1),
]


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
