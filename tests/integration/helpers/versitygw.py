"""versitygw, an S3 gateway over a directory, built where Go is: a second real server for the contract of the store."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from rangelog_cli.local.ports import free_ports
from tests.support.waiting import eventually

VERSION = "v1.8.0"
MODULE = f"github.com/versity/versitygw/cmd/versitygw@{VERSION}"
BINARY_ENV = "RANGELOG_VERSITYGW"
"""A versitygw that is there already, so that none is built."""
BUILD_TIMEOUT_S = 900
_BUILT = Path(__file__).resolve().parents[3] / "build" / "tools" / f"versitygw-{VERSION}"


class NotBuiltError(Exception):
    """Why there is no versitygw."""


def versitygw() -> Path:
    """Return the binary, which is built at first use. Raises NotBuiltError."""
    given = os.environ.get(BINARY_ENV)
    if given:
        return Path(given)
    if (_BUILT / "versitygw").exists():
        return _BUILT / "versitygw"
    go = shutil.which("go")
    if go is None:
        raise NotBuiltError(f"Go is not installed, and {BINARY_ENV} names no versitygw")
    env = os.environ | {"GOBIN": str(_BUILT), "GOFLAGS": "-mod=mod"}
    command = [go, "install", "-p", "1", MODULE]
    try:
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        raise NotBuiltError(f"versitygw was not built within {BUILD_TIMEOUT_S} s") from None
    if done.returncode:
        raise NotBuiltError(f"versitygw cannot be built: {' '.join(done.stderr.split())[-300:]}")
    return _BUILT / "versitygw"


@contextmanager
def running_versitygw(directory: Path, credentials: Mapping[str, str]) -> Iterator[str]:
    """Serve a directory by S3 on loopback; yields the endpoint. Raises NotBuiltError."""
    binary = versitygw()
    data, metadata, port = directory / "data", directory / "metadata", free_ports(1)[0]
    data.mkdir()
    metadata.mkdir()
    command = [
        str(binary), "--port", f"127.0.0.1:{port}", "--access", credentials["AWS_ACCESS_KEY_ID"],
        "--secret", credentials["AWS_SECRET_ACCESS_KEY"], "--quiet", "posix", "--sidecar", str(metadata), str(data),
    ]  # fmt: skip
    log = directory / "versitygw.log"
    with log.open("wb") as output:
        server = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)

    def listens() -> bool:
        assert server.poll() is None, log.read_text()
        with socket.socket() as probing:
            return probing.connect_ex(("127.0.0.1", port)) == 0

    try:
        eventually(listens, "versitygw does not listen", 30.0)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.kill()
        server.wait(10)
