"""What every command shares: which cluster, how to reach it, how to say what went wrong.

Exit codes: 0 ok, 1 failed (or degraded), 2 usage, 3 not found, 4 unavailable or timed out, 5 somebody else was first
(exists, fenced, precondition), 130 interrupted.
"""

from __future__ import annotations

import asyncio
import functools
import os
import sys
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from rangelog import errors
from rangelog.errors import RangelogError

if TYPE_CHECKING:
    from rangelog._client import Client
    from rangelog._transport.pd_client import PdClient

EXIT_FAILED, EXIT_NOT_FOUND, EXIT_UNAVAILABLE, EXIT_PRECONDITION = 1, 3, 4, 5
TIMEOUT_S = 10.0

_T = TypeVar("_T")
_EXITS: tuple[tuple[type[RangelogError], int], ...] = (
    (errors.StreamNotFound, EXIT_NOT_FOUND),
    (errors.RangeNotFound, EXIT_NOT_FOUND),
    (errors.ObjectNotFound, EXIT_NOT_FOUND),
    (errors.Unavailable, EXIT_UNAVAILABLE),
    (errors.OutcomeUnknown, EXIT_UNAVAILABLE),
    (errors.StreamExists, EXIT_PRECONDITION),
    (errors.WriterFenced, EXIT_PRECONDITION),
    (errors.PreconditionFailed, EXIT_PRECONDITION),
)
_ADVICE: dict[type[RangelogError], str] = {
    errors.StreamNotFound: "see `pdctl stream list`",
    errors.StreamExists: "choose another name",
    errors.WriterFenced: "a later writer took the stream over",
    errors.Unauthorized: "pass --token or set RANGELOG_TOKEN",
}


@dataclass(frozen=True)
class Session:
    """The options before the noun."""

    endpoints: str | None
    token: str | None
    ca: str | None
    cert: str | None
    key: str | None
    timeout_s: float

    def _endpoints(self) -> str:
        if self.endpoints:
            return self.endpoints
        from rangelog.context import read_context

        context = read_context()
        if context is None:
            raise errors.InvalidArgument(
                "which cluster? Pass --pd host:port,…, set RANGELOG_PD, or start one with `rangelog local`"
            )
        return ",".join(context.pd)

    def _tls(self) -> Any:
        if not self.ca:
            return None
        from rangelog._transport.grpc_options import TlsConfig

        return TlsConfig(self.ca, self.cert, self.key)

    def with_pd(self, work: Callable[[PdClient], Coroutine[Any, Any, _T]]) -> _T:
        """Run `work` with a connection to the placement drivers."""
        from rangelog._transport.pd_client import PdClient

        async def run() -> _T:
            pd = PdClient([each.strip() for each in self._endpoints().split(",")], token=self.token, tls=self._tls())
            try:
                return await work(pd)
            finally:
                await pd.close()

        return asyncio.run(run())

    def with_client(self, work: Callable[[Client], Coroutine[Any, Any, _T]]) -> _T:
        """Run `work` with the SDK."""
        import rangelog

        async def run() -> _T:
            async with await rangelog.connect(self._endpoints(), token=self.token, tls=self._tls()) as client:
                return await work(client)

        return asyncio.run(run())


class PdctlGroup(click.Group):
    """Turns our errors into one line and an exit code, for every command below."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """See click.Group.main."""
        try:
            return super().main(*args, **kwargs)
        except RangelogError as error:
            click.echo(f"pdctl: {_one_line(error)}", err=True)
            sys.exit(exit_code(error))
        except (KeyboardInterrupt, asyncio.CancelledError):
            sys.exit(130)
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(0)


def exit_code(error: RangelogError) -> int:
    """Return the exit code of an error."""
    return next((code for cls, code in _EXITS if isinstance(error, cls)), EXIT_FAILED)


def _one_line(error: RangelogError) -> str:
    message = " ".join(error.message.split()) or error.code
    advice = next((text for cls, text in _ADVICE.items() if type(error) is cls), "")
    return (
        f"{message}: {advice}" if advice and advice.split("`")[-2 if "`" in advice else 0] not in message else message
    )


def output_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """-o table|json|yaml."""
    return click.option(
        "-o", "--output", type=click.Choice(["table", "json", "yaml"]), default="table", show_default=True,
        help="How to print.",
    )(command)  # fmt: skip


def confirm(name: str, what: str, *, yes: bool) -> None:
    """Ask for the name to be typed, unless --yes; without a terminal, --yes is needed."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(f"{what}: pass --yes to do it without being asked")
    if click.prompt(f"{what}. Type the name to go on", default="", show_default=False) != name:
        click.echo("pdctl: not the name; nothing was done", err=True)
        sys.exit(EXIT_FAILED)


def session_of(command: Callable[..., Any]) -> Callable[..., Any]:
    """Pass the Session as the first argument."""

    @functools.wraps(command)
    @click.pass_context
    def call(context: click.Context, *args: Any, **kwargs: Any) -> Any:
        session: Session = context.find_object(Session)  # type: ignore[assignment]
        return command(session, *args, **kwargs)

    return call
