"""The figures that a placement driver exports, and whether it is ready. Every member exports its own work and its view of the
group; what is said of the cluster as a whole comes from the leader alone, so that nothing is counted twice.

What holds: a scrape reads counters and the lengths of tables and indexes, and looks at the registered servers and brokers; it
never reads a table of streams or ranges. Ranges with too few copies are counted as `pdctl cluster status` counts them: up to
10,000 are looked at, and only while something lacks copies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from rangelog_pd.consensus.interface import ConsensusStatus
from rangelog_pd.counts import DriverCounts
from rangelog_pd.driver import Driver
from rangelog_pd.handlers.tier import tier_checks
from rangelog_pd.reconcile.health import server_word
from rangelog_pd.state.store import State
from rangelog_pd.state.tier_stores import tier_url
from rangelog_server_common.grpc_server import GrpcServer
from rangelog_server_common.metrics.call_tally import CALL_FIGURES
from rangelog_server_common.metrics.figures import Figure, FigureGroup, counter, gauge, histogram
from rangelog_server_common.quotas.figures import QUOTA_FIGURES

BEHIND_MAX = 1_000
"""Entries of the log that a ready member may still have to apply."""


@dataclass(slots=True)
class ClusterFacts:
    """The leader's figures of the cluster."""

    servers: dict[str, str] = field(default_factory=dict)  # the health of each, in a word
    silent_s: dict[str, float] = field(default_factory=dict)  # since the last heartbeat
    brokers: dict[str, float] = field(default_factory=dict)
    tables: dict[str, float] = field(default_factory=dict)
    short: float = 0
    blocked: float = 0
    lost: float = 0
    tasks: dict[str, float] = field(default_factory=dict)
    failing: float = 0
    tier_failing: float | None = None
    snapshot_age_s: float | None = None


@dataclass(slots=True)
class PdFacts:
    """One look at a placement driver. `cluster`: None on a follower."""

    status: ConsensusStatus
    counts: DriverCounts
    ended_tasks: dict[tuple[str, str], int]
    cluster: ClusterFacts | None = None


def look(driver: Driver) -> PdFacts:
    """Return what all figures of one scrape are read from."""
    status = driver.consensus.status()
    facts = PdFacts(status, driver.counts, driver.tasks.ended_counts)
    if status.leader == status.name and status.has_majority:
        with driver.state() as state:
            facts.cluster = _cluster_facts(driver, state)
    return facts


def _cluster_facts(driver: Driver, state: State) -> ClusterFacts:
    now_ms, wall_ms = driver.now_ms(), driver.wall_ms()
    facts = ClusterFacts()
    for name, registered in state.servers.items():
        health = driver.view.shown_health(state, name, registered.server.incarnation, now_ms)
        facts.servers[name] = server_word(health)
        facts.silent_s[name] = max(0.0, driver.view.silent_ms(name, now_ms)) / 1000
    lost = sum(broker.lost for broker in state.owners.brokers.values())
    facts.brokers = {"alive": len(state.owners.brokers) - lost, "lost": lost}
    facts.tables = {
        "streams": len(state.streams),
        "ranges": len(state.ranges),
        "open_ranges": state.hosted.open_count,
        "objects": state.range_objects.committed_count,
        "uploads": len(state.range_objects.prepared),
        "topics": len(state.topics.topics),
        "shards": len(state.topics.shards),
        "unowned": len(state.owners.unowned),
    }
    repairs = driver.view.upkeep.repairs
    driver.shortfalls.follow(state, wall_ms)
    facts.short = driver.shortfalls.count(state, driver.view, now_ms, wall_ms).count
    facts.blocked, facts.lost = len(repairs.blocked) - len(repairs.lost), len(repairs.lost)
    facts.tasks = dict(driver.tasks.current_counts)
    facts.failing = driver.tasks.failing_count + driver.view.upkeep.held.untiered_count()
    if tier_url(state, driver.settings.tier_url):
        facts.tier_failing = sum(bool(each.error) for each in tier_checks(driver, state))
        written_ms = driver.tier_snapshots.written_ms
        if written_ms and driver.tier_snapshots.interval_ms:
            current = driver.machine.applied.changing <= driver.tier_snapshots.written_index
            facts.snapshot_age_s = 0.0 if current else max(0, driver.time_ms() - written_ms) / 1000
    return facts


def _health_counts(facts: PdFacts) -> dict[str, float] | None:
    if facts.cluster is None:
        return None
    words = list(facts.cluster.servers.values())
    return {word: words.count(word) for word in ("alive", "suspect", "dead")}


def _table(name: str, kind: str, meaning: str) -> Figure[PdFacts]:
    return gauge(name, meaning, lambda f: f.cluster.tables[kind] if f.cluster else None)


