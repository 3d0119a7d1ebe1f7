"""pdctl in this process, with a placement driver that answers what the test says."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from pdctl.main import main
from rangelog_core.net.home_loop import HomeLoop
from rangelog_proto.v1 import tier_pb2
from tests.support.pd_calls import method_of
from tests.unit.pdctl.in_process_pd import InProcessPd, PdctlOverGrpc

Answer = Callable[[Any], Any]


class FakePd:
    """Stands where PdClient stands; `answers` maps a method's name to an answer, an error, or a function of the request."""

    was_reached = True

    def __init__(self) -> None:
        self.answers: dict[str, Any] = {"describe_tier": tier_pb2.DescribeTierResponse()}
        self.requests: list[tuple[str, Any]] = []
        self.opened: list[tuple[list[str], str | None, Any]] = []
        self.closed = 0

    def open(self, endpoints: list[str], *, token: str | None = None, tls: Any = None, **_more: Any) -> FakePd:
        """What PdClient(...) is replaced by."""
        self.opened.append((list(endpoints), token, tls))
        return self

    async def close(self) -> None:
        """Count."""
        self.closed += 1

    async def call(self, request: Any, response: Any, *, timeout_s: float, **_: Any) -> Any:
        """`DescribeTier` is answered as `describe_tier`."""
        return await getattr(self, method_of(request))(request, timeout_s=timeout_s)

    @property
    def home(self) -> HomeLoop:
        """A new one each time: one of these answers many commands, each of which has a loop of its own."""
        return HomeLoop()

    def __getattr__(self, name: str) -> Any:
        async def call(request: Any, *, timeout_s: float) -> Any:
            assert timeout_s > 0
            copy = type(request)()
            copy.CopyFrom(request)
            self.requests.append((name, copy))
            answer = self.answers[name]
            if isinstance(answer, BaseException):
                raise answer
            return answer(copy) if callable(answer) else answer

        return call


@pytest.fixture
def pd(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakePd:
    """The placement driver, and no environment or context file that could lead elsewhere."""
    fake = FakePd()
    for module in (
        "rangelog._client",
        "rangelog_core.net.pd_client",
    ):  # in this order: the first takes it from the second
        monkeypatch.setattr(f"{module}.PdClient", fake.open)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in ("RANGELOG_PD", "RANGELOG_TOKEN", "RANGELOG_DEBUG"):
        monkeypatch.delenv(name, raising=False)
    return fake


class Pdctl:
    """`pdctl("stream", "list")` → what it printed and its exit code."""

    def __init__(self, *before: str) -> None:
        self.before = before

    def __call__(self, *arguments: str, input: str | bytes | None = None) -> Result:  # noqa: A002
        """Run."""
        result = CliRunner().invoke(main, [*self.before, *arguments], input=input, prog_name="pdctl")
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return result

    def json(self, *arguments: str) -> Any:
        """Run with -o json; must succeed."""
        result = self(*arguments, "-o", "json")
        assert result.exit_code == 0, result.stderr
        return json.loads(result.stdout)

    def fails(self, exit_code: int, *arguments: str, input: str | bytes | None = None) -> str:  # noqa: A002
        """Run, must fail like that; returns the one line it said."""
        result = self(*arguments, input=input)
        assert result.exit_code == exit_code, (result.exit_code, result.output)
        assert result.stdout == ""
        assert result.stderr.startswith("pdctl: ") and result.stderr.count("\n") == 1, result.stderr
        assert "Traceback" not in result.stderr
        return result.stderr.removeprefix("pdctl: ").rstrip()


@pytest.fixture
def pdctl(pd: FakePd) -> Iterator[Pdctl]:
    """pdctl with --pd; whatever it opens it closes."""
    yield Pdctl("--pd", "a:1,b:2")
    assert pd.closed == len(pd.opened)


@pytest.fixture
def member(tmp_path: Path) -> Iterator[InProcessPd]:
    """A placement driver that leads, with nothing in it."""
    made = InProcessPd(tmp_path)
    yield made
    made.close()


@pytest.fixture
def run(member: InProcessPd) -> PdctlOverGrpc:
    """pdctl of that member."""
    return PdctlOverGrpc(member.address)


@pytest.fixture
def topics(member: InProcessPd) -> InProcessPd:
    """The member, in a cluster that knows topics, with three range servers."""
    member.reconcile()
    for name in ("rs1", "rs2", "rs3"):
        member.register(name)
    return member


@pytest.fixture
def owners(topics: InProcessPd) -> Iterator[threading.Thread]:
    """Commits each plan that appears, as owners would, until the test ends."""
    stop = threading.Event()

    def work() -> None:
        while not stop.wait(0.02):
            with topics.driver.state() as state:
                scaling = [each.topic_id for each in state.topics.work.values() if each.HasField("scale")]
            for topic_id in scaling:
                topics.commit_scale(topic_id)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    yield thread
    stop.set()
    thread.join(10)
    assert not thread.is_alive()
