"""`pdctl object scrub` over a real state and a real directory: what it finds, what it leaves alone, what it repairs."""

from __future__ import annotations

import hashlib
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from rangelog_core.object_keys import manifest_key, object_key
from rangelog_proto.v1 import common_pb2, pd_pb2, tier_pb2
from rangelog_tier import open_object_store
from tests.unit.pd.conftest import report
from tests.unit.pdctl.in_process_pd import InProcessPd, PdctlOverGrpc

DAY_S = 86_400
SHARD = "_topic-1-shard-0"


class Tier:
    """A directory whose objects the state knows, until a test changes one of the two."""

    def __init__(self, pd: InProcessPd, run: PdctlOverGrpc, directory: Path) -> None:
        self.pd = pd
        self._run = run
        self.directory = directory
        self.url = f"file://{directory}"
        self.store = open_object_store(self.url, create=True)

    def stream(self, name: str, ranges: int = 3) -> list[common_pb2.Object]:
        """A stream with sealed ranges, each of them tiered."""
        if name.startswith("_"):  # of a topic's shard
            assert self._run("topic", "create", "t", "--shards", "1").exit_code == 0
        else:
            self.pd.stream(name, tiered=True)
        stream_id = self.pd.ranges(name, ranges).stream_id
        return [self.upload(stream_id, index) for index in range(ranges)]

    def prepare(self, stream_id: int, index: int) -> common_pb2.Object:
        """Begin an upload of a range of ten records."""
        with self.pd.driver.state() as state:
            server = state.range(stream_id, index).replicas[0]
        request = pd_pb2.PrepareObjectRequest(
            stream_id=stream_id, range_index=index, start_offset=10 * index, end_offset=10 * index + 10,
            server=server.server, incarnation=server.incarnation,
        )  # fmt: skip
        return self.pd.do("PrepareObject", request, pd_pb2.PrepareObjectResponse).object

    def upload(self, stream_id: int, index: int) -> common_pb2.Object:
        """Store and commit the object of a range."""
        prepared = self.prepare(stream_id, index)
        data = prepared.key.encode()
        self.store.put_if_absent(prepared.key, data)
        request = pd_pb2.CommitObjectRequest(
            object_id=prepared.object_id, server=prepared.server, incarnation=prepared.incarnation, epoch=prepared.epoch,
            size_bytes=len(data), digest=f"sha256:{hashlib.sha256(data).hexdigest()}",
        )  # fmt: skip
        return self.pd.do("CommitObject", request, pd_pb2.CommitObjectResponse).object

    def plant(self, key: str, *, age_s: float, data: bytes = b"planted") -> str:
        """Put an object into the directory that the state knows nothing of, as old as that."""
        path = self.directory / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        os.utime(path, (time.time() - age_s, time.time() - age_s))
        return key

    def is_stored(self, key: str) -> bool:
        return (self.directory / key).exists()

    def report_whole(self, stream_id: int, index: int) -> None:
        """One living server says that it has the whole range."""
        with self.pd.driver.state() as state:
            server = state.range(stream_id, index).replicas[0]
        whole = report(stream_id, index, "SEALED", end=10 * index + 10)
        for _ in range(2):  # the first after another process's is not counted
            self.pd.heartbeat(server.server, incarnation=server.incarnation, replicas=[whole])

    def scrub(self, *arguments: str, code: int = 1) -> dict[str, Any]:
        """The JSON of a run that ends with this code."""
        result = self._run("object", "scrub", *arguments, "--tier-url", self.url, "-o", "json")
        assert result.exit_code == code, result.output
        shown: dict[str, Any] = json.loads(result.stdout)
        return shown

    def refused(self, *arguments: str) -> str:
        """What a run says that ends with an error."""
        result = self._run("object", "scrub", *arguments, "--tier-url", self.url)
        assert result.exit_code not in (0, 1), result.output
        return str(result.output)

    def found(self, *arguments: str) -> list[tuple[str, str]]:
        """Kind and key of what is found."""
        return [(each["kind"], each["key"]) for each in self.scrub(*arguments)["findings"]]


