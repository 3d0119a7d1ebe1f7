"""`rangelog certs secrets` against an API server on loopback: what it makes, renews, leaves alone, and how it fails."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from rangelog_cli.certs import kept_secrets, kubernetes_api
from rangelog_cli.certs.keeping import SETTLE
from rangelog_cli.certs.making import Pair, make_authority, make_certificate
from rangelog_cli.main import run
from rangelog_core.net.principals import Principal, Role
from rangelog_core.net.tls import Certificates, TlsConfig
from tests.support.fake_kubernetes import FakeKubernetes

AUTHORITY, PD, BROKER = "rl-authority", "rl-pd-0-tls", "rl-broker-tls"
PLAN: dict[str, Any] = {
    "authority": AUTHORITY,
    "duration": "2160h",
    "renew_before": "720h",
    "certificates": [
        {"secret": PD, "role": "pd", "name": "rl-pd-0", "hosts": []},
        {"secret": BROKER, "role": "broker", "name": "*", "hosts": ["rl-broker.logs.svc"]},
    ],
}


class Job:
    """The command in a pod that has the plan and a service account."""

    def __init__(self, api: FakeKubernetes, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.api, self.path, self._capsys = api, path, capsys
        self.plan(PLAN)

    def plan(self, plan: object) -> None:
        self.path.write_text(json.dumps(plan))

    def run(self) -> str:
        """Return what it prints; it must succeed."""
        code = run(["certs", "secrets", "--plan", str(self.path)])
        said = self._capsys.readouterr()
        assert code == 0, said.err
        return said.out

    def fails(self) -> str:
        """Return its one line; it must fail."""
        assert run(["certs", "secrets", "--plan", str(self.path)]) == 1
        said = self._capsys.readouterr().err
        assert said.count("\n") == 1 and "Traceback" not in said and "PRIVATE KEY" not in said
        return said

    def certificate(self, secret: str) -> x509.Certificate:
        return x509.load_pem_x509_certificate(self.api.data(secret)["tls.crt"])


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Job]:
    api = FakeKubernetes(tmp_path)
    api.make(AUTHORITY, PD, BROKER)
    monkeypatch.setenv(kubernetes_api.HOST_ENV, "127.0.0.1")
    monkeypatch.setenv(kubernetes_api.PORT_ENV, str(api.port))
    of_pod = kubernetes_api.KubernetesSecrets.of_pod
    monkeypatch.setattr(kubernetes_api.KubernetesSecrets, "of_pod", lambda: of_pod(api.account))
    monkeypatch.setattr(kept_secrets, "PAUSE_S", 0.01)
    yield Job(api, tmp_path / "plan.json", capsys)
    api.close()


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> Callable[[timedelta], None]:
    """Moves the job's clock."""

    def move(by: timedelta) -> None:
        class Clock(datetime):
            @classmethod
            def now(cls, tz: Any = None) -> Any:
                return datetime.now(tz) + by

        monkeypatch.setattr(kept_secrets, "datetime", Clock)

    return move


def test_the_first_run_makes_what_processes_take(job: Job, tmp_path: Path) -> None:
    """Certificates that rangelog's own loader accepts; the authority's key is in no Secret that a pod mounts."""
    assert "3 of 3 Secrets changed" in job.run()
    for secret, role, name in ((PD, Role.PD, "rl-pd-0"), (BROKER, Role.BROKER, "*")):
        files = {}
        for key, data in job.api.data(secret).items():
            files[key] = tmp_path / f"{secret}-{key}"
            files[key].write_bytes(data)
        assert set(files) == {"ca.crt", "tls.crt", "tls.key"}
        found = Certificates(TlsConfig(str(files["ca.crt"]), str(files["tls.crt"]), str(files["tls.key"])))
        found.require(role)
        assert found.now.principal == Principal(role, name)
    names = job.certificate(BROKER).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["broker.rangelog", "rl-broker.logs.svc"]
    assert job.api.writes()[0] == AUTHORITY
    assert job.api.secrets[PD]["metadata"]["labels"] == {"kept": "yes"}


