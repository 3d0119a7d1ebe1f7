"""The chart by a real API server of Kubernetes: helm installs it, pods are admitted, the job has its rights and no more."""

from __future__ import annotations

import base64
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rangelog_cli.certs.secret_plan import parse_plan
from tests.integration.helpers.chart_job import run_job
from tests.integration.helpers.kube_api_server import KubeApiServer, missing
from tests.support.pods import namespaces_missing
from tools.helm_golden import renderings

pytestmark = [pytest.mark.integration, pytest.mark.release, pytest.mark.timeout(600)]
MISSING = missing()
numbers = itertools.count(1)
JOB_VALUES = ("--values", *renderings()["job"][1:], "--set", "monitoring.serviceMonitor.enabled=false")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubeApiServer]:
    """One for all tests; each has a namespace of its own."""
    if MISSING:
        pytest.skip(MISSING)
    made = KubeApiServer(tmp_path_factory.mktemp("kubernetes"))
    try:
        made.know_custom_kinds()
        yield made
    finally:
        made.close()


@pytest.fixture
def namespace(server: KubeApiServer) -> str:
    """A new one, which admits only pods without rights."""
    name = f"logs-{next(numbers)}"
    server.namespace(name)
    return name


def listed(server: KubeApiServer, path: str) -> list[dict[str, Any]]:
    status, answer = server.call("GET", path)
    assert status == 200, answer
    return list(answer["items"])


def templates(server: KubeApiServer, namespace: str) -> Iterator[dict[str, Any]]:
    """Every pod that the release would have."""
    for kind in ("statefulsets", "deployments"):
        for each in listed(server, f"/apis/apps/v1/namespaces/{namespace}/{kind}"):
            yield each["spec"]["template"]
    for each in listed(server, f"/apis/batch/v1/namespaces/{namespace}/jobs"):
        yield each["spec"]["template"]
    for each in listed(server, f"/apis/batch/v1/namespaces/{namespace}/cronjobs"):
        yield each["spec"]["jobTemplate"]["spec"]["template"]


@pytest.mark.parametrize("name", sorted(renderings()))
def test_helm_installs_and_upgrades_every_example(server: KubeApiServer, namespace: str, name: str) -> None:
    """Each object is accepted, each pod is admitted where only pods without rights are; the same values change nothing."""
    server.install("install", namespace, *renderings()[name])
    pods = 0
    for template in templates(server, namespace):
        metadata = {**template["metadata"], "name": f"pod-{pods}"}
        if any(mount["name"] == "data" for mount in template["spec"]["containers"][0].get("volumeMounts", ())):
            template["spec"]["volumes"].append({"name": "data", "emptyDir": {}})  # of the claim
        pod = {"metadata": metadata, "spec": template["spec"]}
        server.make(f"/api/v1/namespaces/{namespace}/pods?dryRun=All", pod)
        pods += 1
    assert pods >= 4
    before = generations(server, namespace)
    server.install("upgrade", namespace, *renderings()[name])
    assert generations(server, namespace) == before
    server.helm("uninstall", "rangelog", "--namespace", namespace)
    assert not list(templates(server, namespace))


def generations(server: KubeApiServer, namespace: str) -> dict[str, int]:
    """How often what owns pods was changed."""
    return {
        each["metadata"]["name"]: each["metadata"]["generation"]
        for kind in ("statefulsets", "deployments")
        for each in listed(server, f"/apis/apps/v1/namespaces/{namespace}/{kind}")
    }


