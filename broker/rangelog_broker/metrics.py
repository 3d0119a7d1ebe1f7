"""What a broker exports, and whether it is ready. A scrape reads counters and lengths only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rangelog_broker.door import DoorContext, OpenDoor
from rangelog_broker.hosting.host import Host
from rangelog_broker.hosting.journals import OwnedJournals
from rangelog_broker.hosting.owned import OwnedShards
from rangelog_broker.hosting.registration import Registration
from rangelog_broker.serving.connection import ProducerPort
from rangelog_server_common.metrics.call_tally import CALL_FIGURES, CallTally
from rangelog_server_common.metrics.figures import Figure, FigureGroup, counter, gauge, histogram
from rangelog_server_common.quotas.figures import QUOTA_FIGURES

SILENCE_S_MAX = 10.0
"""A broker that no placement driver has answered for so long counts as lost, and is not ready."""


@dataclass(frozen=True, slots=True)
class BrokerFacts:
    """The parts of one broker that are looked at."""

    port: ProducerPort
    desk: DoorContext
    owned: OwnedShards
    journals: OwnedJournals
    host: Host
    registration: Registration
    doors: Mapping[str, OpenDoor] = field(default_factory=dict)

    @property
    def silence_s(self) -> float | None:
        """Time since a placement driver answered last; None: never yet."""
        answered_s = self.registration.answered_s
        return None if answered_s is None else self.port.loop.time() - answered_s


FIGURES: Sequence[Figure[BrokerFacts]] = (
    counter("rangelog_broker_acked_batches_total", "Batches of producers that were answered with an offset.",
            lambda f: f.port.counts.acked_batches),
    counter("rangelog_broker_received_records_total", "Records in the batches of producers, whatever became of them.",
            lambda f: f.port.counts.received_records),
    counter("rangelog_broker_received_bytes_total", "Bytes of the batches of producers, whatever became of them.",
            lambda f: f.port.counts.received_bytes),
    counter("rangelog_broker_refused_requests_total", "Requests of producers that were answered with an error.",
            lambda f: f.port.counts.refused, "code"),
    histogram("rangelog_broker_produce_duration_seconds", "Time from a request of a producer to its answer.",
              lambda f: f.port.counts.durations),
    gauge("rangelog_broker_connections", "Connections of producers.", lambda f: len(f.port.connections)),
    counter("rangelog_broker_fetches_total", "Fetches through doors that were answered.",
            lambda f: f.desk.fetches.counts.fetches),
    counter("rangelog_broker_fetches_from_memory_total", "Of these, from the last batches of a shard that is owned here.",
            lambda f: f.desk.fetches.counts.from_memory),
    counter("rangelog_broker_fetched_bytes_total", "Bytes of batches in answers to fetches.",
            lambda f: f.desk.fetches.counts.sent_bytes),
    gauge("rangelog_broker_fetches_waiting", "Fetches that wait for the next ack of a shard that is owned here.",
          lambda f: f.desk.fetches.waiting_count),
    gauge("rangelog_broker_fetch_memory_bytes", "The last batches of shards that are kept for fetches.",
          lambda f: f.desk.fetches.memory.tail_bytes),
    gauge("rangelog_broker_fetched_unsent_bytes", "Batches in answers that are not sent, and read ahead.",
          lambda f: f.desk.fetches.memory.taken_bytes),
    counter("rangelog_broker_sent_records_total", "Records that doors have sent and that were acked.",
            lambda f: f.desk.sends.counts.acked_records),
    counter("rangelog_broker_unacked_records_total", "Records that doors answered before their acks, as was asked.",
            lambda f: f.desk.sends.counts.unacked_records),
    counter("rangelog_broker_refused_records_total", "Records of doors that were answered with an error.",
            lambda f: f.desk.sends.counts.refused_records),
    gauge("rangelog_broker_sending_topics", "Topics that doors send to, each with a producer.",
          lambda f: f.desk.sends.topic_count),
    counter("rangelog_broker_read_records_total", "Records in answers to reads of topics through doors.",
            lambda f: f.desk.reads.counts.read_records),
    counter("rangelog_broker_read_bytes_total", "Bytes of their keys and values.", lambda f: f.desk.reads.counts.read_bytes),
    gauge("rangelog_broker_follows", "Readers that follow topics through doors.", lambda f: f.desk.reads.follow_count),
    gauge("rangelog_broker_reads_waiting", "Reads that wait for a record behind the end.",
          lambda f: f.desk.reads.waiting_count),
    gauge("rangelog_broker_consumers", "Consumers of groups that joined through doors.",
          lambda f: f.desk.consumes.consumer_count),
    counter("rangelog_broker_dequeued_records_total", "Records in answers to consumers, repeated ones included.",
            lambda f: f.desk.consumes.counts.dequeued_records),
    counter("rangelog_broker_dequeued_bytes_total", "Bytes of their keys, values and headers.",
            lambda f: f.desk.consumes.counts.dequeued_bytes),
    counter("rangelog_broker_committed_dequeues_total", "Batches of consumers that were committed.",
            lambda f: f.desk.consumes.counts.commits),
    counter("rangelog_broker_expired_consumers_total", "Consumers that ended by the silence of their clients.",
            lambda f: f.desk.consumes.counts.expired),
    gauge("rangelog_broker_assigned", "Shards and journals that are assigned to this broker.",
          lambda f: f.host.assigned_count),
    gauge("rangelog_broker_open_shards", "Shards that this broker has open.", lambda f: f.owned.open_count),
    gauge("rangelog_broker_open_journals", "Journals that this broker has open, those of tables among them.",
          lambda f: f.journals.open_count),
    counter("rangelog_broker_openings_total", "Shards and journals that were opened: taken over, or opened again.",
            lambda f: f.host.opened_count),
    counter("rangelog_broker_opening_failures_total", "Openings that failed and are tried again, by error.",
            lambda f: f.host.failures, "code"),
    counter("rangelog_broker_heartbeats_total", "Heartbeats sent.", lambda f: f.registration.heartbeats),
    counter("rangelog_broker_heartbeat_failures_total", "Heartbeats that had no answer.",
            lambda f: f.registration.heartbeat_failures),
    gauge("rangelog_broker_heartbeat_silence_seconds", "Time since a placement driver answered last.",
          lambda f: f.silence_s),
)  # fmt: skip


def parts(facts: BrokerFacts, calls: CallTally) -> list[FigureGroup[Any]]:
    """Return all that a broker exports. `calls`: those of its gRPC services."""
    return [
        FigureGroup(lambda: facts, FIGURES),
        FigureGroup(lambda: calls, CALL_FIGURES),
        FigureGroup(lambda: facts.port.quotas, QUOTA_FIGURES),
    ]


def problems(facts: BrokerFacts) -> list[str]:
    """Return why a broker is not ready; nothing: it is registered, and a placement driver answers it, its doors are served."""
    silence_s = facts.silence_s
    if silence_s is None:
        return ["not registered yet: no placement driver has answered"]
    if silence_s > SILENCE_S_MAX:
        return [f"no placement driver has answered for {silence_s:.0f} s: others may own its shards now"]
    return [f"door {name}: {problem}" for name, door in facts.doors.items() for problem in door.problems()]
