"""Arguments of a wrong shape: every public call of the SDK's clients, every parameter, every wrong value, by the signatures."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rangelog import Client, StreamConfig, StreamConfigChange, TableCheck, TopicConfig
from rangelog._arguments import check_of, checked_arguments
from rangelog.errors import InvalidArgument, RangelogError
from rangelog.testing import FakeCluster

WRONG: tuple[Any, ...] = (
    object(), 3.5, None, b"bytes", "text", [object()], {"a": object()}, -1, 1 << 70, float("nan"),
)  # fmt: skip
VALID: dict[str, Any] = {
    "name": "s", "stream": "s", "topic": "t", "group": "g", "transactional_id": "x", "cursor": "c",
    "values": [b"v"], "value": b"v", "key": b"k", "keys": [b"k"], "writes": [TableCheck(b"k", if_absent=True)], "version": 1,
    "offset": 0, "trim_offset": 0, "shards": 1, "partitions": 1, "parents": [0], "key_ranges": 2, "to": "earliest",
    "topics": ["t"], "place": "head", "config": StreamConfig(), "change": StreamConfigChange(), "topic_id": 1, "shard_id": 0,
}  # fmt: skip
CALLS: dict[str, Callable[[Client], Any]] = {
    "Client": lambda client: client,
    "Topics": lambda client: client.topics,
    "Groups": lambda client: client.groups,
    "Tables": lambda client: client.tables,
    "Transactions": lambda client: client.transactions,
    "StreamCursors": lambda client: client.cursors("s"),
    "Table": lambda client: client.table("t"),
}
SOON_S = 0.2
"""A call with a value that is none of the wrong ones for it may wait: a follower, a watch."""


def cases(called: Any) -> Iterator[tuple[str, list[Any], dict[str, Any]]]:
    """Of each public method and parameter: where it is, and arguments of which that one alone is wrong."""
    for name, method in inspect.getmembers(type(called), inspect.isfunction):
        if name.startswith("_") or name == "close":
            continue
        parameters = [each for each in inspect.signature(method).parameters.values() if each.name != "self"]
        for wrong_one in parameters:
            if wrong_one.name == "deserialize" or "Literal" in str(wrong_one.annotation):
                continue
            for value in WRONG:
                positional: list[Any] = []
                named: dict[str, Any] = {}
                for each in parameters:
                    if each is not wrong_one and (each.default is not each.empty or each.kind is each.VAR_KEYWORD):
                        continue
                    given = value if each is wrong_one else VALID.get(each.name, "s")
                    if each.kind is each.VAR_POSITIONAL:
                        positional += [given] if each is wrong_one else ["t"]
                    elif each.kind is each.KEYWORD_ONLY or each.default is not each.empty:
                        named[each.name] = given
                    else:
                        positional.append(given)
                yield f"{name}({wrong_one.name}={value!r})", positional, named


async def outcome(called: Any, name: str, positional: list[Any], named: dict[str, Any]) -> None:
    """Call, and begin to iterate over what is iterated over."""
    async with asyncio.timeout(SOON_S):
        found = getattr(called, name)(*positional, **named)
        if inspect.isawaitable(found):
            found = await found
        if hasattr(found, "__aiter__"):
            iterator = aiter(found)
            try:
                await anext(iterator, None)
            finally:
                if inspect.isasyncgen(iterator):
                    await iterator.aclose()


@pytest.mark.parametrize("kind", CALLS)
async def test_no_bare_error_comes_of_a_wrong_argument(kind: str) -> None:
    """It is a RangelogError: InvalidArgument for what can be seen at once, or what the cluster says of a name that is none."""
    with FakeCluster(brokers=1) as cluster:
        async with cluster.client() as client:
            await client.create_stream("s")
            await client.append("s", [b"a"])
            called, bare, count = CALLS[kind](client), [], 0
            for where, positional, named in cases(called):
                count += 1
                try:
                    await outcome(called, where.partition("(")[0], positional, named)
                except (RangelogError, TimeoutError):
                    pass
                except Exception as error:
                    bare.append(f"{where}: {error!r}")
            assert count > 20 and not bare, "\n".join(bare)


@pytest.mark.parametrize("headers", [3, "text", b"bytes", [b"a"], {"a": object()}, {3: b"a"}, object()])
async def test_headers_of_a_wrong_shape(headers: Any) -> None:
    """Nothing is appended; a writer and a producer go on."""
    with FakeCluster(brokers=1) as cluster:
        async with cluster.client() as client:
            await client.create_stream("s")
            await client.topics.create("t")
            async with client.writer("s") as writer, client.producer("t") as producer:
                for call in (writer.append, writer.submit, producer.send, producer.send_nowait):
                    with pytest.raises(InvalidArgument):
                        found = call(b"v", headers=headers)
                        if inspect.isawaitable(found):
                            await found
                for shard in ("0", 0.5, [0], True):
                    with pytest.raises(InvalidArgument, match="shard must be the id of a shard"):
                        await producer.send(b"v", shard=shard)  # type: ignore[arg-type]
                assert (await writer.append(b"v")).offset == (await producer.send(b"v")).offset == 0


async def test_the_error_says_what_is_wanted() -> None:
    """The argument, the method, and the type; before anything is asked of a server."""
    async with FakeCluster().client() as client:
        for call, said in (
            (lambda: client.create_stream("s", timeout_s="1"), "timeout_s of create_stream must be a number, not '1'"),
            (
                lambda: client.trim_stream("s", -1),
                "trim_offset of trim_stream must be a whole number from 0 up, not -1",
            ),
            (lambda: client.topics.create("t", TopicConfig(), tags=["a"]), "tags of create must be a mapping of texts"),
            (
                lambda: client.groups.reset("g", "latest", topics="t"),
                "topics of reset must be a list of texts, or None",
            ),
            (lambda: client.create_stream("s", exist_ok="yes"), "exist_ok of create_stream must be True or False"),
        ):
            with pytest.raises(InvalidArgument) as caught:
                await call()
            assert said in caught.value.message


async def test_a_method_stays_what_it_is() -> None:
    """A coroutine function, a generator's maker, with its signature; what no check is known for is left alone."""

    @checked_arguments
    class Example:
        async def wait(self, count: int, *names: str) -> tuple[str, ...]:
            return names * count

        def plain(self, other: object) -> object:
            return other

    assert inspect.iscoroutinefunction(Example.wait)
    assert list(inspect.signature(Example.wait).parameters) == ["self", "count", "names"]
    assert await Example().wait(2, "a") == ("a", "a")
    with pytest.raises(InvalidArgument, match="names of wait must be text, not 3"):
        await Example().wait(2, "a", 3)  # type: ignore[arg-type]
    assert Example().plain(b"x") == b"x" and check_of("object") is None
