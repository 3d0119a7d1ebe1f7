"""pdctl namespace and topic, against the real handlers and state machine over real gRPC."""

from __future__ import annotations

import json

import pytest
import yaml

from rangelog_proto.v1 import topic_pb2
from tests.unit.pdctl.in_process_pd import END, InProcessPd, PdctlOverGrpc, digits, key_ranges


def test_namespaces(run: PdctlOverGrpc, topics: InProcessPd) -> None:
    """Created, listed by prefix, deleted when they are empty."""
    assert run.json("namespace", "list") == []
    created = run.json("namespace", "create", "airports")
    assert created["name"] == "airports" and created["created_ms"] > 0
    assert run.json("namespace", "create", "planes")["name"] == "planes"
    assert [each["name"] for each in run.json("namespace", "list")] == ["airports", "planes"]
    assert run.json("namespace", "list", "--prefix", "pl") == run.json("namespace", "list")[1:]
    assert "exists already" in run.fails(5, "namespace", "create", "airports")
    assert "bad namespace name" in run.fails(2, "namespace", "create", "a/b")
    run.json("topic", "create", "airports/gates")
    assert "delete them first" in run.fails(5, "namespace", "delete", "airports", "--yes")
    assert run.json("namespace", "delete", "planes", "--yes") == {"namespace": "planes", "deleted": True}
    assert "pdctl namespace list" in run.fails(3, "namespace", "delete", "planes", "--yes")


def test_a_topic_is_created_with_everything_that_was_asked(run: PdctlOverGrpc, topics: InProcessPd) -> None:
    """Each option sets the field that it names; the JSON keys are the documented ones."""
    for name in ("rs4", "rs5"):
        topics.register(name)
    created = run.json(
        "topic", "create", "clicks", "--shards", "4", "--tag", "team=air", "--tag", "tier=",
        "--scaling", "events:1000,factor=3,min=2,max=9", "--retention", "7d", "--retention-size", "1GiB",
        "--retention-consumed",
        "--replicas", "5", "--acks", "3", "--range-size", "1MB", "--range-age", "1h", "--hot-retention", "never",
        "--durability", "memory", "--compression", "zstd", "--not-tiered",
    )  # fmt: skip
    assert created["name"] == "default/clicks"
    assert (created["state"], created["shard_count"], created["map_version"]) == ("active", 4, 1)
    assert created["tags"] == {"team": "air", "tier": ""}
    assert created["state_since_ms"] == created["created_ms"] > 0
    assert created["config"] == {
        "stream": {
            "replicas": 5,
            "acks": 3,
            "durability": "memory",
            "compression": "zstd",
            "range_size_bytes_max": 1_000_000,
            "range_age_ms_max": 3_600_000,
            "hot_retention_ms": -1,
            "tiered": False,
            "zones_min": 0,
            "server_labels": [],
        },
        "scaling": {"kind": "events", "target_per_s": 1_000, "factor": 3, "shards_min": 2, "shards_max": 9},
        "retention": {"age_ms": 7 * 86_400_000, "shard_size_bytes": 1 << 30, "consumed": True},
    }
    shown = run.json("topic", "show", "default/clicks")
    assert {key: shown[key] for key in created} == created
    assert (shown["shards"], shown["scale"]) == ({"current": 4, "ever": 4, "owners": {}, "without_owner": 4}, None)
    assert run.json("namespace", "list")[0]["name"] == "default", "the first topic makes it"
    assert run.json("topic", "create", "other")["config"]["scaling"]["kind"] == "fixed"


def test_key_ranges_of_a_new_topic(run: PdctlOverGrpc, topics: InProcessPd) -> None:
    """Leading digits are enough; what does not cover the key space is refused with what is missing."""
    run.json("topic", "create", "t", "--key-range", "c..end", "--key-range", "0..4", "--key-range", f"4..{digits('c')}")
    shards = run.json("shard", "list", "t")
    assert key_ranges(shards) == [
        (digits("0"), digits("4")),
        (digits("4"), digits("c")),
        (digits("c"), END),
    ]
    assert "no key range covers" in run.fails(2, "topic", "create", "u", "--key-range", "0..4")
    assert "covers keys of another" in run.fails(
        2, "topic", "create", "u", "--key-range", "0..9", "--key-range", "8..end"
    )
    table = run("shard", "list", "t").stdout.splitlines()
    assert [line.split()[1] for line in table[1:]] == ["0..4", "4..c", "c..end"], "what is shown can be typed again"


