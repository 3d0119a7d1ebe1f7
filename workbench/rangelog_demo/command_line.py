"""The command `rangelog demo`, declared apart from what does the work, so that its help is quick."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.option(
    "--report", type=click.Path(path_type=Path, dir_okay=False), default=Path("build/demo/report.html"),
    show_default=True, help="The page to write.",
)  # fmt: skip
@click.option("--keep", is_flag=True, help="Keep the cluster's data and logs, and print their path.")
@click.option(
    "--flights", "flight_count", type=click.IntRange(40_000, 336_776), help="Only the first so many.  [default: all]"
)
@click.option("--no-spark", is_flag=True, help="Leave out Spark; the last line then says spark_matches=skipped.")
@click.option(
    "--healing", is_flag=True, help="Another demo: a cluster that loses servers, disks, a zone and everything."
)
def demo(report: Path, keep: bool, flight_count: int | None, no_spark: bool, healing: bool) -> int:
    """Append 336,776 real flights through three kills, tier them to S3, read them back by SDK, Spark and pyarrow.

    Starts 3 placement drivers, 4 range servers, 2 brokers and an S3 server on loopback, and kills a range server, the
    placement driver that leads, and the writer on the way. Then 8 producers send the same flights to a topic that is scaled
    from 1 shard to 4, and 3 members of a group count them in a table, while brokers and members are killed. Exit code 0
    only if no flight was lost, repeated, moved or miscounted.

    \b
    Examples:
      rangelog demo
      rangelog demo --flights 50000 --no-spark --keep
      rangelog demo --healing          the text of its report goes beside the page, as healing.txt
    """
    if healing:
        from rangelog_demo.healing.command import run_healing

        if flight_count is not None or no_spark:
            raise click.UsageError("--healing has no flights and no Spark: leave out --flights and --no-spark")
        return run_healing(report.with_name("healing.txt"), keep=keep)
    from rangelog_demo.command import run_demo

    return run_demo(report, keep=keep, flight_count=flight_count, with_spark=not no_spark)
