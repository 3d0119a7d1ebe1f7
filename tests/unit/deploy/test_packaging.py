"""The image, the compose file and the systemd units, as far as that goes without Docker and an installation."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

import hatch_build
from rangelog_broker.settings import BrokerSettings
from rangelog_cli.main import cli
from rangelog_cli.servers import BROKER_ENV_PREFIX, PD_ENV_PREFIX, SERVER_ENV_PREFIX
from rangelog_core.net.tls import Certificates, TlsConfig
from rangelog_core.stream_defaults import HOT_RETENTION_MS_DEFAULT
from rangelog_pd.settings import PdSettings
from rangelog_server.settings import RangeServerSettings
from rangelog_server_common.settings import load_settings
from tests.support.dockerfile import instructions
from tools import image_requirements, package_sizes

ROOT = Path(__file__).resolve().parents[3]
UNITS = sorted((ROOT / "deploy" / "systemd").glob("*.service"))
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())
COMPOSE_TLS: dict[str, Any] = yaml.safe_load((ROOT / "compose.tls.yaml").read_text())
PROCESSES = [
    name for name, service in COMPOSE["services"].items() if "command" in service and service["image"] == "rangelog"
]
KINDS = {
    "pd": (PdSettings, PD_ENV_PREFIX),
    "range-server": (RangeServerSettings, SERVER_ENV_PREFIX),
    "broker": (BrokerSettings, BROKER_ENV_PREFIX),
}


def test_each_file_that_the_image_copies_exists_and_is_not_ignored() -> None:
    """And the package has no folder that the image lacks."""
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert "*" in ignored
    copied = set()
    for name, text in instructions(ROOT / "Dockerfile"):
        if name == "COPY" and not text.startswith("--from"):
            *sources, _ = text.split()
            copied.update(sources)
    for source in copied:
        assert (ROOT / source).exists(), source
        assert f"!{source}" in ignored, f"{source} is not let through by .dockerignore"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert {each.partition("/")[0] for each in packages} <= copied


def test_the_image_has_a_pinned_base_no_root_and_a_probe() -> None:
    """Its last stage ends as the user that the chart says."""
    steps = instructions(ROOT / "Dockerfile")
    bases = [text.split()[0] for name, text in steps if name == "FROM"]
    assert len(bases) == 2 and all(":" in each and not each.endswith(":latest") for each in bases)
    last = steps[max(index for index, (name, _) in enumerate(steps) if name == "FROM") :]
    assert [text for name, text in last if name == "USER"] == ["10001:10001"]
    assert not any("pip" in text for name, text in last if name == "RUN")
    assert [text for name, text in last if name == "ENTRYPOINT"] == ['["rangelog"]']
    (probe,) = [text for name, text in last if name == "HEALTHCHECK"]
    assert '"healthcheck", "live"' in probe
    assert all(
        "--require-hashes" in text for name, text in steps if name == "RUN" and "install" in text and ".lock" in text
    )


def test_the_image_has_what_servers_need_and_nothing_of_the_demo() -> None:
    """With all hashes; pip fails if a pin is missing."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = image_requirements.direct(project, image_requirements.EXTRAS)
    pins = image_requirements.needed((ROOT / "requirements.lock").read_text(), wanted)
    names = {line.partition("==")[0] for line in pins.splitlines() if "==" in line and not line.startswith(" ")}
    assert wanted <= names and {"h11", "botocore", "pydantic-core"} <= names
    assert not names & {"pyspark", "pytest", "mypy", "hatchling", "pip", "moto", "rangelog"}
    assert pins.count("--hash=sha256:") >= len(names)