def test_topics_are_listed_by_namespace_prefix_and_tags(run: PdctlOverGrpc, topics: InProcessPd) -> None:
    """All pages; tags are all of those that are given."""
    run.json("namespace", "create", "a")
    run.json("topic", "create", "zebra", "--tag", "kind=animal", "--tag", "size=big")
    for number in range(3):
        run.json("topic", "create", f"a/t{number}", "--tag", "kind=test")
    run.json("topic", "create", "a/u", "--tag", "kind=animal")

    def names(*options: str) -> list[str]:
        return [each["name"] for each in run.json("topic", "list", *options)]

    assert names() == ["a/t0", "a/t1", "a/t2", "a/u", "default/zebra"]
    assert names("--namespace", "a", "--prefix", "t") == ["a/t0", "a/t1", "a/t2"]
    assert names("--tag", "kind=animal") == ["a/u", "default/zebra"]
    assert names("--tag", "kind=animal", "--tag", "size=big") == ["default/zebra"]
    assert names("--namespace", "none") == []
    assert run("topic", "list", "--namespace", "none").stderr == "there are no topics\n"


def test_many_topics_are_paged_through(run: PdctlOverGrpc, topics: InProcessPd) -> None:
    """A listing longer than a page is printed whole."""
    run.json("topic", "create", "t0")
    for number in range(1, 503):
        request = topic_pb2.CreateTopicRequest(namespace="default", name=f"t{number}")
        topics.do("CreateTopic", request, topic_pb2.CreateTopicResponse)
    assert len(run.json("topic", "list")) == 503
    pages = [request for name, request in topics.requests if name == "ListTopics"]
    assert len(pages) == 2


def test_tables_and_yaml_of_a_topic(run: PdctlOverGrpc, topics: InProcessPd) -> None:
    """The table has a line per field; YAML is the JSON's value."""
    topics.broker("b1")
    run.json("topic", "create", "t", "--shards", "2", "--scaling", "bytes:8MiB,min=2", "--tag", "team=air")
    topics.reconcile()
    table = run("topic", "list").stdout.splitlines()
    assert table[0].split() == ["NAME", "STATE", "SHARDS", "SCALING", "RETENTION", "TAGS", "CREATED"]
    assert "default/t  active  2" in table[1] and "bytes: 8.0 MiB/s, factor 2, 2 to 3000 shards" in table[1]
    shown = run("topic", "show", "t").stdout
    for line in ("OWNERS          b1 2", "SCALE           -", "TAGS            team=air", "RETENTION       for ever"):
        assert line in shown
    assert yaml.safe_load(run("topic", "show", "t", "-o", "yaml").stdout) == run.json("topic", "show", "t")


def test_an_update_changes_what_is_named_only(run: PdctlOverGrpc, topics: InProcessPd) -> None:
    """Half of a retention leaves the other half, and a policy is replaced as a whole."""
    before = run.json("topic", "create", "t", "--retention", "1d", "--retention-size", "1GiB", "--compression", "zstd")
    after = run.json("topic", "update", "t", "--retention", "2d", "--hot-retention", "1h")
    expected = json.loads(json.dumps(before["config"]))
    expected["retention"]["age_ms"] = 2 * 86_400_000
    expected["stream"]["hot_retention_ms"] = 3_600_000
    assert after["config"] == expected
    after = run.json("topic", "update", "t", "--retention-size", "0", "--scaling", "events:5")
    assert after["config"]["retention"] == {"age_ms": 2 * 86_400_000, "shard_size_bytes": 0, "consumed": False}
    assert after["config"]["scaling"] == {
        "kind": "events",
        "target_per_s": 5,
        "factor": 2,
        "shards_min": 1,
        "shards_max": 3_000,
    }
    assert run.json("topic", "update", "t", "--scaling", "fixed")["config"]["scaling"]["kind"] == "fixed"
    assert "pdctl topic list" in run.fails(3, "topic", "update", "none", "--retention", "1d")


