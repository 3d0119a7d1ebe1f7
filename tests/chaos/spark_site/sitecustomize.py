"""On the path of the Python processes of the chaos run's Spark: they start fast, and tasks stage what they would hand over.

The chaos run's records are small, and a task's output above the bound of `rangelog.spark.sink` is rare then; a lower
bound makes tasks go either way.
"""

import runpy
import sys
from pathlib import Path

INLINE_BYTES_MAX = 64 * 1024

runpy.run_path(str(Path(__file__).resolve().parents[2] / "spark" / "warm" / "sitecustomize.py"))

if sys.orig_argv[1:3] == ["-m", "pyspark.daemon"]:
    import rangelog.spark.sink

    rangelog.spark.sink.INLINE_BYTES_MAX = INLINE_BYTES_MAX
