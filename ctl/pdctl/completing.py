"""Completion of names in the shell: of streams, topics, groups, servers, contexts and others, as the cluster has them.

What holds: the cluster is asked for at most a second; where it does not answer, refuses, or is not named, there is nothing to
choose from and nothing is said. At most a hundred names are offered.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from pdctl.session import Session

if TYPE_CHECKING:
    from rangelog import Client

ANSWER_S = 1.0
NAMES_MAX = 100
_TYPED = "pdctl.typed"
"""In `click.Context.meta`: options of `pdctl` that were typed behind the noun."""
_MAKES_NEW = ("create", "add", "new-key")
_WORDS: dict[tuple[str, ...], dict[str, str]] = {
    ("stream",): {"name": "stream"},
    ("range",): {"stream": "stream"},
    ("object",): {"stream": "stream"},
    ("cursor",): {"stream": "stream", "name": "cursor"},
    ("repair",): {"stream": "stream"},
    ("verify",): {"stream": "stream"},
    ("locate",): {"place": "stream"},
    ("topic",): {"name": "topic", "--group": "group"},
    ("shard",): {"name": "topic"},
    ("table",): {"name": "table"},
    ("group",): {"name": "group", "topics": "topic"},
    ("checkpoint",): {"group": "group"},
    ("namespace",): {"name": "namespace"},
    ("transaction",): {"transactional_id": "transaction"},
    ("server",): {"name": "server", "names": "server"},
    ("logs",): {"names": "server"},
    ("context",): {"name": "context"},
}
"""What the arguments and options of a noun's verbs name."""


class Named(click.ParamType[Any]):
    """A type whose words name things of the cluster."""

    def __init__(self, inner: click.ParamType[Any], kind: str) -> None:
        self.name = inner.name
        self._inner = inner
        self._kind = kind

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """As the type without completion."""
        return self._inner(value, param, ctx)

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str | None:
        """As the type without completion."""
        return self._inner.get_metavar(param, ctx)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return what the word may become."""
        try:
            found = list(_contexts()) if self._kind == "context" else _asked(self._kind, ctx, incomplete)
        except Exception:  # whatever it is, a shell in the midst of a line shows no message
            return []
        taken = ctx.params.get(param.name or "") or ()  # of an argument that takes several
        return [each for each in found if each.value.startswith(incomplete) and each.value not in taken][:NAMES_MAX]


def complete_names(root: click.Group) -> None:
    """Give the parameters that name things their completion. Called once, when the tree is complete."""
    for path, words in _WORDS.items():
        command: click.Command = root
        for name in path:
            assert isinstance(command, click.Group)
            command = command.commands[name]
        verbs = command.commands.items() if isinstance(command, click.Group) else [(path[-1], command)]
        for verb, each in verbs:
            for param in each.params:
                kind = words.get(param.name or "") if isinstance(param, click.Argument) else words.get(param.opts[0])
                if kind is not None and not (verb in _MAKES_NEW and kind == path[0]):
                    param.type = Named(param.type, kind)


def note_typed(context: click.Context, changed: dict[str, Any]) -> None:
    """Keep options of `pdctl` that stand behind the noun, for a completion: no Session is made for one."""
    context.meta.setdefault(_TYPED, {}).update(changed)


def _session(context: click.Context) -> Session:
    root = context.find_root().params
    known = {each.name for each in dataclasses.fields(Session)}
    typed = context.meta.get(_TYPED, {})
    return Session(**{name: value for name, value in (root | typed).items() if name in known} | {"timeout_s": ANSWER_S})


def _contexts() -> Iterator[CompletionItem]:
    from rangelog.context import read_contexts

    for name, each in sorted(read_contexts().by_name.items()):
        yield CompletionItem(name, help=",".join(each.pd))


def _asked(kind: str, context: click.Context, incomplete: str) -> list[CompletionItem]:
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    session = _session(context)
    if kind == "server":
        from rangelog_proto.v1 import pd_pb2

        listed = session.with_pd(
            lambda pd: pd.call(pd_pb2.ListServersRequest(), pd_pb2.ListServersResponse, timeout_s=ANSWER_S)
        )
        return [CompletionItem(each.name) for each in sorted(listed.servers, key=lambda each: each.name)]

    async def work(client: Client) -> list[CompletionItem]:
        found: list[CompletionItem] = []
        async with asyncio.timeout(ANSWER_S):
            async for name in _LISTS[kind](client, context, incomplete):
                found.append(CompletionItem(name))
                if len(found) == NAMES_MAX:
                    break
        return found

    return session.with_client(work)


async def _streams(client: Client, _context: click.Context, start: str) -> AsyncIterator[str]:
    async for each in client.list_streams(start):
        yield each.name


async def _cursors(client: Client, context: click.Context, _start: str) -> AsyncIterator[str]:
    stream = context.params.get("stream")
    if stream:
        async for each in client.cursors(stream).list():
            yield each.name


async def _in_namespaces(list_: Callable[..., AsyncIterator[Any]], start: str) -> AsyncIterator[str]:
    """Yield names: those of the namespace `default` without it, those of others once it is typed."""
    from rangelog_core.topic_names import DEFAULT_NAMESPACE

    namespace, slash, begin = start.rpartition("/")
    async for each in list_(namespace=namespace or DEFAULT_NAMESPACE, prefix=begin):
        yield each.name if slash else each.name.partition("/")[2]


async def _topics(client: Client, _context: click.Context, start: str) -> AsyncIterator[str]:
    async for name in _in_namespaces(client.topics.list, start):
        yield name
    async for name in _other_namespaces(client, start):
        yield name


async def _tables(client: Client, _context: click.Context, start: str) -> AsyncIterator[str]:
    async for name in _in_namespaces(client.tables.list, start):
        yield name
    async for name in _other_namespaces(client, start):
        yield name


async def _other_namespaces(client: Client, start: str) -> AsyncIterator[str]:
    from rangelog_core.topic_names import DEFAULT_NAMESPACE

    if "/" not in start:
        async for name in client.topics.namespaces(start):
            if name != DEFAULT_NAMESPACE:
                yield f"{name}/"


async def _namespaces(client: Client, _context: click.Context, start: str) -> AsyncIterator[str]:
    async for name in client.topics.namespaces(start):
        yield name


async def _groups(client: Client, _context: click.Context, start: str) -> AsyncIterator[str]:
    async for each in client.groups.list(start):
        yield each.name


async def _transactions(client: Client, _context: click.Context, start: str) -> AsyncIterator[str]:
    async for each in client.transactions.list(start, timeout_s=ANSWER_S):
        yield each.transactional_id


_LISTS: dict[str, Callable[[Client, click.Context, str], AsyncIterator[str]]] = {
    "stream": _streams,
    "cursor": _cursors,
    "topic": _topics,
    "table": _tables,
    "namespace": _namespaces,
    "group": _groups,
    "transaction": _transactions,
}
