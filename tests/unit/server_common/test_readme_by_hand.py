"""What README says of running the parts by hand: its file and its commands, as written, are settings of servers that start."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest

from rangelog_broker.settings import BrokerSettings
from rangelog_core.net.principals import Role
from rangelog_pd.settings import PdSettings
from rangelog_server.settings import RangeServerSettings
from rangelog_server_common.settings import load_settings
from rangelog_server_common.tls_settings import TlsSettings, open_tls
from tests.support.certificates import TestCertificates

README = Path(__file__).parents[3] / "README.md"
KINDS: dict[str, tuple[Role, type[TlsSettings]]] = {
    "range-server": (Role.RANGE_SERVER, RangeServerSettings),
    "broker": (Role.BROKER, BrokerSettings),
}
LISTS = ("pd",)


def blocks() -> tuple[str, str]:
    """The file, and the commands."""
    section = README.read_text().split("## Running the parts by hand\n")[1].split("\n## ")[0]
    (toml,), (console,) = (re.findall(rf"```{kind}\n(.*?)```", section, re.DOTALL) for kind in ("toml", "console"))
    return toml, console


def test_the_file_is_that_of_a_member(tmp_path: Path) -> None:
    """Every key is one, and its ports are open to other machines with TLS."""
    values = tomllib.loads(blocks()[0])
    made = TestCertificates(tmp_path).tls(Role.PD, values["name"])
    assert all(Path(values[f"tls_{key}"]).name for key in ("ca", "cert", "key"))
    settings = load_settings(PdSettings, values | {"tls_ca": made.ca, "tls_cert": made.cert, "tls_key": made.key})
    assert open_tls(settings, Role.PD) == made


@pytest.mark.parametrize("command", list(KINDS))
def test_the_commands_are_those_of_servers(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the variables that stand before them, which name the three files that `rangelog certs issue` writes."""
    role, kind = KINDS[command]
    lines = [shlex.split(line, comments=True) for line in blocks()[1].replace("\\\n", " ").splitlines()]
    ((at, words),) = [(at, words) for at, words in enumerate(lines) if words[:2] == ["rangelog", command]]
    values: dict[str, Any] = {}
    for flag, value in zip(words[2::2], words[3::2], strict=True):
        key = flag.removeprefix("--").replace("-", "_")
        values[key] = [*values.get(key, []), value] if key in LISTS else value
    made = TestCertificates(tmp_path).tls(role, values["name"])
    for variable in lines[at - 1][1:]:
        name, _, file = variable.partition("=")
        written = {"CA": "ca.pem", "CERT": f"{role}-{values['name']}.pem", "KEY": f"{role}-{values['name']}.key"}
        part = name.rpartition("_")[2]
        assert file == written[part]
        monkeypatch.setenv(name, {"CA": made.ca, "CERT": made.cert, "KEY": made.key}[part])
    assert open_tls(load_settings(kind, values), role) == made
