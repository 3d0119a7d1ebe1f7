"""`python -m rangelog.spark.jobs`, and the file of former calls of spark-submit: see `rangelog_jobs`."""

from __future__ import annotations

import sys

from rangelog_jobs.command import main

if __name__ == "__main__":
    sys.exit(main())