def test_half_a_retention_is_not_written_over_a_later_one(
    run: PdctlOverGrpc, topics: InProcessPd, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other half was read before: a change in between is not lost, and the user is asked to try again."""
    run.json("topic", "create", "t")
    request = topic_pb2.UpdateTopicRequest(
        topic=topic_pb2.TopicReference(namespace="default", name="t"),
        config=topic_pb2.TopicConfig(retention=topic_pb2.Retention(shard_size_bytes=5)),
        fields=["retention"],
    )

    def change_once(name: str) -> None:
        if name == "UpdateTopic":
            monkeypatch.setattr(topics, "before", lambda name: None)
            topics.do("UpdateTopic", request, topic_pb2.UpdateTopicResponse)

    monkeypatch.setattr(topics, "before", change_once)
    assert "changed meanwhile" in run.fails(5, "topic", "update", "t", "--retention", "1d")
    assert run.json("topic", "show", "t")["config"]["retention"] == {
        "age_ms": 0,
        "shard_size_bytes": 5,
        "consumed": False,
    }


def test_tags(run: PdctlOverGrpc, topics: InProcessPd) -> None:
    """Set and removed in one command."""
    run.json("topic", "create", "t", "--tag", "a=1", "--tag", "b=2")
    assert run.json("topic", "tag", "t", "c=3", "a=4=5", "--remove", "b", "--remove", "x")["tags"] == {
        "a": "4=5",
        "c": "3",
    }


def test_a_topic_is_sealed_then_deleted(run: PdctlOverGrpc, topics: InProcessPd) -> None:
    """A topic that is not sealed is deleted with --force only; the states and what is left are seen meanwhile."""
    made = run.json("topic", "create", "t", "--shards", "2")
    said = run.fails(5, "topic", "delete", "t", "--yes")
    assert "it is active" in said and "--force" in said and "pdctl topic seal" in said
    assert run.json("topic", "seal", "t", "--yes", "--no-wait")["state"] == "sealing"
    (task,) = run.json("task", "list")
    assert (task["kind"], task["topic"], task["state"], task["shards_left"]) == (
        "seal-topic",
        "default/t",
        "sealing",
        2,
    )
    assert task["age_ms"] >= 0 and task["stream"] == "" and task["server"] == ""
    line = run("task", "list").stdout.splitlines()[1].split()
    assert line[:6] == ["seal-topic", "default/t", "-", "-", "sealing", "2"] and line[7].endswith("s")
    for shard_id in range(2):
        request = topic_pb2.EndShardRequest(topic_id=made["topic_id"], end=topics.shard_end(made["topic_id"], shard_id))
        topics.do("EndShard", request, topic_pb2.EndShardResponse)
    assert run.json("topic", "show", "t")["state"] == "sealed"
    assert run.json("task", "list") == []
    assert "it is sealed" in run.fails(5, "topic", "seal", "t", "--yes")
    assert run("shard", "list", "t").stderr.startswith("topic default/t has no current shard: see `pdctl shard list")
    assert run.json("topic", "cut", "t") == {"cut": 1, "topic_id": made["topic_id"], "offsets": {"0": 0, "1": 0}}
    assert run.json("topic", "delete", "t", "--yes") == {"topic": "default/t", "deleted": True}
    run.json("topic", "create", "t")
    assert run("topic", "delete", "t", "--force", "--yes").stdout == "default/t is deleted\n"
    assert "pdctl topic list" in run.fails(3, "topic", "delete", "t", "--force", "--yes")


def test_a_deletion_in_parts_is_not_said_to_be_over(
    run: PdctlOverGrpc, topics: InProcessPd, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rest is done by the placement driver, and is seen among the tasks."""
    from rangelog_pd.state import topic_work

    monkeypatch.setattr(topic_work, "STREAMS_PER_ENTRY", 1)
    run.json("topic", "create", "t", "--shards", "3")
    result = run("topic", "delete", "t", "--force", "--yes", "--no-wait")
    assert result.stdout == "default/t is being deleted: see `pdctl task list`\n"
    (task,) = run.json("task", "list")
    assert (task["kind"], task["state"], task["shards_left"]) == ("delete-topic", "deleting", 2)
    assert run("task", "list", "--failing").stderr == "there are no tasks\n"


def test_unknown_topics(run: PdctlOverGrpc, topics: InProcessPd) -> None:
    """Each verb on a topic that is not there is exit code 3 and one line."""
    for verb in (
        ("topic", "show", "x"),
        ("topic", "tag", "x", "a=b"),
        ("topic", "seal", "x", "--yes"),
        ("topic", "cut", "x"),
        ("topic", "cut", "x", "--at", "head"),
        ("topic", "truncate", "x", "0=0", "--yes"),
        ("topic", "truncate", "x", "--to-head", "--yes"),
        ("topic", "cancel-scale", "x"),
        ("shard", "list", "x"),
        ("shard", "split", "x", "0"),
        ("shard", "merge", "x", "0", "1"),
    ):
        assert "default/x" in run.fails(3, *verb)
    assert "no namespace 'a': `pdctl namespace list` shows what there is" in run.fails(3, "topic", "create", "a/x")


def make_table(topics: InProcessPd, name: str) -> None:
    """A table in the namespace default."""
    config = topic_pb2.TopicConfig(kind=topic_pb2.TOPIC_KIND_TABLE)
    config.stream.tiered = False
    request = topic_pb2.CreateTopicRequest(namespace="default", name=name, config=config, shard_count=2)
    topics.do("CreateTopic", request, topic_pb2.CreateTopicResponse)


def test_tables_are_listed_when_they_are_asked_for(run: PdctlOverGrpc, topics: InProcessPd) -> None:
    """Topics alone by default; with --all both, each with its kind; what is shown has it always."""
    assert run.json("topic", "create", "flights")["kind"] == "records"
    make_table(topics, "counts")
    assert [each["name"] for each in run.json("topic", "list")] == ["default/flights"]
    assert {each["name"]: each["kind"] for each in run.json("topic", "list", "--all")} == {
        "default/counts": "table",
        "default/flights": "records",
    }
    lines = run("topic", "list", "--all").stdout.splitlines()
    assert lines[0].split()[:3] == ["NAME", "KIND", "STATE"] and lines[1].split()[:2] == ["default/counts", "table"]
    assert run.json("topic", "show", "counts")["kind"] == "table"


def test_what_a_table_does_not_have_names_what_it_has(run: PdctlOverGrpc, topics: InProcessPd) -> None:
    """Each command of topics is refused with the command of tables, and the table stays as it is."""
    run.json("topic", "create", "flights")
    make_table(topics, "counts")
    before = run.json("topic", "show", "counts")
    for verb, instead in (
        (("topic", "produce", "counts", "x"), "pdctl table put"),
        (("topic", "consume", "counts"), "pdctl table scan"),
        (("topic", "cut", "counts"), "pdctl table scan"),
        (("topic", "truncate", "counts", "0=0", "1=0", "--yes"), "pdctl table delete"),
        (("topic", "truncate", "counts", "--to-head", "--yes"), "pdctl table delete"),
        (("topic", "truncate", "counts", "--to-tail", "--yes"), "pdctl table delete"),
        (("topic", "seal", "counts", "--yes"), "pdctl table drop"),
        (("topic", "delete", "counts", "--yes"), "pdctl table drop"),
        (("topic", "delete", "counts", "--force", "--yes"), "pdctl table drop"),
        (("shard", "split", "counts", "0"), "pdctl table show"),
        (("shard", "merge", "counts", "0", "1"), "pdctl table show"),
    ):
        said = run.fails(5, *verb)
        assert "default/counts" in said and "is a table" in said and instead in said
    assert run.json("topic", "show", "counts") == before


def test_a_cluster_that_does_not_know_topics_yet(run: PdctlOverGrpc, member: InProcessPd) -> None:
    """Before all members are upgraded the line says so."""
    said = run.fails(4, "--timeout", "3", "topic", "create", "t")
    assert "cluster version 4" in said and "pdctl cluster status" in said
