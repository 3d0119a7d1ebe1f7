"""The command `rangelog bench`, declared apart from what does the work, so that its help is quick."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.option("--quick", is_flag=True, help="One round of a second or two each: to see that it works.")
@click.option("--topics", is_flag=True, help="Measure topics, groups, journals, tables and transactions instead.")
@click.option(
    "--only",
    multiple=True,
    metavar="NAME",
    help="throughput, catchup, latency, open-loop, tail, failover, arrow, streams, end, pd-failover, takeover or cold; "
    "of topics producers, broker-latency, shards, broker-gap, split, rebalance, journal, table or transactions; may be "
    "repeated.  [default: all]",
)
@click.option("--json", "as_json", is_flag=True, help="One line of JSON for each figure instead of tables.")
@click.option("--against", metavar="PD,…", help="A cluster that runs already.  [default: one of its own, then removed]")
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("build/bench"),
    show_default=True,
    help="Where its own cluster keeps its data: on a real disk.",
)
@click.option("--tls", is_flag=True, help="Its own cluster has mutual TLS on all ports.")
@click.option("--seconds", type=click.FloatRange(min=0.2), help="How long each measurement takes.  [default: 10]")
@click.option("--rounds", type=click.IntRange(1, 20), help="Of which the median is shown.  [default: 3]")
@click.option("--plot", "plot_path", type=click.Path(path_type=Path, dir_okay=False), help="Draw a picture as well.")
@click.option(
    "--smoke",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Only compare, in a minute, with the ratios kept in FILE: fails when something became much slower.",
)
@click.option("--write-baseline", is_flag=True, help="With --smoke: write FILE instead of comparing with it.")
def bench(
    quick: bool,
    topics: bool,
    only: tuple[str, ...],
    as_json: bool,
    against: str | None,
    data_dir: Path,
    tls: bool,
    seconds: float | None,
    rounds: int | None,
    plot_path: Path | None,
    smoke: Path | None,
    write_baseline: bool,
) -> int:
    """Measure throughput, latency, reading and failover on this machine.

    All of it takes about 12 minutes: three rounds on a fresh cluster of 3 placement drivers and 3 range servers (4 where
    one is killed), 10 s each, records of 100 B, 1 KiB and 16 KiB, each flushed on two of three before its ack.

    \b
    Examples:
      rangelog bench --quick
      rangelog bench --only latency --only tail --json
      rangelog bench --topics
      rangelog bench --smoke baseline.json --write-baseline
      rangelog bench --against 10.0.0.1:7100,10.0.0.2:7100 --only throughput
    """
    from rangelog_bench.command import run_bench
    from rangelog_bench.smoke import run_smoke

    if smoke is not None:
        return run_smoke(smoke, data_dir, write=write_baseline)
    return run_bench(
        quick=quick, topics=topics, only=only, as_json=as_json, against=against, data_dir=data_dir, seconds=seconds,
        rounds=rounds, plot_path=plot_path, tls=tls,
    )  # fmt: skip
