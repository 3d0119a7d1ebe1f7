"""All pods of a golden copy of the chart as processes, with what a cluster would give them: certificates, Secrets, names."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import yaml

from rangelog_cli.certs.authority import Authority, parse_principal
from tests.support.pods import Network, Pod
from tools.helm_golden import GOLDEN

SECRETS = {"rangelog-secrets": {"raft-secret": b"of the test"}}
DOMAIN = "logs.svc.cluster.local"
Contents = Mapping[str, Mapping[str, bytes]]


def rendered(golden: str) -> list[dict[str, Any]]:
    """The objects of a golden copy."""
    return [each for each in yaml.safe_load_all((GOLDEN / f"{golden}.yaml").read_text()) if each]


class Release:
    """All pods of a golden copy with TLS, and a namespace for programs.

    `secrets`, `config_maps`: what the release does not render itself. `names`: further ones, and the addresses they have.
    """

    def __init__(
        self, directory: Path, stack: ExitStack, golden: str, *, network: Network | None = None,
        secrets: Contents | None = None, config_maps: Contents | None = None, names: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        self.objects = rendered(golden)
        self.directory = directory
        self.network = network or Network(directory)
        if network is None:
            stack.callback(self.network.close)
        self.authority = Authority.create(directory / "authority")
        self.secrets: dict[str, Mapping[str, bytes]] = {**self._certificates(), **SECRETS, **(secrets or {})}
        self.config_maps = config_maps or {}
        self.pods: dict[str, Pod] = {}
        hosts = [self.network.hosts.read_text(), *(f"{address} {name}\n" for name, address in (names or {}).items())]
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

    def program(
        self, *arguments: str, role: str = "client", environment: Mapping[str, str] | None = None
    ) -> subprocess.Popen[str]:
        """A program in a namespace of its own, with a certificate of this role, or with this environment."""
        given = {"PATH": "/usr/bin:/bin", **(environment or {})}
        if environment is None:
            self.authority.issue(parse_principal(role, "test"), self.directory / role).to_environment(given)
        with (self.directory / "program.log").open("ab") as log:
            return subprocess.Popen(
                [*self.enter, sys.executable, *arguments], env=given, text=True, cwd="/",
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
            )  # fmt: skip

    def _of(self, *kinds: str) -> list[dict[str, Any]]:
        return [each for each in self.objects if each["kind"] in kinds]

    def _certificates(self) -> dict[str, Mapping[str, bytes]]:
        """What cert-manager would put into Secrets: by the names in the Certificates."""
        secrets: dict[str, Mapping[str, bytes]] = {}
        for each in self._of("Certificate"):
            spec = each["spec"]
            if not spec.get("isCA"):
                (uri,) = spec["uris"]
                role, _, name = uri.removeprefix("rangelog://").partition("/")
                out = self.directory / "issued" / spec["secretName"]
                made = self.authority.issue(parse_principal(role, name), out, hosts=tuple(spec.get("dnsNames", ())))
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
        pod = Pod(name, spec, enter, address, self.directory, volumes, self.secrets)
        for volume in spec["volumes"]:
            for path, content in self._content(volume, pod).items():
                target = volumes[volume["name"]] / path
                target.parent.mkdir(exist_ok=True)
                target.write_bytes(content)
                target.chmod(0o400)  # in a pod 0440, of root and the pod's group; here all are root's
        return pod

    def _content(self, volume: dict[str, Any], pod: Pod) -> dict[str, bytes]:
        if "configMap" in volume:
            name = volume["configMap"]["name"]
            if name in self.config_maps:
                return dict(self.config_maps[name])
            (found,) = [each for each in self._of("ConfigMap") if each["metadata"]["name"] == name]
            return {file: pod.place(text).encode() for file, text in found["data"].items()}
        if "secret" in volume:
            secret = self.secrets[volume["secret"]["secretName"]]
            items = volume["secret"].get("items") or [{"key": key, "path": key} for key in secret]
            return {item["path"]: secret[item["key"]] for item in items}
        return {
            item["path"]: self.secrets[source["secret"]["name"]][item["key"]]
            for source in volume.get("projected", {}).get("sources", ())
            for item in source["secret"]["items"]
        }
