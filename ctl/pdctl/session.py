"""The common part of all commands: the cluster, its connections, and error messages.

Exit codes: 0 ok, 1 failed (or degraded), 2 usage, 3 not found, 4 unavailable or timed out (the message includes it if the
command may have been carried out), 5 another caller was first (exists, fenced, precondition), 130 interrupted. When the
reader of the output closes it, the command ends without a message, with 0.
Every error is one line, `pdctl: <what>: <what to do>`, and with `-o json` an object with code, message, retriable and
outcome_unknown; RANGELOG_DEBUG=1 adds the traceback.
"""

from __future__ import annotations

import asyncio
import functools
import json
import logging
import os
import sys
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, overload

import click
from click.core import ParameterSource

from pdctl.hints import meant
from pdctl.output import printable
from rangelog_core import errors
from rangelog_core.errors import RangelogError

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from rangelog import Client
    from rangelog.context import Context
    from rangelog_core.net.pd_client import PdClient
    from rangelog_core.net.peer_client import PeerClient
    from rangelog_core.net.tls import TlsConfig
    from rangelog_core.net.token_sources import Token

EXIT_FAILED, EXIT_USAGE, EXIT_NOT_FOUND, EXIT_UNAVAILABLE, EXIT_PRECONDITION, EXIT_INTERRUPTED = 1, 2, 3, 4, 5, 130
DEBUG_ENV = "RANGELOG_DEBUG"
FIRST_CONTACT_S = 1.0
"""Where nothing is at any of the addresses, a command says so after about this time."""

OFFSET = click.IntRange(0, (1 << 63) - 1)
INDEX = click.IntRange(0, (1 << 32) - 1)

_T = TypeVar("_T")
_M = TypeVar("_M", bound="Message")
_EXITS: tuple[tuple[type[RangelogError], int], ...] = (
    (errors.StreamNotFound, EXIT_NOT_FOUND),
    (errors.RangeNotFound, EXIT_NOT_FOUND),
    (errors.ObjectNotFound, EXIT_NOT_FOUND),
    (errors.NamespaceNotFound, EXIT_NOT_FOUND),
    (errors.TopicNotFound, EXIT_NOT_FOUND),
    (errors.ShardNotFound, EXIT_NOT_FOUND),
    (errors.GroupNotFound, EXIT_NOT_FOUND),
    (errors.MemberNotFound, EXIT_NOT_FOUND),
    (errors.TransactionNotFound, EXIT_NOT_FOUND),
    (errors.Unavailable, EXIT_UNAVAILABLE),
    (errors.OutcomeUnknown, EXIT_UNAVAILABLE),
    (errors.StreamExists, EXIT_PRECONDITION),
    (errors.NamespaceExists, EXIT_PRECONDITION),
    (errors.TopicExists, EXIT_PRECONDITION),
    (errors.StreamSealed, EXIT_PRECONDITION),
    (errors.WriterFenced, EXIT_PRECONDITION),
    (errors.MemberFenced, EXIT_PRECONDITION),
    (errors.ProducerFenced, EXIT_PRECONDITION),
    (errors.PreconditionFailed, EXIT_PRECONDITION),
    (errors.RecordTooLarge, EXIT_FAILED),
    (errors.InvalidArgument, EXIT_USAGE),
)
_ADVICE: dict[type[RangelogError], str] = {
    errors.StreamNotFound: "see `pdctl stream list`",
    errors.NamespaceNotFound: "see `pdctl namespace list`, or create it with `pdctl namespace create`",
    errors.TopicNotFound: "see `pdctl topic list`",
    errors.ShardNotFound: "see `pdctl shard list`",
    errors.GroupNotFound: "see `pdctl group list`",
    errors.TransactionNotFound: "see `pdctl transaction list`",
    errors.ShardEnded: "see `pdctl shard list` for those that followed",
    errors.StaleMapVersion: "the topic was scaled meanwhile; run the command again",
    errors.TopicStateForbids: "see `pdctl topic show`",
    errors.OutcomeUnknown: "look with `pdctl stream show`, `pdctl topic show` or `pdctl range list` whether it was done",
    errors.StreamExists: "choose another name",
    errors.NamespaceExists: "choose another name",
    errors.TopicExists: "choose another name",
    errors.WriterFenced: "a later writer took the stream over",
    errors.Unauthorized: "pass --token or set RANGELOG_TOKEN",
}


