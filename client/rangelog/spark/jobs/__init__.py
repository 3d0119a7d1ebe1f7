"""The former name of the package `rangelog_jobs`; its modules can be imported by it too."""

from __future__ import annotations

from rangelog._former_names import FormerName
from rangelog_jobs import ClusterAddress

__all__ = ["ClusterAddress"]

FormerName(__name__, "rangelog_jobs")
