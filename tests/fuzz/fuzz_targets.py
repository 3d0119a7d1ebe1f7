"""Every decoder that is fuzzed, by name."""

from __future__ import annotations

import fuzz_targets_batches
import fuzz_targets_control_plane
import fuzz_targets_data_plane
import fuzz_targets_log
import fuzz_targets_raft
import fuzz_targets_state
import fuzz_targets_text
import fuzz_targets_tier
from fuzz_engine import Target

_FAMILIES = (
    fuzz_targets_batches,
    fuzz_targets_log,
    fuzz_targets_raft,
    fuzz_targets_state,
    fuzz_targets_data_plane,
    fuzz_targets_control_plane,
    fuzz_targets_tier,
    fuzz_targets_text,
)

TARGETS: dict[str, Target] = {target.name: target for family in _FAMILIES for target in family.TARGETS}
