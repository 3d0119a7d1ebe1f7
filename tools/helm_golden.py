"""`make helm`: the chart by helm itself. Lints it, renders it for each example, compares with helm/golden, validates.

What holds: helm/golden/NAME.yaml is what helm renders from the chart with the values of NAME. Its first line has the digest
of the chart's files, so that the tests, which have no helm, see when the two do not belong together.

Example: `python tools/helm_golden.py --helm build/bin/helm`; `--update` writes the golden copy anew.
"""

from __future__ import annotations

import argparse
import hashlib
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CHART = ROOT / "helm" / "rangelog"
GOLDEN = ROOT / "helm" / "golden"
RELEASE, NAMESPACE, KUBERNETES = "rangelog", "logs", "1.33.0"
"""What the golden copies are rendered for."""
DIGEST_LINE = "# digest of the chart: "
COPIES = {
    CHART / "files" / "rules.yml": ROOT / "deploy" / "prometheus" / "rules.yml",
    CHART / "files" / "dashboard.json": ROOT / "deploy" / "grafana" / "rangelog.json",
}
"""Files that helm must find in the chart, and where they come from."""

REFUSED = (
    ("pd.replicas=1", "initialMembers"),
    ("pd.replicas=2", "pd.replicas"),
    ("rangeServer.replicas=3", "rangeServer"),
    (("rangeServers.zones[0].name=a,rangeServers.zones[0].nodeZone=x,rangeServers.zones[0].replicas=1,"
     "rangeServers.zones[1].name=a,rangeServers.zones[1].nodeZone=y,rangeServers.zones[1].replicas=1"), "each name once"),
    ("monitoring.serviceMonitor.enabled=true", "tlsSecret"),
    ("tls.mode=none,tokens.enabled=true", "tokens.enabled"),
    ("encryption.keys.secret=a,encryption.keys.kmsKeyId=b", "encryption.keys"),
    ("tokens.enabled=true,tokens.oidc.issuer=https://sso.example.org", "tokens.oidc"),
    ("tls.mode=secrets,pd.page.enabled=true", "tls.secrets.page"),
    ("pd.config.encryption_keys_dir=/keys", "pd.config"),
    (("tls.mode=job,tls.job.clients[0].secret=rangelog-pd-0-tls,tls.job.clients[0].role=admin,"
     "tls.job.clients[0].name=alice"), "each secret once"),
)  # fmt: skip
"""Values that helm must refuse, and what its message names."""


def chart_digest(chart: Path = CHART) -> str:
    """Return a digest over the names and the bytes of all files of the chart, its examples included."""
    digest = hashlib.sha256()
    for path in sorted(each for each in chart.rglob("*") if each.is_file()):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(chart).as_posix()}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()


def renderings(chart: Path = CHART) -> dict[str, list[str]]:
    """Return what is rendered: the name of the golden copy → further arguments of `helm template`."""
    examples = sorted((chart / "examples").glob("*.yaml"))
    return {"default": []} | {path.stem: ["--values", str(path)] for path in examples}


def render(helm: str, arguments: list[str]) -> str:
    """Return what helm renders. Raises CalledProcessError, with helm's message in `stderr`."""
    command = [
        helm,
        "template",
        RELEASE,
        str(CHART),
        "--namespace",
        NAMESPACE,
        "--kube-version",
        KUBERNETES,
        *arguments,
    ]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout


def accepted_wrongly(helm: str) -> list[str]:
    """Return those of REFUSED that helm renders, or refuses for another reason."""
    wrong = []
    for values, named in REFUSED:
        try:
            render(helm, ["--set", values])
        except subprocess.CalledProcessError as error:
            if named in error.stderr:
                continue
        wrong.append(values)
    return wrong


def main() -> int:
    """Return 0 if the chart is sound and the golden copies are of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--helm", default="helm", help="the program")
    parser.add_argument("--update", action="store_true", help="write the golden copies")
    options = parser.parse_args()
    if options.update:
        for copy, source in COPIES.items():
            copy.write_bytes(source.read_bytes())
    stale = []
    for name, arguments in renderings().items():
        lint = [options.helm, "lint", "--strict", "--quiet", "--kube-version", KUBERNETES, str(CHART), *arguments]
        try:
            subprocess.run(lint, check=True, capture_output=True, text=True, timeout=60)
            rendered = f"{DIGEST_LINE}{chart_digest()}\n" + render(options.helm, arguments)
        except subprocess.CalledProcessError as error:
            print(f"helm: {name}: {error.stdout}{error.stderr}", file=sys.stderr)
            return 1
        path = GOLDEN / f"{name}.yaml"
        if options.update:
            path.write_text(rendered)
        elif not path.exists() or path.read_text() != rendered:
            stale.append(path.name)
    stale += [path.name for path in GOLDEN.glob("*.yaml") if path.stem not in renderings()]
    if stale:
        print(f"helm/golden is not of this chart: {', '.join(stale)}: make helm UPDATE=1, and read the difference")
        return 1
    if wrong := accepted_wrongly(options.helm):
        print(f"helm: values that must be refused are not: {'; '.join(wrong)}")
        return 1
    print(f"helm: lint and {len(renderings())} renderings are in order, {len(REFUSED)} bad values are refused")
    return 0


if __name__ == "__main__":
    sys.exit(main())
