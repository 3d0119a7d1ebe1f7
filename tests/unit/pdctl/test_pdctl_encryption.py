"""pdctl encryption: keys are made and rotated without surprise, and what uses them is counted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pdctl import top
from pdctl.top import Sample
from rangelog_proto.v1 import common_pb2, pd_pb2, range_server_pb2
from rangelog_tier.encryption_keys import KeyDirectory
from tests.unit.pdctl.in_process_pd import InProcessPd, PdctlOverGrpc

DIGEST = "sha256:" + "ab" * 32
FORMATS = [common_pb2.FormatVersions(format="encrypted-object", lowest=1, highest=1)]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Where keys are to be."""
    return tmp_path / "keys"


def test_a_later_key_waits_for_its_rotation(run: PdctlOverGrpc, directory: Path) -> None:
    """The first key is current; one that sorts last is not used before it is everywhere, and then it is."""
    assert run.json("encryption", "new-key", str(directory), "--id", "k1")["current"] is True
    assert run.json("encryption", "new-key", str(directory), "--id", "k2")["current"] is False
    keys = KeyDirectory(str(directory))
    assert keys.current() == "k1"
    assert run.json("encryption", "rotate", str(directory), "--to", "k2") == {"key_id": "k2", "before": "k1"}
    assert keys.current() == "k2"
    listed = run.json("encryption", "list", str(directory))
    assert listed == [{"key_id": "k1", "state": "to read"}, {"key_id": "k2", "state": "current"}]


def test_a_rotation_may_make_the_key(run: PdctlOverGrpc, directory: Path) -> None:
    """Twice on one day as well."""
    run.json("encryption", "new-key", str(directory), "--id", "0")
    made = [run.json("encryption", "rotate", str(directory))["key_id"] for _ in range(3)]
    assert len(set(made)) == 3 and made[1] == f"{made[0]}-02" and KeyDirectory(str(directory)).current() == made[2]


def test_wrong_use(run: PdctlOverGrpc, directory: Path) -> None:
    """A key that is there, one that is not, a directory without keys: one line, and nothing is changed."""
    run.json("encryption", "new-key", str(directory), "--id", "k1")
    before = (directory / "k1.key").read_bytes()
    assert "there already" in run.fails(2, "encryption", "new-key", str(directory), "--id", "k1")
    assert "'k9' cannot be read" in run.fails(1, "encryption", "rotate", str(directory), "--to", "k9")
    assert "new-key" in run.fails(1, "encryption", "rotate", str(directory.parent))
    (directory / "current").write_text("../k1\n")
    assert "does not name a key" in run.fails(1, "encryption", "list", str(directory))
    assert (directory / "k1.key").read_bytes() == before


def tier(member: InProcessPd, stream_id: int, index: int, key_id: str) -> None:
    """Commit an object of a range."""
    request = pd_pb2.PrepareObjectRequest(
        stream_id=stream_id, range_index=index, start_offset=10 * index, end_offset=10 * index + 10, server="rs1",
        incarnation=0xABC, encrypted=bool(key_id),
    )  # fmt: skip
    made = member.do("PrepareObject", request, pd_pb2.PrepareObjectResponse).object
    commit = pd_pb2.CommitObjectRequest(
        object_id=made.object_id, server="rs1", incarnation=0xABC, size_bytes=100 + index, digest=DIGEST, epoch=made.epoch,
        encryption_key_id=key_id,
    )  # fmt: skip
    member.do("CommitObject", commit, pd_pb2.CommitObjectResponse)


def test_what_uses_a_key(run: PdctlOverGrpc, member: InProcessPd) -> None:
    """By key, of all streams or of one; those in clear too."""
    for name in ("rs1", "rs2", "rs3"):
        member.register(name, formats=FORMATS)
    member.reconcile()  # the cluster version rises
    assert run.json("encryption", "usage") == []
    ids = {}
    for name in ("a", "b"):
        member.stream(name)
        ids[name] = member.ranges(name, 3).stream_id
    for index, key_id in enumerate(("", "k1", "k2")):
        tier(member, ids["a"], index, key_id)
    tier(member, ids["b"], 0, "k1")
    found = {each["key_id"]: (each["stream_count"], each["object_count"], each["size_bytes"])
             for each in run.json("encryption", "usage")}  # fmt: skip
    assert found["k1"] == (2, 2, 201) and found["k2"] == (1, 1, 102) and found[""] == (1, 1, 100)
    assert [each["key_id"] for each in run.json("encryption", "usage", "b")] == ["k1"]
    assert "(in clear)" in run("encryption", "usage").stdout
    (listed,) = run.json("object", "list", "b")
    assert listed["encryption_key_id"] == "k1" and "k1" in run("object", "list", "b").stdout
    run.fails(3, "encryption", "usage", "none")


def test_which_keys_the_logs_need(run: PdctlOverGrpc, member: InProcessPd, monkeypatch: pytest.MonkeyPatch) -> None:
    """By server and key; one that does not answer may need any, so the exit code says it."""
    uses = [range_server_pb2.LogKeyUse(key_id=each, file_count=2, size_bytes=128) for each in ("", "k1")]
    told = {"rs1": range_server_pb2.GetStatusResponse(log_keys=uses, log_key_problem="k2 cannot be asked for")}

    async def take_sample(session: Any, pd: Any) -> Sample:
        listed = await pd.call(pd_pb2.ListServersRequest(), pd_pb2.ListServersResponse, timeout_s=5.0)
        return Sample(0.0, list(listed.servers), told)

    monkeypatch.setattr(top, "take_sample", take_sample)
    assert run.json("encryption", "log-usage") == []
    member.register("rs1")
    row = {"server": "rs1", "file_count": 2, "size_bytes": 128, "problem": "k2 cannot be asked for"}
    assert run.json("encryption", "log-usage") == [row | {"key_id": ""}, row | {"key_id": "k1"}]
    member.register("rs2")
    silent = run("encryption", "log-usage")
    assert silent.exit_code == 1 and "does not answer" in silent.stdout
