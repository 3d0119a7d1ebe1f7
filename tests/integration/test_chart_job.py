"""The release whose certificates a job makes, with tokens, encrypted objects, own authorities and the page, as processes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from rangelog_cli.certs.authority import Authority, parse_principal
from rangelog_tier.encryption_keys import KeyDirectory
from tests.integration.helpers.chart_job import run_job
from tests.integration.helpers.chart_release import Release, rendered
from tests.support.fake_kubernetes import FakeKubernetes
from tests.support.pods import Network, namespaces_missing
from tests.support.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.release, pytest.mark.alone, pytest.mark.timeout(600)]
MISSING = namespaces_missing()
STEPS = Path(__file__).parent / "helpers" / "chart_job_steps.py"
BUCKET = Path(__file__).parent / "helpers" / "chart_bucket.py"
S3_HOST, KEY_ID = "minio.example.org", "2026-11-26"
S3_URL = f"https://{S3_HOST}"
CREDENTIALS = {"AWS_ACCESS_KEY_ID": b"user", "AWS_SECRET_ACCESS_KEY": b"password"}


def certificates(api: FakeKubernetes, directory: Path) -> dict[str, dict[str, bytes]]:
    """Return the Secrets of the rendered release once its job has run, with the rights of its rendered Role."""
    objects = rendered("job")
    (role,) = [each for each in objects if each["kind"] == "Role"]
    (job,) = [each for each in objects if each["kind"] == "Job"]
    (plan,) = [each["data"]["plan.json"] for each in objects if "plan.json" in (each.get("data") or {})]
    names = [each["metadata"]["name"] for each in objects if each["kind"] == "Secret"]
    api.make(*names)
    (rule,) = role["rules"]
    api.rules = {name: set(rule["verbs"]) for name in rule["resourceNames"]}
    done = run_job(job, plan, api.account, api.port, directory)
    assert done.returncode == 0, done.stderr
    assert f"{len(names)} of {len(names)} Secrets changed" in done.stdout
    again = run_job(job, plan, api.account, api.port, directory)
    assert again.returncode == 0 and "0 of" in again.stdout, again.stdout + again.stderr
    return {name: api.data(name) for name in names}


def start_bucket(network: Network, stack: ExitStack, directory: Path) -> tuple[str, bytes]:
    """Start an S3 server with a certificate of a company's authority; return its address, and the authority."""
    company = Authority.create(directory / "company")
    made = company.issue(parse_principal("broker", "s3"), directory / "s3", hosts=(S3_HOST,))
    enter, address = network.add(100)
    with (directory / "s3.log").open("wb") as log:
        server = subprocess.Popen(
            [*enter, sys.executable, str(BUCKET), address, "443", made.cert, made.key],
            stdout=subprocess.PIPE,
            stderr=log,
            env={"PATH": "/usr/bin:/bin", "S3_IGNORE_SUBDOMAIN_BUCKETNAME": "true"},
        )
    stack.callback(server.wait)
    stack.callback(server.kill)
    assert server.stdout is not None and server.stdout.readline() == b"serving\n", (directory / "s3.log").read_text()
    return address, Path(made.ca).read_bytes()


class Guarded(Release):
    """The release, and what people and programs do to it."""

    def step(self, *arguments: str, environment: dict[str, str]) -> Any:
        """Do one of the steps; return what it found."""
        program = self.program(str(STEPS), *arguments, environment=environment)
        said, _ = program.communicate(timeout=120)
        assert program.returncode == 0, (self.directory / "program.log").read_text()[-3_000:]
        return json.loads(said)

    def admin(self, *arguments: str) -> str:
        """`pdctl` with the administrator's certificate, which the job made; return its output."""
        pd = self.pods["rangelog-pd-0"].environment["RANGELOG_PD"]
        program = self.program("-m", "pdctl", "--pd", pd, *arguments, environment=self.as_("rangelog-alice-tls"))
        said, _ = program.communicate(timeout=120)
        assert program.returncode == 0, said + (self.directory / "program.log").read_text()[-3_000:]
        return said

    def as_(self, secret: str) -> dict[str, str]:
        """The environment of a program with the certificate in a Secret."""
        folder = self.directory / "people" / secret
        folder.mkdir(parents=True, exist_ok=True)
        for key, data in self.secrets[secret].items():
            (folder / key).write_bytes(data)
            (folder / key).chmod(0o600)
        files = {"CA": "ca.crt", "CERT": "tls.crt", "KEY": "tls.key"}
        return {f"RANGELOG_TLS_{name}": str(folder / file) for name, file in files.items()}