@dataclass(frozen=True)
class Session:
    """The options of `pdctl` itself, wherever they stand."""

    endpoints: str | None
    token: str | None
    ca: str | None
    cert: str | None
    key: str | None
    timeout_s: float
    context_name: str | None = None
    output: str | None = None
    """What `-o` before the verb says; it counts where the verb has none of its own."""
    token_file: str | None = None

    def _endpoints(self) -> list[str]:
        if self.endpoints is not None:
            return [each.strip() for each in self.endpoints.split(",") if each.strip()]
        context = self._context()
        if context is None:
            raise errors.InvalidArgument(
                "which cluster? Pass --pd host:port,…, set RANGELOG_PD, start one with `rangelog local`, or choose a context "
                "with `pdctl context use`"
            )
        return list(context.pd)

    def _context(self) -> Context | None:
        from pdctl.stopped import refuse_stopped
        from rangelog.context import read_context

        context = read_context(self.context_name)
        if context is not None:
            refuse_stopped(context)
        return context

    def shown_token(self) -> Token | None:
        """Return the token of --token, else that in --token-file, else the context's, where it is used.

        Raises InvalidArgument.
        """
        from rangelog_core.net.token_sources import check_token, chosen_token

        try:
            check_token(self.token)
        except errors.InvalidArgument as error:
            raise errors.InvalidArgument(
                f"{error.message}, without line ends: look at --token or RANGELOG_TOKEN"
            ) from None
        given = chosen_token(self.token, self.token_file)
        context = self._context() if given is None and self.endpoints is None else None
        return given if context is None else context.token()

    def tls(self) -> TlsConfig | None:
        """Return the files of --ca, --cert and --key, else those of the context, where it is used. Raises InvalidArgument."""
        from rangelog_core.net.tls import TlsConfig

        given = (self.ca, self.cert, self.key)
        if any(given) and not all(given) and not (self.ca and not self.cert and not self.key and self.shown_token()):
            raise errors.InvalidArgument(
                "--ca, --cert and --key go together: give all three (or RANGELOG_TLS_CA, …), or with --ca alone a token "
                "(--token-file, RANGELOG_TOKEN_FILE or RANGELOG_TOKEN)"
            )
        if any(given):
            return TlsConfig.of_paths(*given)
        context = self._context() if self.endpoints is None else None
        return context.tls if context is not None else None

    def with_pd(self, work: Callable[[PdClient], Coroutine[Any, Any, _T]]) -> _T:
        """Run `work` with a connection to the placement drivers."""
        from rangelog_core.net.pd_client import PdClient

        async def run() -> _T:
            pd = PdClient(self._endpoints(), token=self.shown_token(), tls=self.tls(), first_contact_s=FIRST_CONTACT_S)
            try:
                return await work(pd)
            finally:
                await pd.close()

        return asyncio.run(run())

    def call(self, request: Message, response: type[_M]) -> _M:
        """Return the placement drivers' response to one call."""
        return self.with_pd(lambda pd: pd.call(request, response, timeout_s=self.timeout_s))

    def peer(self, address: str, peer: str) -> PeerClient:
        """Return calls to one process by its address; `peer`: what messages call it. Use it with `async with`."""
        from rangelog_core.net.peer_client import PeerClient
        from rangelog_core.net.principals import Role

        of_kinds = {"placement driver ": Role.PD, "broker ": Role.BROKER}
        role = next((role for kind, role in of_kinds.items() if peer.startswith(kind)), Role.RANGE_SERVER)
        return PeerClient(address, peer, token=self.shown_token(), tls=self.tls(), role=role)

    def members(self) -> list[str]:
        """Return the addresses of placement drivers that were given."""
        return self._endpoints()

    async def answer(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Return the result of a call that has no limit of its own. Raises RequestTimeout."""
        try:
            async with asyncio.timeout(self.timeout_s):
                return await work
        except TimeoutError as error:
            raise errors.RequestTimeout(
                f"no answer within {self.timeout_s:g} s from the cluster at {','.join(self._endpoints())}: "
                "see `pdctl cluster status` and `pdctl broker list`"
            ) from error

    def with_client(self, work: Callable[[Client], Coroutine[Any, Any, _T]]) -> _T:
        """Run `work` with the SDK."""
        import rangelog

        async def run() -> _T:
            async with await rangelog.connect(self._endpoints(), token=self.shown_token(), tls=self.tls()) as client:
                return await work(client)

        return asyncio.run(run())


class NothingFound(click.ClickException):
    """The requested thing does not exist; the message names it."""

    exit_code = EXIT_NOT_FOUND


class PdctlGroup(click.Group):
    """Turns every error of a command into one line and an exit code."""

    def main(self, *args: Any, standalone_mode: bool = True, **kwargs: Any) -> Any:
        """Run a command and exit with its code. Overrides click.Group.main."""
        work = functools.partial(super().main, *args, standalone_mode=False, **kwargs)
        if not standalone_mode:
            return work()
        given = args[0] if args else kwargs.get("args")
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # log lines of libraries are not for the user
        logging.getLogger().addHandler(logging.NullHandler())
        sys.exit(_run(work, _fail_in_json if asks_for_json(sys.argv[1:] if given is None else given) else _fail))

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command and map its errors. Overrides click.Group.invoke."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
            return result
        except KeyboardInterrupt:
            if sys.stderr.isatty():
                click.echo(err=True)  # the terminal's ^C has no line end
            raise click.exceptions.Exit(EXIT_INTERRUPTED) from None
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the flush at exit is quiet as well
            raise click.exceptions.Exit(0) from None


_Fail = Callable[[str, int, RangelogError | str], int]
"""Says what failed, and returns the exit code: message, exit code, and the error, or the code of one that is not ours."""


def _run(work: Callable[[], Any], fail: _Fail) -> int:
    usage, failed = errors.InvalidArgument.code, "FAILED"
    try:
        result = work()
        return result if isinstance(result, int) else 0
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return EXIT_USAGE
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx is not None else "pdctl"
        text = f"{error.format_message().rstrip('.')}{meant(error)}: see {command} --help"
        return fail(text, EXIT_USAGE, usage)
    except click.ClickException as error:
        code = "NOT_FOUND" if error.exit_code == EXIT_NOT_FOUND else failed
        return fail(error.format_message(), error.exit_code, code)
    except click.Abort as error:
        if isinstance(error.__cause__ or error.__context__, EOFError):
            return fail("no input: nothing was done", EXIT_FAILED, failed)
        return EXIT_INTERRUPTED
    except RangelogError as error:
        return fail(_one_line(error), exit_code(error), error)
    except UnicodeEncodeError:
        return fail("an argument is not UTF-8 text: see --help", EXIT_USAGE, usage)
    except Exception as error:
        if os.environ.get(DEBUG_ENV):
            raise
        return fail(_unexpected(error), EXIT_FAILED, failed if isinstance(error, OSError | ImportError) else "INTERNAL")


def _fail(text: str, exit_code: int, _of: RangelogError | str) -> int:
    click.echo(f"pdctl: {printable(text)}", err=True)
    return exit_code


def _fail_in_json(text: str, exit_code: int, of: RangelogError | str) -> int:
    ours = of if isinstance(of, RangelogError) else None
    shown = {
        "code": ours.code if ours is not None else of,
        "message": printable(text),
        "retriable": ours is not None and ours.retriable,
        "outcome_unknown": ours is not None and ours.outcome_unknown,
    }
    click.echo(json.dumps({"error": shown}, ensure_ascii=False), err=True)
    return exit_code


def asks_for_json(arguments: Sequence[str]) -> bool:
    """Return whether the arguments have -o json, in one of its forms; also of a command line that cannot be parsed."""
    before = ""
    for each in arguments:
        if each == "--":
            return False
        if each in ("-ojson", "--output=json") or (each == "json" and before in ("-o", "--output")):
            return True
        before = each
    return False


def _unexpected(error: Exception) -> str:
    text = " ".join(str(error).split())
    if isinstance(error, ImportError):
        return f"an optional part is missing ({text}): install it with pip install 'rangelog[all]'"
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror or text}: check the path and its permissions"
    return f"internal error {type(error).__name__} ({text}): set {DEBUG_ENV}=1 for the details and report it"


def exit_code(error: RangelogError) -> int:
    """Return the exit code of an error."""
    return next((code for cls, code in _EXITS if isinstance(error, cls)), EXIT_FAILED)


def _one_line(error: RangelogError) -> str:
    message = " ".join(error.message.split()) or error.code
    advice = next((text for cls, text in _ADVICE.items() if type(error) is cls), "")
    return (
        f"{message}: {advice}" if advice and advice.split("`")[-2 if "`" in advice else 0] not in message else message
    )


@overload
def output_option(command: Callable[..., Any]) -> Callable[..., Any]: ...


@overload
def output_option(
    *, default: str = ..., more: Sequence[str] = ...
) -> Callable[[Callable[..., Any]], Callable[..., Any]]: ...


def output_option(
    command: Callable[..., Any] | None = None, *, default: str = "table", more: Sequence[str] = ()
) -> Any:
    """Add the option -o table|json|yaml to a command; with a default of its own: `@output_option(default="json")`."""
    option = click.option(
        "-o", "--output", type=click.Choice(["table", "json", "yaml", *more]), default=default, show_default=True,
        help="How to print.", callback=chosen_output,
    )  # fmt: skip
    return option if command is None else option(command)


def chosen_output(context: click.Context, option: click.Parameter, value: Any) -> Any:
    """Return what the verb's -o says, else what -o before the verb says."""
    session = context.find_object(Session)
    if context.get_parameter_source(option.name or "") is ParameterSource.DEFAULT and session is not None:
        return session.output or value
    return value


def confirm(name: str, what: str, *, yes: bool) -> None:
    """Ask for the name as confirmation, unless --yes; without a terminal, --yes is required."""
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
