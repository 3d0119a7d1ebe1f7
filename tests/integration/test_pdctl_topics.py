"""pdctl on topics, against a real cluster with a broker that the test plays: every verb, scales, cuts, a change of leader."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rangelog_cli.local.processes import Cluster
from rangelog_core.ids import shard_stream_name
from tests.integration.helpers.hand_broker import HandBroker
from tests.integration.helpers.pdctl_command import COMMAND, Pdctl
from tests.support.leader import leader_of
from tests.support.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]


@pytest.fixture
def pdctl(shared_cluster: Cluster) -> Pdctl:
    """pdctl on the cluster that the tests of this file share."""
    return Pdctl(shared_cluster)


@pytest.fixture
def broker(shared_cluster: Cluster) -> Iterator[HandBroker]:
    """A broker that owns every shard, and ends those that scale or seal."""
    with HandBroker(shared_cluster.connect_string, "b1") as made:
        yield made


def test_the_life_of_a_topic(pdctl: Pdctl, broker: HandBroker, tmp_path: Path) -> None:
    """Created, written, scaled, cut, truncated, sealed and deleted by pdctl alone, with keys that stay the same."""
    assert pdctl.json("namespace", "create", "airports")["name"] == "airports"
    made = pdctl.json("topic", "create", "airports/gates", "--shards", "2", "--tag", "team=ground", "--retention", "7d")
    topic_id = made["topic_id"]
    assert (made["name"], made["state"], made["shard_count"]) == ("airports/gates", "active", 2)
    assert [each["name"] for each in pdctl.json("topic", "list", "--tag", "team=ground")] == ["airports/gates"]
    eventually(lambda: owners(pdctl, "airports/gates") == {"b1"}, "the shards have no owner", 20)
    assert "b1" in [each["name"] for each in pdctl.json("broker", "list") if each["state"] == "alive"]
    owned = [each["number"] for each in pdctl.json("broker", "owned", "b1") if each["topic"] == "airports/gates"]
    assert owned == [0, 1]
    for shard_id, count in ((0, 5), (1, 3)):
        broker.write(topic_id, shard_id, [b"x"] * count)
    tail = pdctl.json("topic", "cut", "airports/gates")
    assert tail == {"cut": 1, "topic_id": topic_id, "offsets": {"0": 5, "1": 3}}, "open ranges too"

    done = pdctl.json("shard", "split", "airports/gates", "0")
    assert (done["state"], [each["shard_id"] for each in done["children"]]) == ("committed", [2, 3])
    done = pdctl.json("shard", "merge", "airports/gates", "3", "1")
    assert [each["predecessors"] for each in done["children"]] == [[1, 3]]
    ended = {each["shard_id"]: each["end_offset"] for each in pdctl.json("shard", "list", "airports/gates", "--all")}
    assert ended == {0: 5, 1: 3, 2: None, 3: 0, 4: None}
    broker.write(topic_id, 4, [b"y"] * 4)
    assert pdctl.json("topic", "cut", "airports/gates")["offsets"] == {"2": 0, "4": 4}

    file = tmp_path / "cut.json"
    file.write_text(json.dumps(tail))
    truncate(pdctl, "0=2", "1=1")
    assert pdctl.json("topic", "cut", "airports/gates", "--at", "head")["offsets"] == {"0": 2, "1": 1}
    truncate(pdctl, "--cut", str(file))
    assert pdctl.json("topic", "cut", "airports/gates", "--at", "head")["offsets"] == {"2": 0, "4": 0}, (
        "what is trimmed is passed over"
    )
    said = pdctl.fails(1, "topic", "truncate", "airports/gates", "2=0", "4=4", "--yes")
    assert "its sealed ranges end at 0" in said and "--to-tail" in said

    changed = pdctl.json("topic", "update", "airports/gates", "--retention-size", "1GiB", "--scaling", "events:100")
    assert changed["config"]["retention"] == {"age_ms": 7 * 86_400_000, "shard_size_bytes": 1 << 30, "consumed": False}
    assert pdctl.json("topic", "tag", "airports/gates", "tier=gold", "--remove", "team")["tags"] == {"tier": "gold"}
    assert "--force" in pdctl.fails(5, "topic", "delete", "airports/gates", "--yes")
    assert pdctl.json("topic", "seal", "airports/gates", "--yes")["state"] == "sealed"
    assert pdctl.json("topic", "cut", "airports/gates")["offsets"] == {"2": 0, "4": 4}
    truncate(pdctl, "--to-tail")
    stream = pdctl.json("stream", "show", shard_stream_name(topic_id, 4))
    assert (stream["trim_offset"], stream["sealed_end_offset"]) == (4, 4)
    assert pdctl.json("topic", "delete", "airports/gates", "--yes") == {"topic": "airports/gates", "deleted": True}
    assert pdctl.json("namespace", "delete", "airports", "--yes") == {"namespace": "airports", "deleted": True}


def truncate(pdctl: Pdctl, *cut: str) -> None:
    """Truncate; the command returns once it is done."""
    assert pdctl.json("topic", "truncate", "airports/gates", *cut, "--yes")["state"] in ("active", "sealed")


def owners(pdctl: Pdctl, name: str) -> set[Any]:
    """The living brokers that own shards of a topic, None among them where one has none."""
    found = [each["owner"] for each in pdctl.json("shard", "list", name)]
    return {each["broker"] if each is not None and each["alive"] else None for each in found}


def test_a_scale_that_waits_for_its_owner(pdctl: Pdctl, broker: HandBroker) -> None:
    """It is among the tasks with its age; a wait ends in time and names the owner; the plan can be dropped, or goes on."""
    broker.idle = True
    pdctl.ok("topic", "create", "waiting", "--shards", "2")
    eventually(lambda: owners(pdctl, "waiting") == {"b1"}, "the shards have no owner", 20)
    said = pdctl.fails(4, "shard", "merge", "waiting", "0", "1", "--wait", "1s")
    assert "shards 0 (owner b1), 1 (owner b1)" in said and "cancel-scale" in said

    def task() -> dict[str, Any]:
        (found,) = [each for each in pdctl.json("task", "list") if each["topic"] == "default/waiting"]
        return dict(found)

    assert (task()["kind"], task()["state"], task()["shards_left"]) == ("scale-topic", "scaling", 2)
    assert task()["age_ms"] >= 1_000
    assert pdctl.json("topic", "cancel-scale", "waiting")["state"] == "active"
    command = [*COMMAND, "shard", "split", "waiting", "1", "--parts", "3", "-o", "json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=pdctl.environment) as process:
        eventually(lambda: pdctl.json("topic", "show", "waiting")["state"] == "scaling", "it does not start", 30)
        assert process.poll() is None, "it waits"
        broker.idle = False
        output, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, b"")
    assert [each["shard_id"] for each in json.loads(output)["children"]] == [2, 3, 4]
    assert pdctl.json("topic", "delete", "waiting", "--force", "--yes")["deleted"]


def test_what_cannot_be_done_says_so(pdctl: Pdctl, broker: HandBroker) -> None:
    """Each is one line with its exit code: exists, unknown, bad names, scales and cuts that cannot be."""
    pdctl.ok("topic", "create", "there", "--shards", "2")
    assert "exists" in pdctl.fails(5, "topic", "create", "there")
    assert "pdctl namespace create" in pdctl.fails(3, "topic", "create", "nowhere/x")
    assert "bad topic name" in pdctl.fails(2, "topic", "create", "_x")
    for verb in (["topic", "show"], ["topic", "cut"], ["shard", "list"], ["topic", "cancel-scale"]):
        assert "pdctl topic list" in pdctl.fails(3, *verb, "nowhere")
    assert "pdctl broker list" in pdctl.fails(3, "broker", "owned", "nobody")
    pdctl.fails(3, "shard", "split", "there", "9")
    assert "cannot be split at c" in pdctl.fails(2, "shard", "split", "there", "0", "--at", "c")
    assert "no key range covers" in pdctl.fails(2, "topic", "truncate", "there", "0=0", "--yes")
    pdctl.fails(2, "topic", "delete", "there", "--force")
    assert pdctl.json("topic", "delete", "there", "--force", "--yes")["deleted"]


def test_tasks_of_topics_survive_their_leader(cluster_factory: Any) -> None:
    """The next leader lists the same work with the date of its start; an owner that comes later carries it out."""
    cluster = cluster_factory()
    pdctl = Pdctl(cluster)
    pdctl.ok("topic", "create", "t")
    assert pdctl.json("shard", "split", "t", "0", "--no-wait")["state"] == "started"
    eventually(lambda: pdctl.json("task", "list")[0]["age_ms"] >= 1_000, "its age does not grow", 20)
    (before,) = pdctl.json("task", "list")
    cluster.kill(leader_of(cluster))
    (task,) = [each for each in pdctl.json("task", "list") if each["topic"]]
    assert (task["kind"], task["topic"], task["shards_left"]) == ("scale-topic", "default/t", 1)
    assert task["since_ms"] == before["since_ms"]
    eventually(lambda: pdctl.json("task", "list")[0]["age_ms"] >= before["age_ms"], "cluster time does not go on", 20)
    with HandBroker(cluster.connect_string, "b1"):
        eventually(lambda: pdctl.json("topic", "show", "t")["state"] == "active", "the scale is not committed", 30)
        assert [each["shard_id"] for each in pdctl.json("shard", "list", "t")] == [1, 2]
    assert [each for each in pdctl.json("task", "list") if each["topic"]] == []