@pytest.fixture
def release(tmp_path: Path) -> Iterator[Guarded]:
    """The example `job`, its Secrets filled by its own job, its bucket behind TLS of a company's authority."""
    if MISSING:
        pytest.skip(MISSING)
    with ExitStack() as stack:
        api = FakeKubernetes(tmp_path)
        stack.callback(api.close)
        secrets = certificates(api, tmp_path)
        network = Network(tmp_path)
        stack.callback(network.close)
        address, company = start_bucket(network, stack, tmp_path)
        keys = tmp_path / "keys"
        KeyDirectory(str(keys)).make_key(KEY_ID)
        secrets["rangelog-keys"] = {"current": KEY_ID.encode(), f"{KEY_ID}.key": (keys / f"{KEY_ID}.key").read_bytes()}
        secrets["rangelog-minio"] = dict(CREDENTIALS)
        made = Guarded(
            tmp_path, stack, "job", network=network, secrets=secrets, config_maps={"company-authorities": {"ca.crt": company}},
            names={S3_HOST: address},
        )  # fmt: skip
        with made.network.hosts.open("a") as hosts:
            hosts.write(f"{made.pods['rangelog-pd-0'].address} rangelog-page.logs.svc\n")
        yield made


def test_tokens_encryption_the_page_and_the_keeper(release: Guarded) -> None:
    """A program with a token writes, the tier is encrypted, a browser sees the page, one server's death holds others back."""
    s3 = {key: value.decode() for key, value in CREDENTIALS.items()}
    s3["AWS_CA_BUNDLE"] = release.pods["rangelog-pd-0"].environment["AWS_CA_BUNDLE"]
    release.step("bucket", S3_URL, environment=s3)
    for pod in release.pods.values():
        pod.start()
    keeper = release.pods["rangelog-keeper-0"]
    for name, pod in release.pods.items():
        if pod is not keeper:
            pod.wait_for("readinessProbe")
            assert pod.probe("livenessProbe"), name
    keeper.wait_for("readinessProbe")

    token = release.directory / "orders.token"
    release.admin("token", "create", "orders", "--out", str(token))
    addresses = release.pods["rangelog-pd-0"].environment["RANGELOG_PD"]
    program = {"RANGELOG_TLS_CA": release.as_("rangelog-alice-tls")["RANGELOG_TLS_CA"], "TOKEN_FILE": str(token)}
    assert release.step("write", addresses, environment=program) == {"read": 100}

    release.admin("range", "seal", "kept", "--yes")
    listed = eventually(
        lambda: json.loads(release.admin("object", "list", "kept", "-o", "json")), "nothing is tiered", 90
    )
    assert KEY_ID in json.dumps(listed)
    found = release.step("objects", S3_URL, environment=s3)
    assert set(found["heads"].values()) == {"PARE"}, found

    shown = release.step("page", "rangelog-page.logs.svc", "7250", environment=release.as_("rangelog-alice-tls"))
    assert shown["status"] == 200 and "rangelog-rs-0" in shown["text"]

    release.admin("stream", "append", "kept", "one more")
    victim = holder_of(release)
    victim.kill()
    eventually(lambda: not keeper.probe("readinessProbe"), "the keeper does not see that a server is gone", 30)
    victim.start()
    victim.wait_for("readinessProbe")
    keeper.wait_for("readinessProbe")


def holder_of(release: Guarded) -> Any:
    """A pod that has a replica of the stream's open range."""
    ranges = json.loads(release.admin("range", "list", "kept", "-o", "json"))
    text = json.dumps(ranges[-1])
    return next(pod for name, pod in release.pods.items() if "-rs-" in name and name in text)