@pytest.fixture
def tier(topics: InProcessPd, run: PdctlOverGrpc, tmp_path: Path) -> Tier:
    """A cluster of three servers, and an empty directory."""
    return Tier(topics, run, tmp_path / "tier")


def test_a_tier_that_is_as_it_should_be(tier: Tier) -> None:
    """Nothing is found, and the exit code says so; manifests, snapshots and probes are not looked at."""
    for name in ("a", "b", SHARD):
        tier.stream(name)
    for key in (manifest_key(1, "a"), "_pd/snapshots/1", "probe/x"):
        tier.plant(key, age_s=30 * DAY_S)
    shown = tier.scrub("--repair", "--verify", "--yes", code=0)
    assert shown["findings"] == [] and shown["seen"]["stored"] == shown["seen"]["committed"] == 9
    assert all(tier.is_stored(key) for key in (manifest_key(1, "a"), "_pd/snapshots/1", "probe/x"))


def test_missing_and_damaged_objects(tier: Tier) -> None:
    """In the middle, at the end, of a whole stream; a wrong size at once, wrong bytes by --verify; nothing is changed."""
    first, second, third = tier.stream("a"), tier.stream("b"), tier.stream(SHARD, 1)
    for gone in (first[1], second[2], *third):
        tier.store.delete(gone.key)
    (tier.directory / first[0].key).write_bytes(b"short")
    flipped = tier.directory / second[0].key
    flipped.write_bytes(flipped.read_bytes()[:-1] + b"?")
    expected = [
        ("damaged", first[0].key),
        ("missing", first[1].key),
        ("missing", second[2].key),
        ("missing", third[0].key),
    ]
    assert sorted(tier.found()) == sorted(expected)
    assert sorted(tier.found("--verify")) == sorted([*expected, ("damaged", second[0].key)])
    assert sorted(tier.found("a")) == expected[:2]
    assert sorted(tier.found()) == sorted(expected), "a look changes nothing"


def test_orphans_are_removed_after_the_grace(tier: Tier) -> None:
    """Of streams that are there and of others; not without --repair, and not what is younger than the grace."""
    kept = tier.stream("a")
    gone = tier.stream("b")
    tier.pd.do("DeleteStream", pd_pb2.DeleteStreamRequest(name="b"), pd_pb2.DeleteStreamResponse)
    collect = [each.object_id for each in gone]
    assert tier.scrub(code=0)["seen"]["deleted"] == 3
    tier.pd.collect(collect)
    old = [tier.plant(gone[0].key, age_s=2 * DAY_S), tier.plant(gone[1].key, age_s=2 * DAY_S)]
    young = tier.plant(gone[2].key, age_s=DAY_S / 2)
    assert tier.found() == [("orphan", old[0]), ("orphan", old[1])]
    assert all(map(tier.is_stored, old))
    assert tier.scrub()["seen"]["young"] == 1
    done = tier.scrub("--repair", "--yes")
    assert [each["done"] for each in done["findings"]] == ["removed", "removed"]
    assert not any(map(tier.is_stored, old)) and tier.is_stored(young)
    assert tier.found("--grace", "1h", "--repair", "--yes") == [("orphan", young)]
    assert not tier.is_stored(young)
    assert tier.scrub("--grace", "0s", code=0)["seen"]["stored"] == 3
    assert all(tier.is_stored(each.key) for each in kept)


def test_what_is_being_uploaded_is_no_orphan(tier: Tier) -> None:
    """However old it is: an upload may take long; one that is past its deadline is shown as such, and left alone."""
    tier.pd.stream("a", tiered=True)
    stream_id = tier.pd.ranges("a", 2).stream_id
    prepared = tier.prepare(stream_id, 0)
    tier.plant(prepared.key, age_s=30 * DAY_S)
    seen = tier.scrub("--repair", "--yes", "--grace", "0s", code=0)["seen"]
    assert (seen["prepared"], seen["expired"], seen["stored"]) == (1, 0, 1)
    assert tier.is_stored(prepared.key)


