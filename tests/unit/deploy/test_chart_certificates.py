"""The chart's job for certificates, and what the example `job` says of tokens, encryption and the page."""

from __future__ import annotations

from typing import Any

from rangelog_cli.certs.secret_plan import CertificatePlan, parse_plan
from rangelog_cli.main import cli
from tests.unit.deploy.test_chart import NAMES, component_of, objects, of_kind, pod_specs, process_owners, settings_of

NAME = "job"


def plan() -> CertificatePlan:
    (found,) = [each for each in of_kind(NAME, "ConfigMap") if "plan.json" in each.get("data", {})]
    return parse_plan(found["data"]["plan.json"].encode())


def secrets_of_volumes(spec: dict[str, Any]) -> set[str]:
    """The Secrets that a pod mounts."""
    found = {volume["secret"]["secretName"] for volume in spec["volumes"] if "secret" in volume}
    for volume in spec["volumes"]:
        found |= {source["secret"]["name"] for source in volume.get("projected", {}).get("sources", ())}
    return found


def test_the_plan_is_what_processes_mount() -> None:
    """Each pod's certificate is in the plan; the Secret of the authority, with its key, is in no pod."""
    wanted = {each.secret: str(each.principal) for each in plan().certificates}
    mounted = set().union(*(secrets_of_volumes(spec) for _, spec in pod_specs(NAME)))
    assert mounted - {"rangelog-keys"} == set(wanted) - {"rangelog-alice-tls", "rangelog-prometheus-tls"}
    assert plan().authority not in mounted
    for owner in process_owners(NAME):
        role, name = component_of(owner), owner["metadata"]["name"]
        pods = range(owner["spec"]["replicas"])
        expected = {"rangelog-broker-tls": "broker:*"} if role == "broker" else {}
        if role != "broker":
            expected = {f"{name}-{number}-tls": f"{role}:{name}-{number}" for number in pods}
        assert expected.items() <= wanted.items()
    assert wanted["rangelog-keeper-tls"] == "client:rangelog-keeper" and wanted["rangelog-alice-tls"] == "admin:alice"


def test_the_job_may_fill_its_secrets_and_nothing_else() -> None:
    """Its Role names them, and lets nobody make, list, delete or watch any; no other account is bound to it."""
    (role,), (binding,) = of_kind(NAME, "Role"), of_kind(NAME, "RoleBinding")
    (rule,) = role["rules"]
    names = {plan().authority, *(each.secret for each in plan().certificates)}
    assert set(rule["resourceNames"]) == names == {each["metadata"]["name"] for each in of_kind(NAME, "Secret")}
    assert rule["verbs"] == ["get", "update"] and rule["resources"] == ["secrets"] and rule["apiGroups"] == [""]
    assert [each["name"] for each in binding["subjects"]] == ["rangelog-certificates"]
    for component, spec in pod_specs(NAME):
        assert (spec["serviceAccountName"] == "rangelog-certificates") is (component == "certificates")
    for name in NAMES:
        kinds = {each["kind"] for each in objects(name)}
        assert bool(kinds & {"Role", "RoleBinding", "Job", "CronJob"}) is (name == NAME)
        assert not kinds & {"ClusterRole", "ClusterRoleBinding"}


def test_the_job_runs_once_and_then_every_day_the_same_command() -> None:
    """One that exists; a Job cannot be changed, so its name changes with what it does."""
    (job,), (timer,) = of_kind(NAME, "Job"), of_kind(NAME, "CronJob")
    template = timer["spec"]["jobTemplate"]["spec"]["template"]
    assert job["spec"]["template"] == template and job["metadata"]["name"].startswith("rangelog-certificates-")
    (container,) = template["spec"]["containers"]
    group, command, option, _ = container["args"]
    certs: Any = cli.commands[group]
    assert any(option in each.opts for each in certs.commands[command].params)
    assert timer["spec"]["concurrencyPolicy"] == "Forbid"


def test_tokens_encryption_and_the_page_reach_every_process() -> None:
    """Settings, and the files that they name."""
    for component, _, keys in settings_of(NAME):
        assert keys["tokens"] is True and keys["oidc_issuer"].startswith("https://")
        assert keys["encryption_keys_dir"] == "/etc/rangelog/keys"
        assert ("page_listen" in keys) is (component == "pd")
    for owner in process_owners(NAME):
        spec = owner["spec"]["template"]["spec"]
        (container,) = spec["containers"]
        paths = {mount["mountPath"] for mount in container["volumeMounts"]}
        assert {"/etc/rangelog/keys", "/etc/rangelog/trust"} <= paths
        assert ("/etc/rangelog/page" in paths) is (component_of(owner) == "pd")
        environment = {each["name"]: each.get("value") for each in container["env"]}
        assert environment["SSL_CERT_FILE"] == environment["AWS_CA_BUNDLE"] == "/etc/rangelog/trust/ca.crt"
        (keys_volume,) = [each["secret"] for each in spec["volumes"] if each["name"] == "keys"]
        assert keys_volume["defaultMode"] == 0o440 and spec["securityContext"]["fsGroup"] == 10001
    hosts = {each.secret: each.hosts for each in plan().certificates}
    assert "rangelog.example.org" in hosts["rangelog-pd-0-tls"] and not hosts["rangelog-rs-0-tls"]
    (page,) = [each for each in of_kind(NAME, "Service") if each["metadata"]["name"] == "rangelog-page"]
    assert [port["port"] for port in page["spec"]["ports"]] == [7250]
