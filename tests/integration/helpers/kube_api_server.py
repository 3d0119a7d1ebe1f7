"""A real API server of Kubernetes, with etcd behind it, on loopback: no nodes and no controllers, so nothing runs by it.

What holds: it validates, admits and stores objects, and decides who may do what, as any cluster
does. `make kubernetes` builds it.
"""

from __future__ import annotations

import json
import secrets
import shutil
import ssl
import subprocess
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from rangelog_cli.local.ports import LOOPBACK, free_ports
from tests.support.waiting import Seen, eventually
from tools.helm_golden import CHART, ROOT

PROGRAM, HELM = ROOT / "build" / "bin" / "kube-apiserver", ROOT / "build" / "bin" / "helm"
START_S = 60.0
CUSTOM = {
    "certificates": ("cert-manager.io", "v1", "Certificate"),
    "issuers": ("cert-manager.io", "v1", "Issuer"),
    "servicemonitors": ("monitoring.coreos.com", "v1", "ServiceMonitor"),
    "prometheusrules": ("monitoring.coreos.com", "v1", "PrometheusRule"),
}
"""Kinds of operators, which take whatever they are given here."""


def missing() -> str:
    """Why there is no API server here; empty: there is one."""
    for path in (PROGRAM, HELM):
        if not path.exists():
            return f"there is no {path.relative_to(ROOT)}: make kubernetes"
    return "" if shutil.which("etcd") else "there is no program etcd"


class KubeApiServer:
    """Started at once; `close` ends it. Its administrator has a token of this test."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        etcd, peers, self.port = free_ports(3)
        self.token = secrets.token_hex(16)
        (directory / "tokens.csv").write_text(f'{self.token},admin,1,"system:masters"\n')
        self._keys()
        client = f"http://{LOOPBACK}:{etcd}"
        self._processes = [
            self._start("etcd", "--data-dir", str(directory / "etcd"), "--listen-client-urls", client,
                        "--advertise-client-urls", client, "--listen-peer-urls", f"http://{LOOPBACK}:{peers}"),
            self._start(
                str(PROGRAM), "--etcd-servers", client, "--secure-port", str(self.port), "--bind-address", LOOPBACK,
                "--cert-dir", str(directory / "certs"), "--service-cluster-ip-range", "10.96.0.0/16",
                "--token-auth-file", str(directory / "tokens.csv"), "--authorization-mode", "RBAC",
                "--service-account-issuer", "https://kubernetes.default.svc",
                "--service-account-key-file", str(directory / "accounts.pub"),
                "--service-account-signing-key-file", str(directory / "accounts.key"),
                "--disable-admission-plugins", "ServiceAccount",  # it needs a controller
            ),
        ]  # fmt: skip
        self.config = directory / "kubeconfig"
        self.config.write_text(json.dumps(self._config()))
        eventually(self._serves, "the API server does not serve", START_S)

    def close(self) -> None:
        """End both."""
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def call(self, method: str, path: str, body: object = None, token: str = "") -> tuple[int, dict[str, Any]]:
        """Return status and answer of a call, as the administrator or by another token."""
        request = urllib.request.Request(f"https://{LOOPBACK}:{self.port}{path}", method=method)
        request.add_header("Authorization", f"Bearer {token or self.token}")
        if body is not None:
            request.add_header("Content-Type", "application/json")
            request.data = json.dumps(body).encode()
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=self._context())
        )
        try:
            with opener.open(request, timeout=20) as response:
                return response.status, json.loads(response.read())
        except urllib.error.HTTPError as error:
            text = error.read()
            return error.code, json.loads(text) if text.startswith(b"{") else {"message": text.decode()}

    def make(self, path: str, body: object) -> dict[str, Any]:
        """Make an object; it must be accepted."""
        status, answer = self.call("POST", path, body)
        assert status == 201, answer
        return answer

    def namespace(self, name: str) -> None:
        """Make a namespace that admits only pods without rights."""
        labels = {"pod-security.kubernetes.io/enforce": "restricted"}
        self.make("/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})

    def know_custom_kinds(self) -> None:
        """Accept the kinds of operators."""
        for plural, (group, version, kind) in CUSTOM.items():
            schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
            served = {"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
            names = {"plural": plural, "singular": kind.lower(), "kind": kind}
            spec = {"group": group, "scope": "Namespaced", "names": names, "versions": [served]}
            path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
            self.make(path, {"metadata": {"name": f"{plural}.{group}"}, "spec": spec})
            served_path = f"/apis/{group}/{version}/namespaces/default/{plural}"
            eventually(lambda path=served_path: self.call("GET", path)[0] == 200, f"{kind} is not served", START_S)  # type: ignore[misc]

    def helm(self, *arguments: str) -> str:
        """Run helm against it; it must succeed."""
        done = subprocess.run(
            [str(HELM), *arguments, "--kubeconfig", str(self.config)], capture_output=True, text=True, timeout=120,
            env={"PATH": "/usr/bin:/bin", "HOME": str(self.directory)},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    def install(self, verb: str, namespace: str, *arguments: str) -> str:
        """`helm install` or `helm upgrade` of the chart as `rangelog`."""
        return self.helm(verb, "rangelog", str(CHART), "--namespace", namespace, *arguments)

    def _start(self, *command: str) -> subprocess.Popen[bytes]:
        with (self.directory / f"{Path(command[0]).name}.log").open("wb") as log:
            return subprocess.Popen(command, stdout=log, stderr=log)

    def _keys(self) -> None:
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        public = key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        (self.directory / "accounts.key").write_bytes(private)
        (self.directory / "accounts.pub").write_bytes(public)

    def _context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.authority))

    @property
    def authority(self) -> Path:
        """The file by which its certificate is checked: it signs itself."""
        return self.directory / "certs" / "apiserver.crt"

    def _config(self) -> dict[str, Any]:
        cluster = {"server": f"https://{LOOPBACK}:{self.port}", "certificate-authority": str(self.authority)}
        return {
            "apiVersion": "v1", "kind": "Config", "current-context": "it",
            "users": [{"name": "it", "user": {"token": self.token}}],
            "clusters": [{"name": "it", "cluster": cluster}],
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
        }  # fmt: skip

    def _serves(self) -> Seen:
        log = (self.directory / "kube-apiserver.log").read_text()[-2_000:]
        assert all(each.poll() is None for each in self._processes), log
        try:
            paths = ("/version", "/api/v1/namespaces/default") if self.authority.exists() else ("",)
            return Seen(all(path and self.call("GET", path)[0] == 200 for path in paths), log)
        except (OSError, ssl.SSLError, ValueError):
            return Seen(holds=False, value=log)