def test_an_orphan_that_the_state_has_by_now_is_none(tier: Tier) -> None:
    """Two looks: what is known again at the second one stays, as after a state was restored from before it."""
    made = tier.stream("a", 1)[0]
    with tier.pd.driver.state() as state:
        row = state.objects.remove(made.object_id)
    assert row is not None
    os.utime(tier.directory / made.key, (1, 1))
    looks = 0

    def known_again(name: str) -> None:
        nonlocal looks
        looks += name == "FindObjects"
        if looks == 2:
            with tier.pd.driver.state() as state:
                state.put_object(row)

    tier.pd.before = known_again
    assert tier.scrub("--repair", "--yes", code=0)["findings"] == []
    assert looks == 2 and tier.is_stored(made.key)


def test_what_this_cluster_never_named_is_left_alone(tier: Tier) -> None:
    """Ids that were not given out yet, other keys under known ids, files of people: shown, and never deleted."""
    made = tier.stream("a", 1)[0]
    foreign = [
        tier.plant(object_key(1, 0, 10, 20, made.object_id + 50), age_s=30 * DAY_S),
        tier.plant(object_key(1, 0, 0, 11, made.object_id), age_s=30 * DAY_S),
        tier.plant("streams/1/notes.txt", age_s=30 * DAY_S),
        tier.plant("streams/01/ranges/00000000/x.parquet", age_s=30 * DAY_S),
        tier.plant("streams/readme", age_s=30 * DAY_S),
        tier.plant(object_key(1 << 40, 0, 0, 11, 1 << 40), age_s=30 * DAY_S),
    ]
    shown = tier.scrub("--repair", "--yes", "--grace", "0s")
    assert sorted(each["key"] for each in shown["findings"]) == sorted(foreign)
    assert {each["kind"] for each in shown["findings"]} == {"foreign"} and all(map(tier.is_stored, foreign))


def test_a_lost_object_is_uploaded_again_where_a_whole_hot_copy_is(tier: Tier) -> None:
    """Its range is not tiered any more, so a server is told to upload it; without a hot copy it stays as it is."""
    lost, kept = tier.stream("a", 2)
    for each in (lost, kept):
        tier.store.delete(each.key)
    tier.report_whole(1, 0)
    shown = tier.scrub("--repair", "--yes")["findings"]
    assert [each["done"].partition(":")[0] for each in shown] == ["is uploaded again", "not repaired"]
    assert "no living range server" in shown[1]["done"]
    with tier.pd.driver.state() as state:
        assert state.range(1, 0).tiered_end_offset == 0
        assert state.range(1, 1).tiered_end_offset == 20
    tier.upload(1, 0)
    assert tier.found() == [("missing", kept.key)]


def test_an_object_that_is_trimmed_meanwhile_is_not_missing(tier: Tier) -> None:
    """What the state has lost after it was listed may be gone."""
    made = tier.stream("a", 3)

    def trim(name: str) -> None:
        if name == "FindObjects":
            request = pd_pb2.TrimStreamRequest(name="a", trim_offset=20)
            tier.pd.do("TrimStream", request, pd_pb2.TrimStreamResponse)

    for gone in made[:2]:
        tier.store.delete(gone.key)
    tier.pd.before = trim
    assert tier.scrub(code=0)["findings"] == []


