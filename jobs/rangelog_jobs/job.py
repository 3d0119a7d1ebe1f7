"""The description that a job gives to the command, and the context that the command gives to a running job.

A module that is a job has a function `add_job(jobs)`, which adds one `Job`; its name stands in `command.JOB_MODULES`:

    def add_job(jobs: JobTable) -> None:
        jobs.add(Job("count", "Count the records of a stream.", ["count flights"], _arguments, _run))
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TextIO

from rangelog_core.net.tls import TlsConfig
from rangelog_core.net.token_sources import chosen_token
from rangelog_jobs.cluster import ClusterAddress, find_cluster
from rangelog_jobs.console import Console
from rangelog_tier.encryption_keys import keys_of_environment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXIT_OK, EXIT_WRONG, EXIT_USAGE, EXIT_INTERRUPTED = 0, 1, 2, 130


@dataclass
class JobCall:
    """One run of a job by the command.

    Attributes:
        arguments: The parsed command line.
        console: Where to say how far it is.
        output: Where results go.

    Example:
        ```python
        def _run(call: JobCall) -> int:
            call.emit({"records": 3}, "3 records")
            return EXIT_OK
        ```
    """

    arguments: argparse.Namespace
    console: Console
    output: TextIO = field(default_factory=lambda: sys.stdout)

    def cluster(self) -> ClusterAddress:
        """The cluster that the options name. Raises InvalidArgument."""
        given = self.arguments
        token = chosen_token(given.token, given.token_file)
        return find_cluster(given.pd, token, given.tier_url, TlsConfig.from_environment(), keys_of_environment())

    def session(self, **config: str) -> SparkSession:
        """Make the Spark session of this run; `config`: settings where the user has given none.

        Make it before the first call of the cluster: it starts a process, and gRPC does not bear a fork once it has called.
        """
        from rangelog_jobs.session import open_session

        given = self.arguments
        chosen = {name.replace("_", "."): value for name, value in config.items()} | dict(given.conf or [])
        return open_session(f"rangelog-spark {given.job}", given.master, given.packages, chosen)

    def emit(self, data: Mapping[str, Any], text: str) -> None:
        """Print a result: as JSON with `-o json`, else as text."""
        as_json = getattr(self.arguments, "output", "text") == "json"
        self.output.write((json.dumps(data, indent=2, ensure_ascii=False) if as_json else text.rstrip("\n")) + "\n")
        self.output.flush()


@dataclass(frozen=True)
class Job:
    """A job of the command.

    Attributes:
        name: The word behind `rangelog-spark`.
        summary: One sentence on what it does.
        examples: Calls without the command's name.
        arguments: Adds its arguments to a parser.
        run: Runs it and returns the exit code. Errors are raised as exceptions: the command prints them.
        details: More for its `--help`: exit codes, and what it leaves behind.
    """

    name: str
    summary: str
    examples: Sequence[str]
    arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[JobCall], int]
    details: str = ""


class JobTable:
    """The jobs that the command knows, by name."""

    def __init__(self) -> None:
        self.jobs: dict[str, Job] = {}

    def add(self, job: Job) -> None:
        """Add a job; its name must be new."""
        assert job.name not in self.jobs, job.name
        self.jobs[job.name] = job
