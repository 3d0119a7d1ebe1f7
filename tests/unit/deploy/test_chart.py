"""The golden copies of the chart are of this chart, Kubernetes takes them, and they keep what docs/kubernetes.md promises."""

from __future__ import annotations

import copy
import json
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from rangelog_broker.settings import BrokerSettings
from rangelog_pd.settings import PdSettings
from rangelog_server.settings import RangeServerSettings
from tools import helm_golden

CHART, GOLDEN = helm_golden.CHART, helm_golden.GOLDEN
NAMES = sorted(helm_golden.renderings())
VERSIONS = ("1.29", "1.37")
CUSTOM_KINDS = {"Certificate", "Issuer", "ServiceMonitor", "PrometheusRule"}
"""Of operators: kubernetes-validate has no schema of them."""
POD_OWNERS = ("StatefulSet", "Deployment")
PROCESSES = ("pd", "range-server", "broker")
LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The same by libyaml, where it is there: a tenth of the time."""


@pytest.fixture(scope="module", autouse=True)
def _schemas_read_once() -> Iterator[None]:
    """A schema of Kubernetes is a file of many definitions, which the validator reads twice for each object."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kubernetes_validate.utils, "schema_contents", cache(kubernetes_validate.utils.schema_contents))
        yield


@cache
def objects(name: str) -> list[dict[str, Any]]:
    """The objects of a golden copy."""
    return [each for each in yaml.load_all((GOLDEN / f"{name}.yaml").read_text(), LOADER) if each]


def of_kind(name: str, *kinds: str) -> list[dict[str, Any]]:
    return [each for each in objects(name) if each["kind"] in kinds]


def component_of(owner: dict[str, Any]) -> str:
    return str(owner["metadata"]["labels"]["app.kubernetes.io/component"])


def process_owners(name: str) -> list[dict[str, Any]]:
    """Whoever has pods with processes of rangelog: all but the keeper and the jobs."""
    return [each for each in of_kind(name, *POD_OWNERS) if component_of(each) in PROCESSES]


