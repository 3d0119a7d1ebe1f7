"""The rendered pods as processes in namespaces: they find each other, are ready, and are restarted in order under load."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from rangelog_cli.certs.authority import Authority, parse_principal
from tests.support.pods import Network, Pod, namespaces_missing
from tools.helm_golden import GOLDEN

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.alone, pytest.mark.timeout(900)]
MISSING = namespaces_missing()
SECRETS = {"rangelog-secrets": {"raft-secret": "of the test"}}
LOAD = Path(__file__).parent / "helpers" / "chart_load.py"
DOMAIN = "logs.svc.cluster.local"


class Release:
    """All pods of a golden copy with TLS, and a namespace for programs."""

    def __init__(self, directory: Path, stack: ExitStack, golden: str) -> None:
        self.objects = [each for each in yaml.safe_load_all((GOLDEN / f"{golden}.yaml").read_text()) if each]
        self.directory = directory
        self.network = Network(directory)
        stack.callback(self.network.close)
        self.authority = Authority.create(directory / "authority")
        self.secrets = self._certificates()
        self.pods: dict[str, Pod] = {}
        hosts = [self.network.hosts.read_text()]
        for owner in self._of("StatefulSet", "Deployment"):
            for number in range(owner["spec"]["replicas"]):
                pod = self._pod(f"{owner['metadata']['name']}-{number}", owner, len(self.pods) + 2)
                stack.callback(pod.kill)
                self.pods[pod.name] = pod
                service = owner["spec"].get("serviceName", "")
                hosts.append(f"{pod.address} {pod.name}.{service}.{DOMAIN}\n" if service else "")
        self.network.hosts.write_text("".join(hosts))
        self.enter, _ = self.network.add(200)

    def of(self, component: str) -> list[Pod]:
        """Pods of a kind, the last one first, as an update goes."""
        return [self.pods[name] for name in sorted(self.pods, reverse=True) if f"-{component}-" in name]

    def program(self, *arguments: str, role: str = "client") -> subprocess.Popen[str]:
        """A program in a namespace of its own, with a certificate of this role."""
        made = self.authority.issue(parse_principal(role, "test"), self.directory / role)
        environment = {"PATH": "/usr/bin:/bin"}
        made.to_environment(environment)
        with (self.directory / "program.log").open("ab") as log:
            return subprocess.Popen(
                [*self.enter, sys.executable, *arguments], env=environment, text=True, cwd="/",
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
            )  # fmt: skip

    def _of(self, *kinds: str) -> list[dict[str, Any]]:
        return [each for each in self.objects if each["kind"] in kinds]

    def _certificates(self) -> dict[str, dict[str, bytes]]:
        """What cert-manager would put into Secrets: by the names in the Certificates."""
        secrets = {}
        for each in self._of("Certificate"):
            spec = each["spec"]
            if not spec.get("isCA"):
                (uri,) = spec["uris"]
                role, _, name = uri.removeprefix("rangelog://").partition("/")
                out = self.directory / "issued" / spec["secretName"]
                made = self.authority.issue(parse_principal(role, name), out, hosts=tuple(spec["dnsNames"]))
                files = {"ca.crt": made.ca, "tls.crt": made.cert, "tls.key": made.key}
                secrets[spec["secretName"]] = {key: Path(path).read_bytes() for key, path in files.items()}
        return secrets

    def _pod(self, name: str, owner: dict[str, Any], number: int) -> Pod:
        spec = owner["spec"]["template"]["spec"]
        enter, address = self.network.add(number)
        templates = [each["metadata"]["name"] for each in owner["spec"].get("volumeClaimTemplates", ())]
        volumes = {
            each: self.directory / name / each for each in [*templates, *(each["name"] for each in spec["volumes"])]
        }
        for path in volumes.values():
            path.mkdir(parents=True)
        pod = Pod(name, spec, enter, address, self.directory, volumes, SECRETS)
        for volume in spec["volumes"]:
            for path, content in self._content(volume, pod).items():
                target = volumes[volume["name"]] / path
                target.parent.mkdir(exist_ok=True)
                target.write_bytes(content)
                target.chmod(0o440)
        return pod

    def _content(self, volume: dict[str, Any], pod: Pod) -> dict[str, bytes]:
        if "configMap" in volume:
            (found,) = [
                each for each in self._of("ConfigMap") if each["metadata"]["name"] == volume["configMap"]["name"]
            ]
            return {file: pod.place(text).encode() for file, text in found["data"].items()}
        if "secret" in volume:
            return self.secrets[volume["secret"]["secretName"]]
        return {
            item["path"]: self.secrets[source["secret"]["name"]][item["key"]]
            for source in volume.get("projected", {}).get("sources", ())
            for item in source["secret"]["items"]
        }


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
    assert len(release.pods) == 9
    for pod in release.pods.values():
        pod.start()
    for pod in release.pods.values():
        pod.wait_for("startupProbe")
        pod.wait_for("readinessProbe")
        assert pod.probe("livenessProbe")
    addresses = release.pods["rangelog-pd-0"].environment["RANGELOG_PD"]
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