class Account:
    """The service account of the job: a token that the API server issues, in the files that a pod would have."""

    def __init__(self, server: KubeApiServer, namespace: str, directory: Path) -> None:
        self.server, self.namespace, self.directory = server, namespace, directory
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/rangelog-certificates/token"
        self.token = str(server.make(path, {"spec": {"expirationSeconds": 3600}})["status"]["token"])
        self.files = directory / "account"
        self.files.mkdir(exist_ok=True)
        (self.files / "token").write_text(self.token)
        (self.files / "namespace").write_text(namespace)
        (self.files / "ca.crt").write_bytes(server.authority.read_bytes())

    def run(self) -> str:
        """Run the newest Job of the release; return what it printed."""
        jobs = listed(self.server, f"/apis/batch/v1/namespaces/{self.namespace}/jobs")
        job = max(jobs, key=lambda each: (each["metadata"]["creationTimestamp"], each["metadata"]["name"]))
        done = run_job(job, self.plan(), self.files, self.server.port, self.directory)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def plan(self) -> str:
        """The plan of the release as it is now."""
        status, found = self.server.call("GET", f"/api/v1/namespaces/{self.namespace}/configmaps/rangelog-certificates")
        assert status == 200, found
        return str(found["data"]["plan.json"])

    def data(self) -> dict[str, dict[str, bytes]]:
        """What the Secrets of the plan have."""
        plan, found = parse_plan(self.plan().encode()), {}
        for name in (plan.authority, *(each.secret for each in plan.certificates)):
            _, secret = self.server.call("GET", f"/api/v1/namespaces/{self.namespace}/secrets/{name}")
            found[name] = {key: base64.b64decode(value) for key, value in (secret.get("data") or {}).items()}
        return found


@pytest.fixture
def account(server: KubeApiServer, namespace: str, tmp_path: Path) -> Account:
    """Of the example `job`, installed."""
    if why := namespaces_missing():
        pytest.skip(why)
    server.install("install", namespace, *JOB_VALUES)
    return Account(server, namespace, tmp_path)


def test_the_job_fills_secrets_and_upgrades_keep_them(server: KubeApiServer, account: Account) -> None:
    """More pods get certificates of the same authority; what is there stays through upgrades, and an uninstall."""
    assert not any(account.data().values())
    assert "13 of 13 Secrets changed" in account.run()
    first = account.data()
    assert all(set(each) == {"ca.crt", "tls.crt", "tls.key"} for each in first.values())
    server.install("upgrade", account.namespace, *JOB_VALUES)
    assert account.data() == first and "0 of 13" in account.run()
    server.install("upgrade", account.namespace, *JOB_VALUES, "--set", "rangeServers.replicas=5")
    assert account.data() == {**first, "rangelog-rs-4-tls": {}}
    assert "1 of 14 Secrets changed" in account.run()
    second = account.data()
    server.helm("uninstall", "rangelog", "--namespace", account.namespace)
    server.install("install", account.namespace, *JOB_VALUES, "--set", "rangeServers.replicas=5")
    assert account.data() == second


def test_the_job_may_do_nothing_else(server: KubeApiServer, account: Account) -> None:
    """Not list or make Secrets, nor read that of others, nor anything else; nobody else may read the job's."""
    base = f"/api/v1/namespaces/{account.namespace}"
    account.run()
    server.make(f"{base}/secrets", {"metadata": {"name": "of-others"}})
    for method, path in (
        ("GET", "secrets"), ("GET", "secrets/of-others"), ("DELETE", "secrets/rangelog-pd-0-tls"), ("GET", "pods"),
        ("GET", "configmaps/rangelog-certificates"), ("DELETE", "secrets"),
    ):  # fmt: skip
        assert server.call(method, f"{base}/{path}", token=account.token)[0] == 403, (method, path)
    assert server.call("POST", f"{base}/secrets", {"metadata": {"name": "more"}}, token=account.token)[0] == 403
    assert server.call("GET", f"{base}/secrets/rangelog-pd-0-tls", token=account.token)[0] == 200
    for other in ("rangelog-pd", "rangelog-range-server", "rangelog-broker", "rangelog-keeper"):
        made = server.make(f"{base}/serviceaccounts/{other}/token", {"spec": {"expirationSeconds": 3600}})
        token = str(made["status"]["token"])
        assert server.call("GET", f"{base}/secrets/rangelog-authority", token=token)[0] == 403


def test_a_job_that_is_denied_says_so(server: KubeApiServer, account: Account) -> None:
    """By the real words of the API server, without a traceback."""
    path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{account.namespace}/roles/rangelog-certificates"
    assert server.call("DELETE", path)[0] == 200
    with pytest.raises(AssertionError) as failed:
        account.run()
    said = str(failed.value).partition("\nassert")[0]
    assert "refuses to show Secret" in said and "(403)" in said and "Traceback" not in said
