"""The rendered pods as processes in namespaces: they find each other, are ready, and are restarted in order under load."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.integration.helpers.chart_release import DOMAIN, Release
from tests.support.pods import Pod, namespaces_missing
from tests.support.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.release, pytest.mark.alone, pytest.mark.timeout(900)]
MISSING = namespaces_missing()
LOAD = Path(__file__).parent / "helpers" / "chart_load.py"


@pytest.fixture
def release(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Release]:
    """The defaults of the chart: three placement drivers, four range servers, two brokers, certificates by name."""
    if MISSING:
        pytest.skip(MISSING)
    with ExitStack() as stack:
        yield Release(tmp_path, stack, getattr(request, "param", "default"))


def restart(pod: Pod) -> float:
    """As a StatefulSet does it: preStop, SIGTERM, start, ready. Return how long the hook took."""
    failed, took_s = pod.stop()
    assert not failed, f"{pod.name}: its hook was not told yes within the time that the chart gives it: {failed}"
    pod.start()
    pod.wait_for("startupProbe")
    pod.wait_for("readinessProbe")
    return took_s


def test_a_rolling_restart_of_everything_loses_nothing(release: Release) -> None:
    """All pods start at once and get ready; each is restarted, the last of its kind first, while a program appends.

    Brokers may create journals while two range servers are known; the placement driver has them go on with three.
    """
    keeper = release.pods.pop("rangelog-keeper-0")
    keeper.start()
    assert len(release.pods) == 9
    for pod in release.pods.values():
        pod.start()
    for pod in release.pods.values():
        pod.wait_for("startupProbe")
        pod.wait_for("readinessProbe")
        assert pod.probe("livenessProbe")
    addresses = release.pods["rangelog-pd-0"].environment["RANGELOG_PD"]
    keeper.wait_for("readinessProbe")
    load = release.program(str(LOAD), addresses)
    try:
        assert load.stdout is not None and load.stdout.readline() == "acked\n", "nothing was acked"
        began_s, hooks = time.monotonic(), {}
        for component in ("pd", "rs", "broker"):
            for pod in release.of(component):
                hooks[pod.name] = round(restart(pod), 1)
                assert load.poll() is None
        said, _ = load.communicate("", timeout=120)
    finally:
        load.kill()
        load.wait()
    keeper.wait_for("readinessProbe")
    found = json.loads(said)
    print(f"chart: pods={len(hooks)} seconds={time.monotonic() - began_s:.0f} hooks={hooks} {found}")
    assert found["lost"] == 0 and found["acked"] > 100, found
    assert found["read"] >= found["acked"]


def test_probes_tell_a_hung_process_and_a_lonely_one(release: Release) -> None:
    """A placement driver without a majority is alive and not ready; a stopped process is neither."""
    lonely = release.pods["rangelog-pd-0"]
    lonely.start()
    lonely.wait_for("livenessProbe")
    assert not lonely.probe("readinessProbe")
    for name in ("rangelog-pd-1", "rangelog-pd-2"):
        release.pods[name].start()
    lonely.wait_for("readinessProbe")
    lonely.kill()
    assert not lonely.probe("livenessProbe") and not lonely.probe("readinessProbe")


def test_a_leader_hands_over_before_it_stops(release: Release) -> None:
    """Its hook alone moves the lead: the process has not been told to stop yet."""
    pods = [release.pods[f"rangelog-pd-{number}"] for number in range(3)]
    for pod in pods:
        pod.start()
    for pod in pods:
        pod.wait_for("readinessProbe")
    addresses = pods[0].environment["RANGELOG_PD"]

    def leader() -> str:
        found: list[str] = []

        def look() -> bool:
            listing = release.program("-m", "pdctl", "--pd", addresses, "pd", "list", "-o", "json", role="admin")
            said, _ = listing.communicate(timeout=60)
            members = json.loads(said or b"{}").get("members", [])
            found[:] = [str(each["name"]) for each in members if each["state"] == "leader"]
            return len(found) == 1

        eventually(look, "nobody leads", 30)
        return found[0]

    first = leader()
    assert not release.pods[first].hook()
    second = leader()
    assert second != first

    def others_hook_leaves_the_leader_alone() -> bool:
        before = leader()  # another one by itself where a member stands still: then once more
        other = next(pod for pod in pods if pod.name != before)
        assert not other.hook()
        return leader() == before

    eventually(others_hook_leaves_the_leader_alone, "who does not lead moves the leader")


@pytest.mark.parametrize("release", ["grown"], indirect=True)
def test_a_group_grows_from_three_to_five(release: Release) -> None:
    """As docs/kubernetes.md says: the new pods wait to be added, vote then, and come back as members after a restart."""
    pods = [release.pods[f"rangelog-pd-{number}"] for number in range(5)]
    for pod in pods[:3]:
        pod.start()
    for pod in pods[:3]:
        pod.wait_for("readinessProbe")
    addresses = pods[0].environment["RANGELOG_PD"]
    for pod in pods[3:]:
        pod.start()
        host = f"{pod.name}.rangelog-pd.{DOMAIN}"
        add = f"{pod.name}={host}:7140@{host}:7100"
        adding = release.program("-m", "pdctl", "--pd", addresses, "pd", "add", add, "--wait-s", "60", role="admin")
        said, _ = adding.communicate(timeout=90)
        assert adding.returncode == 0, said + pod.log()
        pod.wait_for("readinessProbe")
    assert restart(pods[4]) < pods[4].spec["terminationGracePeriodSeconds"]
    listing = release.program("-m", "pdctl", "--pd", addresses, "pd", "list", "-o", "json", role="admin")
    said, _ = listing.communicate(timeout=60)
    members = json.loads(said)
    assert all(pod.name in said for pod in pods), members
