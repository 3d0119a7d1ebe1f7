"""The demo's query in Spark SQL, in a process of its own: mean departure delay and cancelled share per carrier.

Reads the whole stream as one table, hot and tiered ranges in one plan, and writes the answer as JSON.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from rangelog_cli.local.lifeline import follow_parent

QUERY = """
SELECT f.carrier AS carrier,
       count(*) AS flights,
       avg(f.dep_delay) AS mean_delay,
       avg(CASE WHEN f.dep_time IS NULL THEN 1D ELSE 0D END) AS cancelled_share
FROM (SELECT from_json(CAST(value AS STRING), 'carrier STRING, dep_delay DOUBLE, dep_time INT') AS f FROM log)
GROUP BY f.carrier ORDER BY f.carrier
"""


def answer(pds: str, stream: str) -> dict[str, object]:
    """Start Spark, ask, stop Spark."""
    from rangelog.spark import create_session

    spark = create_session("rangelog-demo")
    try:
        table = spark.read.format("rangelog").option("pd", pds).option("stream", stream).load()
        table.createOrReplaceTempView("log")
        rows = [[row.carrier, row.flights, row.mean_delay, row.cancelled_share] for row in spark.sql(QUERY).collect()]
        return {"rows": rows}
    finally:
        spark.stop()


def main() -> None:
    """Entry point of the child process."""
    follow_parent()
    parser = argparse.ArgumentParser()
    parser.add_argument("--pds", required=True)
    parser.add_argument("--stream", required=True)
    parser.add_argument("--output", required=True, type=Path)
    options = parser.parse_args()
    options.output.write_text(json.dumps(answer(options.pds, options.stream)))


if __name__ == "__main__":
    main()
