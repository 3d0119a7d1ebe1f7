"""Every decoder that is fuzzed, by name."""

from __future__ import annotations

from tests.fuzz import (
    fuzz_targets_batches,
    fuzz_targets_broker_calls,
    fuzz_targets_brokers,
    fuzz_targets_control_plane,
    fuzz_targets_data_plane,
    fuzz_targets_encrypted_log,
    fuzz_targets_files,
    fuzz_targets_http,
    fuzz_targets_journals,
    fuzz_targets_log,
    fuzz_targets_raft,
    fuzz_targets_rest,
    fuzz_targets_restores,
    fuzz_targets_spark,
    fuzz_targets_state,
    fuzz_targets_tables,
    fuzz_targets_text,
    fuzz_targets_tier,
    fuzz_targets_watermarks,
)
from tests.fuzz.fuzz_engine import Target

_FAMILIES = (
    fuzz_targets_batches,
    fuzz_targets_log,
    fuzz_targets_encrypted_log,
    fuzz_targets_raft,
    fuzz_targets_state,
    fuzz_targets_tables,
    fuzz_targets_journals,
    fuzz_targets_data_plane,
    fuzz_targets_brokers,
    fuzz_targets_broker_calls,
    fuzz_targets_control_plane,
    fuzz_targets_rest,
    fuzz_targets_http,
    fuzz_targets_spark,
    fuzz_targets_tier,
    fuzz_targets_files,
    fuzz_targets_restores,
    fuzz_targets_watermarks,
    fuzz_targets_text,
)

TARGETS: dict[str, Target] = {target.name: target for family in _FAMILIES for target in family.TARGETS}