_OWN: Sequence[Figure[PdFacts]] = (
    gauge("rangelog_pd_is_leader", "Whether this member leads: 1 or 0.", lambda f: f.status.leader == f.status.name),
    gauge("rangelog_pd_knows_leader", "Whether this member knows who leads: 1 or 0.",
          lambda f: f.status.leader is not None),
    gauge("rangelog_pd_has_majority", "Whether this member knows a leader and is connected to a majority: 1 or 0.",
          lambda f: f.status.has_majority),
    gauge("rangelog_pd_term", "The term of Raft.", lambda f: f.status.term),
    gauge("rangelog_pd_applied_index", "The last entry of the log that is applied to the state.",
          lambda f: f.status.applied_index),
    gauge("rangelog_pd_last_index", "The last entry of the log.", lambda f: f.status.last_index),
    gauge("rangelog_pd_members", "Members of the group, learners included.", lambda f: len(f.status.members)),
    gauge("rangelog_pd_members_reachable", "Members that this one is connected to, itself included.",
          lambda f: sum(each.reachable for each in f.status.members)),
    counter("rangelog_pd_leaderships_total", "How often this member began to lead.", lambda f: f.counts.leading_count),
    counter("rangelog_pd_commands_total", "Commands that this member proposed, by action and result.",
            lambda f: {(action, code): count for action, codes in f.counts.commands.items()
                       for code, count in codes.items()}, "action", "code"),
    histogram("rangelog_pd_command_duration_seconds", "Time from a command's proposal to its result.",
              lambda f: f.counts.command_durations),
    histogram("rangelog_pd_round_duration_seconds", "Duration of the leader's rounds of reconciling.",
              lambda f: f.counts.round_durations),
    counter("rangelog_pd_tasks_ended_total", "Tasks of range servers that ended, by kind and how.",
            lambda f: f.ended_tasks, "kind", "result"),
)  # fmt: skip

_CLUSTER: Sequence[Figure[PdFacts]] = (
    gauge("rangelog_pd_servers", "Registered range servers, by health; an avoided one is suspect.",
          _health_counts, "health"),
    gauge("rangelog_pd_server_up", "Whether a range server is alive and not avoided: 1 or 0.",
          lambda f: {name: word == "alive" for name, word in f.cluster.servers.items()} if f.cluster else None, "server"),
    gauge("rangelog_pd_server_silence_seconds", "Time since the last heartbeat of a range server.",
          lambda f: f.cluster.silent_s if f.cluster else None, "server"),
    gauge("rangelog_pd_brokers", "Registered brokers: alive, or lost.",
          lambda f: f.cluster.brokers if f.cluster else None, "state"),
    _table("rangelog_pd_streams", "streams", "Streams, those of topics included."),
    _table("rangelog_pd_ranges", "ranges", "Ranges of all streams."),
    _table("rangelog_pd_open_ranges", "open_ranges", "Ranges that are open."),
    _table("rangelog_pd_objects", "objects", "Objects in the tier."),
    _table("rangelog_pd_uploads_prepared", "uploads", "Uploads that have begun and are not committed."),
    _table("rangelog_pd_topics", "topics", "Topics and tables."),
    _table("rangelog_pd_shards", "shards", "Shards, ended ones included."),
    _table("rangelog_pd_unowned", "unowned", "Shards and journals that no broker owns."),
    gauge("rangelog_pd_under_replicated_ranges", "Ranges that depend on copies and have fewer than their stream wants.",
          lambda f: f.cluster.short if f.cluster else None),
    gauge("rangelog_pd_blocked_repairs", "Ranges with too few copies for which there is no server, or no copy, now.",
          lambda f: f.cluster.blocked if f.cluster else None),
    gauge("rangelog_pd_lost_ranges", "Ranges that no server can bring back.",
          lambda f: f.cluster.lost if f.cluster else None),
    gauge("rangelog_pd_tasks", "Tasks of range servers that are not done, by kind.",
          lambda f: f.cluster.tasks if f.cluster else None, "kind"),
    gauge("rangelog_pd_failing_tasks", "Tasks whose last attempt failed, and streams kept for want of an upload.",
          lambda f: f.cluster.failing if f.cluster else None),
    gauge("rangelog_pd_tier_failing", "Processes whose last check of the tier failed.",
          lambda f: f.cluster.tier_failing if f.cluster else None),
    gauge("rangelog_pd_tier_snapshot_age_seconds", "Age of the last snapshot in the tier; 0 while nothing changed since.",
          lambda f: f.cluster.snapshot_age_s if f.cluster else None),
)  # fmt: skip

FIGURES: Sequence[Figure[PdFacts]] = (*_OWN, *_CLUSTER)


def parts(driver: Driver, server: GrpcServer) -> list[FigureGroup[Any]]:
    """Return all that a placement driver exports, for an endpoint."""
    return [
        FigureGroup(lambda: look(driver), FIGURES),
        FigureGroup(lambda: server.calls, CALL_FIGURES),
        FigureGroup(lambda: driver.quotas, QUOTA_FIGURES),
    ]


def problems(status: ConsensusStatus) -> list[str]:
    """Return why a member is not ready; nothing: it knows a leader and has applied the log."""
    found = []
    if status.leader is None:
        found.append("no leader is known: a majority of the placement drivers has to run and reach each other")
    elif not status.has_majority:
        found.append("this member is not connected to a majority of its group")
    behind = status.last_index - status.applied_index
    if behind > BEHIND_MAX:
        found.append(f"{behind} entries of the log are not applied yet")
    return found
