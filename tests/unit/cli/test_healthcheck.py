"""`rangelog healthcheck` against the real metrics port and against peers that lie: what counts as healthy."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from rangelog_cli.healthcheck import ask
from rangelog_cli.main import cli
from rangelog_core.errors import InvalidArgument, RangelogError, RequestTimeout, Unavailable
from rangelog_core.net.tls import TlsConfig
from rangelog_server_common.metrics.endpoint import MetricsEndpoint
from tests.support.certificates import TestCertificates


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> TestCertificates:
    return TestCertificates(tmp_path_factory.mktemp("certificates"))


@asynccontextmanager
async def metrics_port(problems: list[str], tls: TlsConfig | None = None) -> AsyncIterator[str]:
    """The metrics port of a range server."""
    endpoint = MetricsEndpoint("range-server", "rs1", [], lambda: problems, tls)
    try:
        yield await endpoint.start("127.0.0.1:0")
    finally:
        await endpoint.close()


@asynccontextmanager
async def answering(
    talk: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
) -> AsyncIterator[str]:
    """A port that does what it likes."""
    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    try:
        yield "{}:{}".format(*server.sockets[0].getsockname())
    finally:
        server.close()


async def asked(kind: str, address: str, tls: TlsConfig | None = None, timeout_s: float = 5.0) -> str:
    return await asyncio.to_thread(ask, kind, address, tls, timeout_s)


async def test_live_and_ready_are_two_questions() -> None:
    """What is not ready is alive all the same; the reasons come with the refusal."""
    async with metrics_port(["the log is full"]) as address:
        assert await asked("live", address) == "ok"
        with pytest.raises(Unavailable, match=r"not ready .*503.*the log is full"):
            await asked("ready", address)
    async with metrics_port([]) as address:
        assert await asked("ready", address) == "ok"


@pytest.mark.parametrize("principal", [("range-server", "rs1"), ("client", "c"), ("admin", "a")])
async def test_with_tls_the_own_certificate_will_do(certificates: TestCertificates, principal: tuple[str, str]) -> None:
    """And so will that of a user."""
    async with metrics_port([], certificates.tls("range-server", "rs1")) as address:
        assert await asked("ready", address, certificates.tls(*principal)) == "ok"


@pytest.mark.parametrize("principal", [("range-server", "rs2"), ("pd", "rs1"), ("broker", "*")])
async def test_another_process_at_the_port_is_not_this_one(
    certificates: TestCertificates, principal: tuple[str, str]
) -> None:
    """A healthy neighbour must not keep a dead process alive."""
    async with metrics_port([], certificates.tls("range-server", "rs1")) as address:
        with pytest.raises(Unavailable, match="range-server:rs1 answers"):
            await asked("live", address, certificates.tls(*principal))


async def test_foreign_certificates_and_plaintext_fail(certificates: TestCertificates) -> None:
    """On either side."""
    async with metrics_port([], certificates.tls("range-server", "rs1")) as address:
        for tls in (None, certificates.foreign("range-server", "rs1")):
            with pytest.raises(RangelogError):
                await asked("live", address, tls)
    async with metrics_port([], certificates.foreign("range-server", "rs1")) as address:
        with pytest.raises(RangelogError):
            await asked("live", address, certificates.tls("range-server", "rs1"))


async def test_a_peer_that_says_nothing_or_drips_is_given_up_in_time() -> None:
    """The time limit is for the whole exchange."""

    async def drip(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while not writer.is_closing():
                writer.write(b"x")
                await writer.drain()
                await asyncio.sleep(0.02)
        except OSError:
            pass
        finally:
            writer.close()

    async with answering(drip) as address:
        with pytest.raises(RequestTimeout, match="nothing came"):
            await asked("live", address, timeout_s=0.2)


@pytest.mark.parametrize(
    "said", [b"", b"200", b"HTTP/1.1 2000 x\r\n\r\n", b"HTTP/1.1 503 x\r\n\r\nHTTP/1.1 200 OK", b"\xff" * 200_000]
)
async def test_what_is_not_200_is_no(said: bytes) -> None:
    """Bytes that are no answer, and answers that only look like one."""

    async def say(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(said)
        try:
            await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()

    async with answering(say) as address:
        with pytest.raises(Unavailable):
            await asked("live", address)


def test_bad_addresses_and_a_closed_port_are_one_line(tmp_path: Path) -> None:
    """Usage errors and refusals have no stack trace."""
    with pytest.raises(InvalidArgument):
        ask("live", "nonsense", None, 1.0)
    with pytest.raises(InvalidArgument):
        ask("dead", "127.0.0.1:1", None, 1.0)
    with pytest.raises(Unavailable, match="is metrics_listen set"):
        ask("live", "127.0.0.1:1", None, 1.0)
    assert CliRunner().invoke(cli, ["healthcheck", "well"]).exit_code == 2