def test_a_run_that_finds_all_good_writes_nothing(job: Job, at: Callable[[timedelta], None]) -> None:
    """As on every upgrade, and on most days."""
    job.run()
    before = json.dumps(job.api.secrets)
    at(timedelta(days=59))
    assert "0 of 3 Secrets changed" in job.run()
    assert json.dumps(job.api.secrets) == before


def test_what_expires_soon_is_renewed_by_the_same_authority(job: Job, at: Callable[[timedelta], None]) -> None:
    """`renew_before` its end, with a new key; trust does not change."""
    job.run()
    first, bundle = job.api.data(PD), job.api.data(AUTHORITY)["tls.crt"]
    at(timedelta(days=61))
    assert f"{PD}: issued: it expired within 28 days" in job.run()
    second = job.api.data(PD)
    assert second["ca.crt"] == first["ca.crt"] == bundle and second["tls.key"] != first["tls.key"]
    at(timedelta(days=365))
    assert f"{PD}: issued: it had expired" in job.run()


def test_the_authority_is_prolonged_with_its_key(job: Job, at: Callable[[timedelta], None]) -> None:
    """In its last third: what the earlier one signed is accepted by the new one, and the other way round."""
    job.run()
    before, leaf = job.certificate(AUTHORITY), job.certificate(PD)
    at(timedelta(days=3_650 * 2 / 3 + 2))
    assert f"{AUTHORITY}: prolonged the authority" in job.run()
    after = job.certificate(AUTHORITY)
    assert after.not_valid_after_utc > before.not_valid_after_utc + timedelta(days=2_000)
    leaf.verify_directly_issued_by(after)
    job.certificate(PD).verify_directly_issued_by(before)
    assert job.api.data(PD)["ca.crt"] == job.api.data(AUTHORITY)["ca.crt"]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"name": "rl-pd-9"}, "it named another process, or other hosts"),
        ({"role": "range-server"}, "it named another process, or other hosts"),
        ({"hosts": ["rl-page.logs.svc"]}, "it named another process, or other hosts"),
    ],
)
def test_a_plan_that_changed_is_followed(job: Job, change: dict[str, Any], why: str) -> None:
    """Only in the Secret that it concerns."""
    job.run()
    first, second = PLAN["certificates"]
    job.plan({**PLAN, "certificates": [{**first, **change}, second]})
    said = job.run()
    assert f"{PD}: issued: {why}" in said and "1 of 3 Secrets changed" in said


def test_more_pods_get_certificates_of_the_same_authority(job: Job) -> None:
    """More replicas are more Secrets; those there stay."""
    job.run()
    before = job.api.data(AUTHORITY)
    job.api.make("rl-pd-1-tls")
    more = {"secret": "rl-pd-1-tls", "role": "pd", "name": "rl-pd-1", "hosts": []}
    job.plan({**PLAN, "certificates": [*PLAN["certificates"], more]})
    assert job.run() == "rl-pd-1-tls: issued: there was none\n1 of 4 Secrets changed\n"
    assert job.api.data(AUTHORITY) == before


def other_authority() -> Pair:
    return make_authority(datetime.now(UTC))


@pytest.mark.parametrize(
    "held",
    [
        {"tls.crt": b"none"},
        {"tls.crt": b"none", "tls.key": b"none"},
        {"tls.crt": other_authority().certificate_pem, "tls.key": other_authority().key_pem},
    ],
    ids=["half", "no PEM", "key of another"],
)
def test_what_is_damaged(job: Job, held: dict[str, bytes]) -> None:
    """A certificate is made anew; an authority is not: somebody may have a copy."""
    job.run()
    job.api.put(PD, held)
    assert f"{PD}: issued: " in job.run()
    job.api.put(AUTHORITY, held)
    writes = len(job.api.writes())
    assert f"Secret {AUTHORITY}: " in job.fails() and len(job.api.writes()) == writes


def test_a_lost_authority_is_not_made_anew_in_silence(job: Job) -> None:
    """Clients trust the former one. Where nothing is in use, all is made anew."""
    job.run()
    job.api.put(AUTHORITY, {})
    assert "bring it back from a copy" in job.fails()
    job.api.put(PD, {})
    assert "certificates of one are in use" in job.fails()
    job.api.put(BROKER, {})
    assert "3 of 3 Secrets changed" in job.run()