def pod_specs(name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every pod, jobs' too: its component and what it is."""
    for each in of_kind(name, *POD_OWNERS, "Job", "CronJob"):
        spec = each["spec"].get("jobTemplate", each)["spec"]
        yield component_of(each), spec["template"]["spec"]


def test_every_golden_copy_is_of_this_chart() -> None:
    """A chart that was changed without `make helm UPDATE=1` fails here, where there is no helm."""
    assert {path.stem for path in GOLDEN.glob("*.yaml")} == set(NAMES)
    for name in NAMES:
        first = (GOLDEN / f"{name}.yaml").read_text().partition("\n")[0]
        assert first == helm_golden.DIGEST_LINE + helm_golden.chart_digest(), f"{name}: make helm UPDATE=1"


def test_the_digest_sees_every_byte_and_every_name(tmp_path: Path) -> None:
    """Else a stale copy would pass."""
    (tmp_path / "a").write_text("one")
    digests = {helm_golden.chart_digest(tmp_path)}
    (tmp_path / "a").write_text("two")
    digests.add(helm_golden.chart_digest(tmp_path))
    (tmp_path / "a").rename(tmp_path / "b")
    digests.add(helm_golden.chart_digest(tmp_path))
    (tmp_path / "c").touch()
    digests.add(helm_golden.chart_digest(tmp_path))
    assert len(digests) == 4


def test_rules_and_dashboard_of_the_chart_are_those_of_deploy() -> None:
    """Helm reads only files of the chart, so they are there twice."""
    for copied, source in helm_golden.COPIES.items():
        assert copied.read_bytes() == source.read_bytes(), f"{copied.name}: make helm UPDATE=1"


@pytest.mark.parametrize("name", NAMES)
def test_kubernetes_takes_every_object(name: str) -> None:
    """By the schemas of two versions; the kinds of operators are known by name."""
    for each in objects(name):
        if each["kind"] in CUSTOM_KINDS:
            continue
        for version in VERSIONS:
            kubernetes_validate.validate(each, version, strict=True)


def test_a_wrong_object_is_refused() -> None:
    """The validator can fail."""
    wrong = copy.deepcopy(of_kind("default", "StatefulSet")[0])
    wrong["spec"]["template"]["spec"]["containers"][0]["livenessProb"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, VERSIONS[0], strict=True)


@pytest.mark.parametrize("name", NAMES)
def test_pods_have_no_rights(name: str) -> None:
    """No root, no writable root file system, no capability, no privilege to gain; only the job has a token of the API."""
    specs = list(pod_specs(name))
    assert len(specs) >= 4
    for component, spec in specs:
        assert spec["automountServiceAccountToken"] is (component == "certificates")
        assert spec["enableServiceLinks"] is False
        assert spec["securityContext"]["runAsNonRoot"] is True and spec["securityContext"]["runAsUser"] > 0
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        (container,) = spec["containers"]
        security = container["securityContext"]
        assert security["readOnlyRootFilesystem"] is True and security["allowPrivilegeEscalation"] is False
        assert security["capabilities"] == {"drop": ["ALL"]}
        assert {"requests", "limits"} <= set(container["resources"])
        mounted = {mount["name"] for mount in container["volumeMounts"]}
        assert mounted - {"data"} == {volume["name"] for volume in spec["volumes"]}
    for account in of_kind(name, "ServiceAccount"):
        assert account["automountServiceAccountToken"] is False


@pytest.mark.parametrize("name", NAMES)
def test_every_pod_may_stop_in_time_and_is_asked_for_its_state(name: str) -> None:
    """The grace time covers preStop, with time to stop; the three probes ask the metrics port by the image's own command."""
    for owner in process_owners(name):
        spec = owner["spec"]["template"]["spec"]
        (container,) = spec["containers"]
        if "lifecycle" not in container:
            assert component_of(owner) == "pd" and owner["spec"]["replicas"] == 1, "nobody could take its place"
        else:
            command = container["lifecycle"]["preStop"]["exec"]["command"]
            waits = sum(map(int, re.findall(r"(?:--wait|--wait-s|^) ?([0-9]+)", command[-1])))
            assert waits and spec["terminationGracePeriodSeconds"] >= waits + 30
        for probe, asked in (("startupProbe", "live"), ("livenessProbe", "live"), ("readinessProbe", "ready")):
            assert container[probe]["exec"]["command"][:3] == ["rangelog", "healthcheck", asked]
            assert container[probe]["timeoutSeconds"] >= 5


def settings_of(name: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield (kind of process, pod, keys) for each pod that reads a file, with what its environment adds."""
    for each in of_kind(name, "ConfigMap"):
        for file, text in each["data"].items():
            if file.endswith(".toml"):
                yield (
                    each["metadata"]["labels"]["app.kubernetes.io/component"],
                    file.removesuffix(".toml"),
                    tomllib.loads(text),
                )


@pytest.mark.parametrize("name", NAMES)
def test_the_programs_take_their_files(name: str) -> None:
    """Each TOML file, with the name from the environment, is a valid configuration."""
    kinds = set()
    for component, pod, keys in settings_of(name):
        kinds.add(component)
        tls = {} if keys["insecure"] else {"tls_ca": "ca.crt", "tls_cert": "tls.crt", "tls_key": "tls.key"}
        if component == "pd":
            PdSettings(**keys, **tls, name=pod, raft_secret="s")
        elif component == "range-server":
            RangeServerSettings(**keys, **tls, name="rs-0", advertise_host="rs-0.rs")
        else:
            BrokerSettings(**keys, **tls, name="b-0", advertise_host="10.0.0.1")
    assert kinds == {"pd", "range-server", "broker"}


@pytest.mark.parametrize("name", NAMES)
def test_ports_of_files_pods_services_and_policies_are_the_same(name: str) -> None:
    """What a process listens on is what its pod names, what its service finds, and what its policy lets in."""
    files: dict[str, set[int]] = {}
    for component, _, keys in settings_of(name):
        listens = [value for key, value in keys.items() if key.endswith("listen") and value]
        files.setdefault(component, set()).update(int(each.rpartition(":")[2]) for each in listens)
    for owner in process_owners(name):
        component = component_of(owner)
        (container,) = owner["spec"]["template"]["spec"]["containers"]
        assert {port["containerPort"] for port in container["ports"]} == files[component]
    for service in of_kind(name, "Service"):
        component = service["metadata"]["labels"]["app.kubernetes.io/component"]
        assert {port["port"] for port in service["spec"]["ports"]} <= files[component]
    for policy in of_kind(name, "NetworkPolicy"):
        component = policy["metadata"]["labels"].get("app.kubernetes.io/component", "")
        if not component:  # of the pods that listen on nothing
            assert policy["spec"]["ingress"] == []
            continue
        allowed = {port["port"] for rule in policy["spec"]["ingress"] for port in rule["ports"]}
        assert allowed == files[component]


def test_only_placement_drivers_reach_the_raft_port() -> None:
    """Whatever `networkPolicy.clients` says."""
    for name in NAMES:
        (policy,) = [each for each in of_kind(name, "NetworkPolicy") if each["metadata"]["name"].endswith("-pd")]
        (rule,) = [rule for rule in policy["spec"]["ingress"] if any(port["port"] == 7140 for port in rule["ports"])]
        (peer,) = rule["from"]
        assert peer["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == "pd"


def test_members_find_each_other_before_they_are_ready() -> None:
    """Headless services with addresses of pods that are not ready; all pods of a set start at once."""
    for name in NAMES:
        for owner in of_kind(name, "StatefulSet"):
            (service,) = [
                each for each in of_kind(name, "Service") if each["metadata"]["name"] == owner["spec"]["serviceName"]
            ]
            assert service["spec"]["clusterIP"] == "None" and service["spec"]["publishNotReadyAddresses"] is True
            assert owner["spec"]["podManagementPolicy"] == "Parallel"


def test_a_pod_that_is_added_to_a_group_joins_it() -> None:
    """On its empty disk it must not begin a group of its own."""
    keys = {pod: each for component, pod, each in settings_of("grown") if component == "pd"}
    assert [pod for pod, each in keys.items() if "join" in each] == ["rangelog-pd-3", "rangelog-pd-4"]
    assert all(list(each["members"]) == sorted(keys)[:3] for each in keys.values() if "members" in each)


@pytest.mark.parametrize("name", NAMES)
def test_budgets_let_one_pod_of_a_kind_go_at_a_time(name: str) -> None:
    """Over all zones: a budget selects the pods of every StatefulSet of its component."""
    for owner in of_kind(name, *POD_OWNERS):
        labels = owner["spec"]["template"]["metadata"]["labels"]
        assert [each["maxUnavailable"] for each in budgets_of(name, labels)] == [1]


def budgets_of(name: str, labels: dict[str, str]) -> list[dict[str, Any]]:
    """The budgets that select a pod."""
    return [
        each["spec"] for each in of_kind(name, "PodDisruptionBudget")
        if each["spec"]["selector"]["matchLabels"].items() <= labels.items()
    ]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_the_keeper_decides_whether_a_range_server_is_evicted(name: str) -> None:
    """Counted as the disruption controller does it: healthy pods beyond those that the budget wants may be evicted."""
    pods, budget = {}, {}
    for owner in of_kind(name, *POD_OWNERS):
        if component_of(owner) in ("range-server", "keeper"):
            (budget,) = budgets_of(name, owner["spec"]["template"]["metadata"]["labels"])
            pods[owner["metadata"]["name"]] = owner["spec"]["replicas"]
    servers, expected = sum(pods.values()) - 1, sum(pods.values())
    assert pods["rangelog-keeper"] == 1 and servers >= 3

    def may_be_evicted(ready_servers: int, *, keeper: bool) -> int:
        return max(0, ready_servers + keeper - (expected - budget["maxUnavailable"]))

    assert may_be_evicted(servers, keeper=True) == 1
    assert may_be_evicted(servers, keeper=False) == 0
    assert may_be_evicted(servers - 1, keeper=True) == 0
    others = [each for each in process_owners(name) if component_of(each) != "range-server"]
    for owner in others:
        assert budget not in budgets_of(name, owner["spec"]["template"]["metadata"]["labels"])


def test_the_keeper_is_ready_by_what_pdctl_says() -> None:
    """Its probe is a command that exists, and one no is enough."""
    (keeper,) = [each for each in of_kind("default", "Deployment") if component_of(each) == "keeper"]
    (container,) = keeper["spec"]["template"]["spec"]["containers"]
    probe = container["readinessProbe"]
    assert probe["failureThreshold"] == 1 and probe["exec"]["command"][-3:] == ["server", "check-impact", "--any"]
    assert float(probe["exec"]["command"][2]) < probe["timeoutSeconds"]
    assert not {"livenessProbe", "lifecycle"} & set(container)


def test_a_placement_driver_hands_its_lead_over_before_it_stops() -> None:
    """After it was told whether it may go; and where nobody could take its place, it waits for nothing."""
    for name in NAMES:
        (owner,) = [each for each in process_owners(name) if component_of(each) == "pd"]
        hook = owner["spec"]["template"]["spec"]["containers"][0].get("lifecycle")
        assert (hook is None) == (owner["spec"]["replicas"] == 1)
        if hook is not None:
            _, _, script = hook["preStop"]["exec"]["command"]
            assert script.index("server check-impact") < script.index("pd transfer-leader --away-from")


def test_each_zone_is_pinned_and_never_updated_beside_another() -> None:
    """Several StatefulSets roll at the same time; so theirs wait for an operator."""
    sets = [each for each in of_kind("s3", "StatefulSet") if "-rs-" in each["metadata"]["name"]]
    assert len(sets) == 3
    for each in sets:
        assert each["spec"]["updateStrategy"]["type"] == "OnDelete"
        spec = each["spec"]["template"]["spec"]
        environment = {item["name"]: item.get("value") for item in spec["containers"][0]["env"]}
        terms = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
        assert terms[0]["matchExpressions"][0]["values"] == [f"eu-west-1{environment['RANGELOG_SERVER_ZONE']}"]


def test_each_pod_of_a_stateful_set_has_a_certificate_of_its_name() -> None:
    """rangelog://ROLE/POD and ROLE.rangelog, for servers and clients; brokers share rangelog://broker/*."""
    for name in ("default", "grown", "s3"):
        pods = {"rangelog://broker/*", "rangelog://client/rangelog-keeper"}
        for owner in of_kind(name, "StatefulSet"):
            role = owner["metadata"]["labels"]["app.kubernetes.io/component"]
            set_name = owner["metadata"]["name"]
            pods |= {f"rangelog://{role}/{set_name}-{number}" for number in range(owner["spec"]["replicas"])}
        made = [each["spec"] for each in of_kind(name, "Certificate") if not each["spec"].get("isCA")]
        assert {uri for spec in made for uri in spec["uris"]} == pods and len(made) == len(pods)
        for spec in made:
            role = spec["uris"][0].removeprefix("rangelog://").partition("/")[0]
            is_server = role in PROCESSES
            assert "client auth" in spec["usages"] and ("server auth" in spec["usages"]) is is_server
            assert spec.get("dnsNames", [""])[0] == (f"{role}.rangelog" if is_server else "")


def test_scrapes_use_tls_and_the_names_that_rules_ask_for() -> None:
    """Job rangelog, labels name and role; the server is known by its role's DNS name."""
    monitors = of_kind("s3", "ServiceMonitor")
    assert len(monitors) == 3
    for each in monitors:
        (endpoint,) = each["spec"]["endpoints"]
        role = each["metadata"]["labels"]["app.kubernetes.io/component"]
        assert endpoint["scheme"] == "https" and endpoint["tlsConfig"]["serverName"] == f"{role}.rangelog"
        assert {rule["targetLabel"] for rule in endpoint["relabelings"]} == {"job", "name", "role"}
    (rules,) = of_kind("s3", "PrometheusRule")
    assert rules["spec"] == yaml.safe_load((CHART / "files" / "rules.yml").read_text())


def test_no_secret_is_in_the_chart() -> None:
    """Secrets are named, never rendered; but those that the job fills, empty and kept."""
    for name in NAMES:
        made = of_kind(name, "Secret")
        assert bool(made) == (name == "job")
        for each in made:
            assert not {"data", "stringData"} & set(each)
            assert each["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}


# ---- values


def merged(values: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Values as helm merges them."""
    result = dict(values)
    for key, value in changes.items():
        result[key] = (
            merged(result[key], value) if isinstance(value, dict) and isinstance(result.get(key), dict) else value
        )
    return result


DEFAULTS = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA = json.loads((CHART / "values.schema.json").read_text())


@pytest.mark.parametrize(
    "path", [None, *sorted((CHART / "examples").glob("*.yaml"))], ids=lambda path: getattr(path, "stem", "default")
)
def test_the_schema_takes_good_values(path: Path | None) -> None:
    """The defaults and each example."""
    jsonschema.validate(merged(DEFAULTS, yaml.safe_load(path.read_text()) if path else {}), SCHEMA)


@pytest.mark.parametrize(
    "changes",
    [
        {"rangeserver": {}},
        {"pd": {"replica": 3}},
        {"pd": {"replicas": 2}},
        {"pd": {"replicas": "3"}},
        {"pd": {"initialMembers": 4}},
        {"pd": {"config": {"members": {}}}},
        {"pd": {"config": {"raft_secret": "in plain sight"}}},
        {"pd": {"config": {"insecure": True}}},
        {"pd": {"storage": {"size": "ten"}}},
        {"pd": {"stopWaitSeconds": 0}},
        {"rangeServers": {"replicas": 0}},
        {"rangeServers": {"config": {"advertise_host": "x"}}},
        {"rangeServers": {"zones": [{"name": "a", "replicas": 2}]}},
        {"rangeServers": {"zones": [{"name": "Zone A", "nodeZone": "a", "replicas": 2}]}},
        {"rangeServers": {"zoneFromPodLabel": True, "zones": [{"name": "a", "nodeZone": "a", "replicas": 2}]}},
        {"brokers": {"replicas": -1}},
        {"image": {"tag": "latest"}},
        {"image": {"repository": "rangelog; rm -rf /"}},
        {"tls": {"mode": "off"}},
        {"tls": {"mode": None}},
        {"tls": {"createAuthority": False}},
        {"tls": {"issuerRef": {"name": "mine"}}},
        {"tls": {"duration": "90 days"}},
        {"tier": {"url": "file:///var/objects"}},
        {"tier": {"url": "https://bucket"}},
        {"topologySpread": {"zone": "Maybe"}},
        {"secrets": {"existingSecret": ""}},
        {"monitoring": {"serviceMonitor": {"enabled": "yes"}}},
        {"tls": {"job": {"schedule": "daily"}}},
        {"tls": {"job": {"clients": [{"secret": "x", "role": "pd", "name": "rs1"}]}}},
        {"tls": {"job": {"clients": [{"secret": "x", "role": "admin", "name": "a/b"}]}}},
        {"tls": {"mode": "none"}, "tokens": {"enabled": True}},
        {"tls": {"mode": "secrets"}, "pd": {"page": {"enabled": True}}},
        {"tokens": {"oidc": {"issuer": "https://sso.example.org", "audience": "x", "jwks": "https://sso.example.org/k"}}},
        {"tokens": {"enabled": True, "oidc": {"issuer": "https://sso.example.org", "audience": "x"}}},
        {"tokens": {"enabled": True, "oidc": {"issuer": "http://sso.example.org"}}},
        {"tokens": {"enabled": True, "oidc": {"jwks": "https://sso.example.org/k"}}},
        {"encryption": {"keys": {"secret": "a", "kmsKeyId": "alias/b"}}},
        {"encryption": {"keys": {"dir": "/etc"}}},
        {"trust": {"configMap": "x", "key": "a b"}},
        {"pd": {"page": {"role": "pd"}}},
        {"pd": {"config": {"tier_url": "s3://b/p"}}},
        {"brokers": {"config": {"tokens": True}}},
        {"rangeServers": {"config": {"encryption_keys_dir": "/x"}}},
        {"budgetKeeper": {"replicas": 2}},
    ],
    ids=json.dumps,
)  # fmt: skip
def test_the_schema_refuses(changes: dict[str, Any]) -> None:
    """Each wrong value, before anything is rendered."""
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(merged(DEFAULTS, changes), SCHEMA)


def test_every_object_of_the_schema_is_closed() -> None:
    """A key that nobody reads is a mistake, and is said."""

    def walk(schema: dict[str, Any], at: str) -> Iterator[str]:
        if schema.get("type") == "object" and "properties" in schema:
            if schema.get("additionalProperties") is not False:
                yield at
            for key, value in schema["properties"].items():
                yield from walk(value, f"{at}.{key}")

    assert not list(walk(SCHEMA, "values"))