def test_what_a_new_tier_has_is_not_missing(tier: Tier) -> None:
    """The tier is changed under the scrub, which does not see the later store: it ends, and gives nothing up."""
    made = tier.stream("a", 1)[0]
    tier.store.delete(made.key)
    Path(f"{tier.directory}-2").mkdir()

    def change(name: str) -> None:
        if name == "FindObjects":
            request = tier_pb2.SetTierRequest(request_id="another store", url=f"{tier.url}-2")
            tier.pd.do("SetTier", request, tier_pb2.SetTierResponse)

    tier.pd.before = change
    said = tier.refused("--repair", "--yes")
    assert "the tier got another URL while this was running: run it again" in said
    with tier.pd.driver.state() as state:
        assert state.objects[made.object_id].state == common_pb2.OBJECT_STATE_COMMITTED


def test_an_object_that_is_stored_after_the_listing_is_not_missing(tier: Tier) -> None:
    """The listing may be older than the state's."""
    tier.pd.stream("a", tiered=True)
    tier.pd.ranges("a", 2)
    tier.upload(1, 0)
    later: list[common_pb2.Object] = []

    def upload(name: str) -> None:
        if name == "ListObjects" and not later:
            later.append(tier.upload(1, 1))

    tier.pd.before = upload
    assert tier.scrub(code=0)["findings"] == [] and later


def test_many_objects_of_many_streams(tier: Tier) -> None:
    """Beyond a page and a batch on either side; ids of several digits, whose folders sort as text."""
    lost = []
    for number in range(11):
        made = tier.stream(f"s{number}", 2)
        if number in (0, 1, 9, 10):
            tier.store.delete(made[1].key)
            lost.append(("missing", made[1].key))
    wide = tier.stream("wide", 230)
    for each in wide[::20]:
        tier.store.delete(each.key)
    expected = lost + [("missing", each.key) for each in wide[::20]]
    assert sorted(tier.found()) == sorted(expected)


def test_for_people(tier: Tier, run: PdctlOverGrpc) -> None:
    """A table, a summary, and a question before anything is deleted."""
    made = tier.stream("a", 1)
    assert run("object", "scrub", "--tier-url", tier.url).stderr.startswith("the object store has what the state has\n")
    tier.store.delete(made[0].key)
    result = run("object", "scrub", "--tier-url", tier.url)
    assert result.exit_code == 1 and "missing" in result.stdout and made[0].key in result.stdout
    assert "1 missing" in result.stderr and "1 committed" in result.stderr
    assert "--yes" in run.fails(2, "object", "scrub", "--repair", "--tier-url", tier.url)
    assert "no stream" in run.fails(3, "object", "scrub", "none", "--tier-url", tier.url)
    assert "no directory" in run.fails(4, "object", "scrub", "--tier-url", f"{tier.url}/none")


def test_a_tier_of_two_stores(tier: Tier, run: PdctlOverGrpc, tmp_path: Path) -> None:
    """Each object is looked for where it is; set-tier asks before, and the cluster's URL names both."""
    first = tier.stream("a", 2)
    (tmp_path / "second").mkdir()
    second_url = f"file://{tmp_path}/second"
    assert "--yes" in run.fails(2, "cluster", "set-tier", second_url)
    assert "stays as it is" in run.fails(5, "cluster", "set-tier", "ftp:x", "--yes")
    told = run.json("cluster", "set-tier", second_url, "--yes")["tier_url"]
    assert told == run.json("cluster", "set-tier", second_url, "--yes")["tier_url"], "it is there already"
    tier.url = told.replace("file:///nowhere", tier.url)
    tier.store = open_object_store(tier.url)
    tier.directory = tmp_path / "second"
    later = tier.stream("b", 2)
    assert tier.is_stored(later[0].key) and not tier.is_stored(first[0].key)
    assert tier.scrub(code=0)["seen"]["committed"] == 4
    for gone in (first[1], later[1]):
        tier.store.delete(gone.key)
    assert sorted(tier.found()) == sorted([("missing", first[1].key), ("missing", later[1].key)])
    rows = run.json("object", "manifest", "b", "--urls")["objects"]
    assert rows[0]["url"] == f"{tmp_path}/second/{later[0].key}"
