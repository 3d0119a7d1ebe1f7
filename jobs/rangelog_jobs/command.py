"""The entry point: `rangelog-spark JOB …`.

Exit codes: 0 ok, 1 something wrong was found or the job failed, 2 bad usage, 130 interrupted. Every error is one line,
`rangelog-spark: <what>: <what to do>`; RANGELOG_DEBUG=1 adds the traceback and the log of Spark.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from rangelog_core.errors import InvalidArgument
from rangelog_jobs.argument_types import setting
from rangelog_jobs.console import Console
from rangelog_jobs.failures import explain
from rangelog_jobs.job import EXIT_INTERRUPTED, EXIT_USAGE, EXIT_WRONG, Job, JobCall, JobTable
from rangelog_jobs.session import DEBUG_ENV

PROGRAM = "rangelog-spark"
JOB_MODULES = ("audit", "report", "export", "replay", "mirror", "compact", "iceberg")
"""Modules of this package, one for each job: `add_job` of each adds it."""


def job_table() -> JobTable:
    """Return all jobs."""
    table = JobTable()
    for name in JOB_MODULES:
        importlib.import_module(f"rangelog_jobs.{name}").add_job(table)
    return table


def build_parser(table: JobTable) -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = _Parser(
        prog=PROGRAM,
        description="Run a job over the streams of a rangelog cluster on Spark.",
        epilog="Exit codes: 0 ok, 1 something wrong was found or the job failed, 2 bad usage, 130 interrupted.\n"
        f"`{PROGRAM} JOB --help` has examples.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    jobs = parser.add_subparsers(dest="job", metavar="JOB", required=True, parser_class=_Parser, title="jobs")
    for job in table.jobs.values():
        _add_job(jobs, job)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code.

    Args:
        argv: The arguments; None: those of the process.

    Example:
        ```python
        assert main(["audit", "--pd", "127.0.0.1:7100", "--stream", "flights"]) == 0
        ```
    """
    table = job_table()
    arguments = build_parser(table).parse_args(argv)
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # log lines of libraries are not for the user
    logging.getLogger().addHandler(logging.NullHandler())
    console = Console(quiet=arguments.quiet)
    try:
        return table.jobs[arguments.job].run(JobCall(arguments, console))
    except KeyboardInterrupt:
        console.print_line(f"{PROGRAM}: interrupted")
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the flush at exit is quiet as well
        return 0
    except Exception as error:
        if os.environ.get(DEBUG_ENV):
            logging.getLogger("rangelog.jobs").exception("the job failed")
            raise
        told = explain(error)
        console.print_line(f"{PROGRAM}: {told.message}")
        return EXIT_USAGE if isinstance(told, InvalidArgument) else EXIT_WRONG


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        """Overrides argparse's."""
        Console().print_line(f"{PROGRAM}: {message}: see {self.prog} --help")
        sys.exit(EXIT_USAGE)


def _add_job(jobs: argparse._SubParsersAction[_Parser], job: Job) -> None:
    examples = "\n".join(f"  {PROGRAM} {each}" for each in job.examples)
    parser = jobs.add_parser(
        job.name,
        help=job.summary,
        description=job.summary,
        epilog="\n\n".join(each for each in (f"Examples:\n{examples}", job.details) if each),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    job.arguments(parser)
    common = parser.add_argument_group("cluster and Spark")
    common.add_argument(
        "--pd", default=os.environ.get("RANGELOG_PD"), metavar="HOST:PORT,…",
        help="placement drivers; else RANGELOG_PD, else the context of `rangelog local`",
    )  # fmt: skip
    common.add_argument(
        "--token", default=os.environ.get("RANGELOG_TOKEN"), help="the cluster's token; else RANGELOG_TOKEN"
    )
    common.add_argument(
        "--token-file", default=os.environ.get("RANGELOG_TOKEN_FILE"), metavar="FILE",
        help="a token in a file that all machines can read; else RANGELOG_TOKEN_FILE",
    )  # fmt: skip
    common.add_argument(
        "--tier-url", metavar="URL", help="the object store, where this machine reaches it by another URL"
    )
    common.add_argument(
        "--master", help="Spark's master; default: all cores of this machine. Under spark-submit: its own"
    )
    common.add_argument(
        "--packages", metavar="MAVEN,…", help="packages that Spark loads; under spark-submit give them there"
    )
    common.add_argument(
        "--conf", action="append", type=setting, metavar="NAME=VALUE", help="a setting of Spark; repeatable"
    )
    common.add_argument("-q", "--quiet", action="store_true", help="no progress, errors only")


if __name__ == "__main__":
    sys.exit(main())
