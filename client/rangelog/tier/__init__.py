"""The former name of the package `rangelog_tier`; its modules can be imported by it too."""

from __future__ import annotations

from typing import Any

import rangelog_tier
from rangelog._former_names import FormerName

FormerName(__name__, "rangelog_tier")


def __getattr__(name: str) -> Any:
    return getattr(rangelog_tier, name)
