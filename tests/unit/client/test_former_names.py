"""Former names of packages: programs that import by them go on working, with the very classes of today's names."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

import rangelog.arrow
import rangelog.spark.jobs
import rangelog.tier
import rangelog_jobs.cluster
import rangelog_tier.arrow
import rangelog_tier.object_store


@pytest.mark.parametrize(
    ("former", "name"),
    [
        ("rangelog.tier.parquet", "rangelog_tier.parquet"),
        ("rangelog.tier.restore.plan", "rangelog_tier.restore.plan"),
        ("rangelog.spark.jobs.job", "rangelog_jobs.job"),
    ],
)
def test_a_module_is_the_same_by_either_name(former: str, name: str) -> None:
    """Whichever is imported first; it keeps its own name and spec, and is not run a second time."""
    by_former, module = importlib.import_module(former), importlib.import_module(name)
    assert by_former is module and sys.modules[former] is module
    assert module.__name__ == name and module.__spec__ is not None and module.__spec__.name == name
    assert importlib.reload(module) is module


def test_the_names_of_former_packages() -> None:
    """Those that were documented."""
    assert rangelog.tier.ObjectStore is rangelog_tier.object_store.ObjectStore
    assert rangelog.spark.jobs.ClusterAddress is rangelog_jobs.cluster.ClusterAddress
    assert rangelog.arrow.SCHEMA is rangelog_tier.arrow.SCHEMA
    with pytest.raises(AttributeError):
        rangelog.tier.nothing_of_this_name  # noqa: B018
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("rangelog.tier.nothing_of_this_name")


def test_the_command_of_jobs_runs_by_its_former_name() -> None:
    """`python -m rangelog.spark.jobs`."""
    command = [sys.executable, "-m", "rangelog.spark.jobs", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0 and "audit" in done.stdout, done.stderr
