"""The chart's job for certificates as a process: the command of its rendered pod, with a service account at its usual path."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_IN_POD = (
    "mount -t tmpfs none /run && mkdir -p /run/secrets/kubernetes.io/serviceaccount"
    ' && mount --bind "$1" /run/secrets/kubernetes.io/serviceaccount && shift && exec "$@"'
)
"""In a mount namespace of its own, so that nobody else sees it."""


def run_job(
    job: Mapping[str, Any], plan: str, account: Path, port: int, directory: Path
) -> subprocess.CompletedProcess[str]:
    """Run the pod of a Job once, against an API server on loopback."""
    (container,) = job["spec"]["template"]["spec"]["containers"]
    (mount,) = container["volumeMounts"]
    path = directory / "plan"
    path.mkdir(exist_ok=True)
    (path / "plan.json").write_text(plan)
    arguments = [each.replace(mount["mountPath"], str(path)) for each in container["args"]]
    program = [str(Path(sys.executable).parent / "rangelog"), *arguments]
    environment = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(port)}
    environment["PATH"] = "/usr/bin:/bin:/usr/sbin:/sbin"
    return subprocess.run(
        ["unshare", "--mount", "sh", "-c", _IN_POD, "sh", str(account), *program], env=environment,
        text=True, capture_output=True, timeout=120,
    )  # fmt: skip
