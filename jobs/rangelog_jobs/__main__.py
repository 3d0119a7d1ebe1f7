"""`python -m rangelog_jobs JOB …`; and the file to hand to spark-submit."""

from __future__ import annotations

import sys
from pathlib import Path

if __package__ in (
    None,
    "",
):  # spark-submit runs this file by its path: what lies beside it must not hide other modules
    sys.path[:] = [each for each in sys.path if Path(each or ".").resolve() != Path(__file__).resolve().parent]

from rangelog_jobs.command import main

if __name__ == "__main__":
    sys.exit(main())
