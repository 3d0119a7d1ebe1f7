"""The sections of the demo's report about the second scene."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rangelog_demo.plot import Mark, plot_svg
from rangelog_demo.report_parts import checks_table, kills_table, table, tile
from rangelog_demo.topic.outcome import TopicOutcome

if TYPE_CHECKING:
    from rangelog import ShardInfo

_KEYS = 1 << 128


def topic_sections(outcome: TopicOutcome, pace: str) -> Sequence[str]:
    """Plot, shards, members, checks and counts, each a section of HTML."""
    timeline = outcome.timeline
    tiles = [
        (f"{timeline.acked:,}", "acks seen by the producers"),
        (f"{timeline.acked / timeline.duration_s:,.0f}/s" if timeline.duration_s else "–", "mean, kills included"),
        (f"{timeline.latency_p50_ms:,.1f} ms", "median ack latency, pipelined"),
        (f"{timeline.latency_p99_ms:,.1f} ms", "99th percentile"),
        (f"{outcome.longest_gap_ms:,.0f} ms", "longest pause of a shard"),
    ]
    marks = [Mark(f"{scale.shards} shards", scale.committed_ns) for scale in outcome.scales]
    return [
        '<section class="tiles">' + "".join(tile(value, label) for value, label in tiles) + "</section>",
        (
            f"<section><h2>A topic: eight producers, from one shard to four, two kills of brokers</h2>"
            f"<p>{html.escape(pace)}</p><figure>{plot_svg(timeline, marks)}</figure>{kills_table(timeline)}"
            f"<p></p>{_scales(outcome)}<p></p>{_shards(outcome)}</section>"
        ),
        (
            "<section><h2>A group of three: its members are killed and replaced</h2>"
            f"<p>{outcome.deliveries.records:,} records were delivered, {outcome.deliveries.again:,} of them once more after a "
            f"kill, from the last committed position on; the table counts each once.</p>{_members(outcome)}</section>"
        ),
        f"<section><h2>What was checked of the topic</h2>{checks_table(outcome.checks())}</section>",
        (
            "<section><h2>Flights per carrier: the table and pandas</h2><p>The group's members keep the counts in a table; "
            f"pandas counts the CSV file.</p>{_counts(outcome)}</section>"
        ),
    ]


def _scales(outcome: TopicOutcome) -> str:
    rows = [
        (
            f"to {scale.shards} shards",
            f"{(scale.started_ns - outcome.timeline.start_ns) / 1e9:.2f} s",
            f"{(scale.committed_ns - scale.started_ns) / 1e6:,.0f} ms",
        )
        for scale in outcome.scales
    ]
    return table(("scaled", "at", "from the plan to the commit"), rows)


def _shards(outcome: TopicOutcome) -> str:
    records = outcome.comparison.shard_records
    rows = [(str(each.shard_id), _keys(each), _became(each), f"{records[each.shard_id]:,}") for each in outcome.shards]
    return table(("shard", "keys", "then", "records"), rows, numbers_from=3)


def _keys(shard: ShardInfo) -> str:
    return f"{shard.key_range.low / _KEYS:.0%} to {shard.key_range.high / _KEYS:.0%}"


def _became(shard: ShardInfo) -> str:
    return "current" if shard.is_current else "→ " + ", ".join(map(str, shard.successors))


def _members(outcome: TopicOutcome) -> str:
    rows = [(each.name, each.ended, f"{each.records:,}") for each in outcome.members]
    return table(("member", "in the end", "records delivered to it"), rows, numbers_from=2)


def _counts(outcome: TopicOutcome) -> str:
    carriers = sorted(outcome.counts.keys() | outcome.expected.keys())
    rows = [(each, f"{outcome.counts.get(each, 0):,}", f"{outcome.expected.get(each, 0):,}") for each in carriers]
    return table(("carrier", "table", "pandas"), rows, numbers_from=1)
