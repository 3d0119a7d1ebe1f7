"""The keys of a local cluster's objects: a directory within its own, for trying. Elsewhere keys lie apart from the data."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from rangelog_cli.local.plan import ClusterPlan
from rangelog_tier.encryption_keys import KeyDirectory

KEYS = "keys"
FIRST_KEY_ID = "local-1"


def with_encryption(plan: ClusterPlan, directory: Path, wanted: bool | None) -> ClusterPlan:
    """Return the plan with what was asked for, None: as it was; make the first key where none is there.

    Raises InvalidArgument: the key cannot be written.
    """
    plan = plan if wanted is None else replace(plan, encrypted=wanted)
    keys = KeyDirectory(str(directory))
    if plan.encrypted and not (directory.is_dir() and keys.key_ids()):
        keys.make_key(FIRST_KEY_ID)
        keys.make_current(FIRST_KEY_ID)
    return plan