@pytest.mark.parametrize("name", PROCESSES)
def test_compose_starts_valid_processes(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Flags and environment of each are what its program takes."""
    service = COMPOSE["services"][name]
    kind, *flags = service["command"]
    settings, _ = KINDS[kind]
    monkeypatch.chdir(tmp_path)
    for key, value in service["environment"].items():
        monkeypatch.setenv(key, value)
    given = {
        flag.removeprefix("--").replace("-", "_"): value for flag, value in zip(flags[::2], flags[1::2], strict=True)
    }
    made = load_settings(settings, given)
    assert made.name == name and made.metrics_listen.endswith(":9180")
    assert kind in cli.commands


def test_compose_with_tls_makes_what_its_processes_are_given(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The script runs, twice; each file that a process or pdctl is given is there, and of that very process."""
    (command, option, script) = COMPOSE_TLS["services"]["certs"]["entrypoint"]
    environment = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"}
    for _ in range(2):
        subprocess.run(
            [command, option, script.replace("$$", "$")],
            cwd=tmp_path,
            env=environment,
            check=True,
            capture_output=True,
            timeout=60,
        )
    assert not list(tmp_path.rglob("ca.key")), "the volume would have the authority's key"
    assert set(PROCESSES) | {"tools", "certs"} == set(COMPOSE_TLS["services"])
    monkeypatch.chdir(tmp_path)
    for name in (*PROCESSES, "tools"):
        service, more = COMPOSE["services"][name], COMPOSE_TLS["services"][name]
        for key, value in (service["environment"] | more["environment"]).items():
            monkeypatch.setenv(key, value.replace("/etc/rangelog/", f"{tmp_path}/"))
        given = [os.environ[f"RANGELOG_TLS_{key}"] for key in ("CA", "CERT", "KEY")]
        found = Certificates(TlsConfig(*given)).now.principal
        if name == "tools":
            assert str(found) == "admin:trial"
            continue
        kind, *flags = service["command"]
        settings, _ = KINDS[kind]
        keys = [flag.removeprefix("--").replace("-", "_") for flag in flags[::2]]
        made = load_settings(settings, dict(zip(keys, flags[1::2], strict=True)))
        assert str(found) == f"{kind}:{name}" and not made.insecure and made.tls is not None
        assert [made.tls.ca, made.tls.cert, made.tls.key] == given
        assert "certs" in more["depends_on"] and "certs:/etc/rangelog:ro" in more["volumes"]


def test_compose_is_three_three_and_one_with_pinned_images() -> None:
    """Three placement drivers, three range servers, a broker, MinIO."""
    kinds = [COMPOSE["services"][name]["command"][0] for name in PROCESSES]
    assert (kinds.count("pd"), kinds.count("range-server"), kinds.count("broker")) == (3, 3, 1)
    others = [service["image"] for service in COMPOSE["services"].values() if service["image"] != "rangelog"]
    assert len(others) == 2 and all(":RELEASE." in each for each in others)
    for service in COMPOSE["services"].values():
        assert all(each.partition(":")[0] in COMPOSE["volumes"] for each in service.get("volumes", ()))
        assert all(each.startswith("127.0.0.1:") for each in service.get("ports", ()))


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.stem)
def test_units_start_what_exists_and_are_hardened(unit: Path) -> None:
    """A command of rangelog, a user without rights, no writable system."""
    lines = dict(
        line.split("=", 1) for line in unit.read_text().splitlines() if "=" in line and not line.startswith("#")
    )
    _, command, *_ = lines["ExecStart"].split()
    assert command in cli.commands and unit.stem == f"rangelog-{command}"
    assert lines["User"] == "rangelog" and lines["ProtectSystem"] == "strict" and lines["NoNewPrivileges"] == "yes"
    assert lines["CapabilityBoundingSet"] == "" and lines["Restart"] == "on-failure"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze")
def test_systemd_takes_the_units(tmp_path: Path) -> None:
    """Without a word, the program at a path that exists here."""
    assert len(UNITS) == 3
    paths = []
    for unit in UNITS:
        paths.append(tmp_path / unit.name)
        program = Path(sys.executable).parent / "rangelog"
        paths[-1].write_text(unit.read_text().replace("/opt/rangelog/bin/rangelog", str(program)))
    done = subprocess.run(["systemd-analyze", "verify", *paths], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_urls_of_the_project() -> None:
    """All below the repository that whoever publishes names; none without it, and nothing that is no https URL."""
    assert hatch_build.project_urls("") == {}
    urls = hatch_build.project_urls("https://example.org/rangelog/")
    assert urls["Homepage"] == "https://example.org/rangelog"
    for url in urls.values():
        path = url.removeprefix("https://example.org/rangelog").removeprefix("/blob/main/").strip("/")
        assert path in ("", "issues") or (ROOT / path).is_file(), url
    with pytest.raises(ValueError, match="https URL"):
        hatch_build.project_urls("example.org")


def test_each_extra_is_tried_and_its_size_told() -> None:
    """But those that only gather others: the demo's, the developers', and all."""
    extras = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
    assert set(package_sizes.TRIES) == (extras - {"demo", "dev", "all"}) | {package_sizes.BASE}
    readme = (ROOT / "README.md").read_text()
    missing = [extra for extra in extras - {"demo", "dev", "all"} if f"| `rangelog[{extra}]` |" not in readme]
    assert not missing, missing


def test_what_the_light_client_reads_is_told() -> None:
    """README and quickstart say when records leave the servers, and what reads them then."""
    assert HOT_RETENTION_MS_DEFAULT == 10 * 60_000
    for name in ("README.md", "docs/quickstart.md"):
        text = " ".join((ROOT / name).read_text().split())
        assert "Records leave them, by default ten minutes after they are in the tier" in text, name
        assert "'.[tier]'" in text, name


def test_limits_that_are_gone_are_not_told() -> None:
    """There are quotas, and tokens with the rights of a client."""
    readme = (ROOT / "README.md").read_text()
    limits = readme.partition("## Limits")[2]
    assert "There is no quota" not in " ".join(limits.split()) and "Tokens are shared secrets" not in limits
    assert "(docs/quotas.md)" in limits and "(docs/security.md#tokens)" in limits


def test_readme_says_what_surprises_in_its_examples() -> None:
    """What `break` leaves in a group, and where `start` is no option of Spark's."""
    text = " ".join((ROOT / "README.md").read_text().split())
    assert "break # cake comes again in the next run, unless `await member.commit()`" in text
    assert "`start` and `end` (of `spark.read` only; a streaming query begins at `startingOffsets`)" in text
