"""Fills a new topic of Kafka by Spark, and prints what its partitions have as JSON: [partition, records, sum of times in ms].

python kafka_filler.py SERVERS TOPIC PARTITIONS COUNT JARS

Record `number` goes to partition number % PARTITIONS, in order.
"""

from __future__ import annotations

import json
import sys

from pyspark.sql.functions import expr

from rangelog.spark import create_session

COPIES = 3
_TWICE = "array(named_struct('key', 'twice', 'value', X'01'), named_struct('key', 'twice', 'value', X'02'))"
_NUMBER = "array(named_struct('key', 'number', 'value', binary(string(id))))"
COLUMNS = (
    "key",
    "CASE WHEN id % 97 = 0 THEN NULL ELSE binary(concat('value ', id)) END AS value",
    f"concat({_NUMBER}, CASE WHEN id % 4 = 0 THEN {_TWICE} ELSE array() END) AS headers",
    "partition",
)


def main() -> None:
    """Make the topic, fill it, read it."""
    servers, topic, partitions, count, jars = sys.argv[1:]
    session = create_session("filling", spark_jars=jars, spark_driver_memory="512m")
    java = session._jvm
    settings = java.java.util.HashMap()
    settings.put("bootstrap.servers", servers)
    admin = java.org.apache.kafka.clients.admin.Admin.create(settings)
    made = java.org.apache.kafka.clients.admin.NewTopic(topic, int(partitions), COPIES)
    admin.createTopics(java.java.util.List.of(made)).all().get()
    admin.close()
    rows = (
        session.range(int(count))
        .coalesce(1)
        .selectExpr(
            "id",
            f"int(id % {partitions}) AS partition",
            "CASE WHEN id % 5 = 0 THEN NULL ELSE binary(concat('key-', id % 7)) END AS key",
        )
    )
    options = {"kafka.bootstrap.servers": servers, "includeHeaders": "true"}
    rows.selectExpr(*COLUMNS).write.format("kafka").options(**options, topic=topic).save()
    read = session.read.format("kafka").options(**options, subscribe=topic).load()
    by_partition = read.selectExpr("partition", "unix_millis(timestamp) AS ms").groupBy("partition")
    totals = by_partition.agg(expr("count(1)"), expr("sum(ms)")).orderBy("partition").collect()
    sys.stdout.write(json.dumps([list(each) for each in totals]) + "\n")
    session.stop()


if __name__ == "__main__":
    main()