def test_an_authority_is_replaced_in_two_steps(job: Job, at: Callable[[timedelta], None]) -> None:
    """First all trust both; later runs issue by the new one. A certificate that cannot wait does not."""
    job.run()
    former, leaf = job.certificate(AUTHORITY), job.certificate(PD)
    job.api.put(AUTHORITY, {"previous.crt": job.api.data(AUTHORITY)["tls.crt"]})
    job.api.put(BROKER, {})
    said = job.run()
    assert f"{PD}: trusts other authorities now" in said and f"{BROKER}: issued: there was none" in said
    assert job.certificate(PD) == leaf and job.certificate(AUTHORITY) != former
    for secret in (PD, BROKER):
        assert len(x509.load_pem_x509_certificates(job.api.data(secret)["ca.crt"])) == 2
    assert "0 of 3" in job.run()
    at(SETTLE + timedelta(minutes=1))
    assert f"{PD}: issued: it was of another authority" in job.run()
    job.certificate(PD).verify_directly_issued_by(job.certificate(AUTHORITY))
    held = job.api.data(AUTHORITY)
    job.api.put(AUTHORITY, {key: value for key, value in held.items() if key != "previous.crt"})
    assert "3 of 3 Secrets changed" in job.run()
    assert len(x509.load_pem_x509_certificates(job.api.data(PD)["ca.crt"])) == 1


def test_a_certificate_of_a_stranger_is_replaced_at_once(job: Job) -> None:
    """Settling is for certificates of the former authority, not for any."""
    job.api.put(AUTHORITY, {"previous.crt": other_authority().certificate_pem})
    stranger = make_certificate(other_authority(), Principal(Role.PD, "rl-pd-0"), datetime.now(UTC), timedelta(days=90))
    job.api.put(PD, {"tls.crt": stranger.certificate_pem, "tls.key": stranger.key_pem})
    assert f"{PD}: issued: it was of another authority" in job.run()


def test_two_jobs_at_once_agree_on_one_authority(job: Job) -> None:
    """The second to write reads again, and takes the other one's."""
    others = make_authority(datetime.now(UTC))

    def another_was_first(name: str) -> None:
        if name == AUTHORITY and not job.api.data(AUTHORITY):
            data = {"ca.crt": others.certificate_pem, "tls.crt": others.certificate_pem, "tls.key": others.key_pem}
            job.api.put(AUTHORITY, data)

    job.api.before_write = another_was_first
    assert "2 of 3 Secrets changed" in job.run()
    assert job.certificate(AUTHORITY) == others.certificate
    job.certificate(PD).verify_directly_issued_by(others.certificate)


def test_conflicts_without_end(job: Job) -> None:
    """It gives up after some tries."""
    job.api.before_write = lambda name: job.api.put(name, {})
    assert f"Secret {AUTHORITY} was changed by another one meanwhile, in each of 5 tries" in job.fails()


@pytest.mark.parametrize("verb", ["get", "update"])
@pytest.mark.parametrize("secret", [AUTHORITY, PD])
def test_what_no_role_allows(job: Job, verb: str, secret: str) -> None:
    """One line with the Secret and the rights that are needed."""
    job.api.rules[secret].discard(verb)
    said = job.fails()
    assert f"Secret {secret} (403)" in said and "Role with get and update" in said and f"cannot {verb}" in said


def test_a_token_that_is_no_good(job: Job) -> None:
    """It is not in the message; one that is no token is not sent at all."""
    token = job.api.account / "token"
    token.write_text("expired")
    said = job.fails()
    assert "(401)" in said and "expired" not in said
    calls = len(job.api.calls)
    for wrong in ("", "a\r\nHost: x", "grün"):
        token.write_text(wrong)
        assert "service account's token" in job.fails()
    token.unlink()
    assert "service account's token" in job.fails()
    assert len(job.api.calls) == calls


def test_a_secret_that_the_chart_has_not_made(job: Job) -> None:
    """The job has no right to make any."""
    del job.api.secrets[PD]
    assert f"there is no Secret {PD} in namespace logs" in job.fails() and not job.api.writes()


