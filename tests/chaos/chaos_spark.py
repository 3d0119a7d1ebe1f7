"""Faults in the midst of Spark's queries: executors, the driver, and the servers that the queries read from and write to.

Each strikes at a drawn moment of queries that are at work, and has healed when both have committed again. That the copies are
whole is for the end to tell.
They are not among the kinds that a run has by itself: Spark takes as much of a small machine as all the rest.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from tests.chaos.chaos_cluster import BROKERS
from tests.chaos.chaos_faults import Fault, Restarted
from tests.chaos.chaos_spark_load import COPY, EXECUTORS, GOES_ON_WITHIN_S, STREAM
from tests.support.waiting import eventually

MOMENT_S = (0.0, 3.0)
"""Beside the pause of a run: about the time of a micro-batch."""
HEALS_WITHIN_S = 240.0
"""A driver starts slowly where the cluster and its load take half of a small machine."""


class InMidQuery(Fault):
    """A fault while Spark copies."""

    needs: ClassVar = frozenset({"spark"})
    side = "all"
    by_default = False
    heals_within_s = HEALS_WITHIN_S

    def inject(self) -> str:
        """See Fault."""
        self.system.spark.begin()
        self.interrupts.wait(self.dice.uniform(*MOMENT_S))
        return self.strike()

    @abstractmethod
    def strike(self) -> str:
        """As `inject`, in the midst of the queries."""


class SparkExecutorKilled(InMidQuery):
    """`kill -9` of an executor: its tasks run again elsewhere, and another executor comes."""

    name = "spark-executor-killed"
    hold_s = (0.0, 1.0)

    def strike(self) -> str:
        """See InMidQuery."""
        spark = self.system.spark
        eventually(lambda: len(spark.executors()) >= EXECUTORS, "executors of spark are missing", GOES_ON_WITHIN_S)
        victim = self.dice.choice(spark.executors())
        spark.kill_executor(victim)
        return f"process {victim}"

    def heal(self) -> None:
        """Nothing is to be undone: Spark starts another one."""


class SparkDriverKilled(InMidQuery):
    """`kill -9` of the driver, without its executors; another driver goes on from the checkpoints."""

    name = "spark-driver-killed"
    hold_s = (0.0, 1.0)

    def strike(self) -> str:
        """See InMidQuery."""
        return self.system.spark.kill_driver()

    def heal(self) -> None:
        """See Fault."""
        self.system.spark.restart_driver()


class SparkBrokerKilled(InMidQuery, Restarted):
    """`kill -9` of a broker that owns shards which are read or written, or coordinates the transactions of the copy."""

    name = "spark-broker-killed"

    def strike(self) -> str:
        """See InMidQuery."""
        victim = self.dice.choice(BROKERS)
        self.kill(victim)
        return victim


class SparkRangeServerKilled(InMidQuery, Restarted):
    """`kill -9` of a range server from which the query reads, or to which it writes."""

    name = "spark-range-server-killed"

    def strike(self) -> str:
        """See InMidQuery."""
        stream = self.dice.choice((STREAM, COPY))
        victim = self.a_range_server(stream)
        self.kill(victim)
        return f"{victim}, of {stream}"