def secret_like(name: str, data: object = None) -> bytes:
    return json.dumps({"kind": "Secret", "metadata": {"name": name, "resourceVersion": "1"}, "data": data}).encode()


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (500, b"", "cannot answer about Secret rl-pd-0-tls now (500): no reason given"),
        (429, b'{"message": "slow\\n down"}', "now (429): slow down"),
        (302, b"", "answers 302"),
        (200, b"<html>", "is none"),
        (200, b"[" * 100_000, "is none"),
        (200, secret_like("other"), "is none"),
        (200, secret_like(PD, {"a": "%"}), "is none"),
        (200, secret_like(PD, [1]), "is none"),
        (200, b" " * (kubernetes_api.ANSWER_BYTES_MAX + 1), "more than"),
    ],
    ids=["500", "429", "302", "html", "deep", "another", "base64", "list", "long"],
)  # fmt: skip
def test_strange_answers(job: Job, status: int, body: bytes, said: str) -> None:
    """Each is an error in a line, and nothing is written."""
    job.api.answers = lambda _method: (status, body)
    assert said in job.fails() and not job.api.writes()


def test_an_api_server_that_is_none(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another authority's, nobody at the port, one that never answers, no pod at all."""
    (job.api.account / "ca.crt").write_bytes(other_authority().certificate_pem)
    assert "cannot be asked" in job.fails() and not job.api.calls
    (job.api.account / "ca.crt").write_bytes(b"none")
    assert "has no authority of the API server" in job.fails()
    monkeypatch.setenv(kubernetes_api.HOST_ENV, "")
    assert "this command runs in a pod" in job.fails()


def test_a_name_is_one_part_of_the_path(job: Job) -> None:
    """Whatever is in it: it names no other thing of the API server."""
    secrets = kubernetes_api.KubernetesSecrets("127.0.0.1", job.api.port, job.api.account)
    for name in ("../configmaps/x", "x?y", "a/b"):
        with pytest.raises(kubernetes_api.AccessDenied):  # a Secret that nobody has a right on, and no other path
            secrets.read(name)
    assert [asked for _, asked, _ in job.api.calls] == ["..%2Fconfigmaps%2Fx", "x%3Fy", "a%2Fb"]


def test_silence_has_a_time_limit(job: Job) -> None:
    """The answer to a write that was not heard is unknown: the next run reads first."""
    silent = kubernetes_api.KubernetesSecrets("127.0.0.1", job.api.port, job.api.account, timeout_s=0.2)
    release = threading.Event()

    def wait(_method: str) -> None:
        release.wait(10)

    job.api.answers = wait
    with pytest.raises(kubernetes_api.RequestTimeout, match="has not answered within"):
        silent.read(PD)
    release.set()


@pytest.mark.parametrize(
    "change",
    [
        {"duration": "90 days"}, {"duration": "1m"}, {"duration": "20000h"}, {"duration": 5}, {"renew_before": "2160h"},
        {"authority": "../x"}, {"authority": PD}, {"certificates": {}}, {"certificates": [1]}, {"more": 1},
        {"certificates": [{**PLAN["certificates"][0], "role": "root"}]},
        {"certificates": [{**PLAN["certificates"][0], "name": "a/b"}]},
        {"certificates": [{**PLAN["certificates"][0], "name": 1}]},
        {"certificates": [{**PLAN["certificates"][0], "hosts": "x"}]},
        {"certificates": [{**PLAN["certificates"][0], "secret": "A B"}]},
        {"certificates": [PLAN["certificates"][0]] * 2},
    ],
    ids=json.dumps,
)  # fmt: skip
def test_plans_that_are_none(job: Job, change: dict[str, Any]) -> None:
    """Before the API server is asked."""
    job.plan({**PLAN, **change})
    job.fails()
    assert not job.api.calls


def test_files_that_are_no_plan(job: Job) -> None:
    """Too long, no JSON, not there; and hosts that no certificate can have."""
    for text in ("{", "[" * 100_000, " " * 2_000_000):
        job.path.write_text(text)
        assert "the plan" in job.fails()
    job.path.unlink()
    assert "cannot be read" in job.fails()
    first, second = PLAN["certificates"]
    job.plan({**PLAN, "certificates": [first, {**second, "hosts": ["grün"]}]})
    assert "neither an address nor a name" in job.fails() and not job.api.calls
