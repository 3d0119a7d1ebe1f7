"""What a program imports: the names of `rangelog` and of its public modules, and that they are the shared model's own."""

from __future__ import annotations

import ast
import builtins
import collections.abc
import importlib
import inspect
import typing
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import rangelog
import rangelog.errors
import rangelog.limits
import rangelog.sync
import rangelog_core.errors
import rangelog_core.limits
import rangelog_core.record
import rangelog_core.stream_config

PUBLIC_MODULES = (
    "rangelog",
    "rangelog.arrow",
    "rangelog.context",
    "rangelog.errors",
    "rangelog.limits",
    "rangelog.ranges",
    "rangelog.spark",
    "rangelog.sync",
    "rangelog.testing",
    "rangelog.tier",
    "rangelog_tier",
    "rangelog._read.arrow_chunk",
    "rangelog_tier.arrow",
    "rangelog_tier.object_store",
    "rangelog_tier.opening",
    "rangelog_tier.parquet",
)


@pytest.mark.parametrize("name", PUBLIC_MODULES)
def test_public_modules_are_importable_and_keep_what_they_list(name: str) -> None:
    """Each public module is there, and so is every name of its `__all__`."""
    module = importlib.import_module(name)
    missing = [each for each in getattr(module, "__all__", ()) if not hasattr(module, each)]
    assert not missing


def test_every_error_is_public() -> None:
    """`rangelog.errors` lists each class of the tree, and it is the class that servers raise."""
    tree = {
        name: each
        for name, each in vars(rangelog_core.errors).items()
        if isinstance(each, type) and issubclass(each, rangelog_core.errors.RangelogError)
    }
    assert {name: getattr(rangelog.errors, name) for name in rangelog.errors.__all__} == tree


def test_errors_of_the_package_are_those_of_the_tree() -> None:
    """`except rangelog.StreamNotFound` catches what a call raises."""
    errors = [name for name in rangelog.__all__ if hasattr(rangelog_core.errors, name)]
    assert set(errors) == set(rangelog.errors.__all__)
    for name in errors:
        assert getattr(rangelog, name) is getattr(rangelog_core.errors, name)


def test_records_and_limits_are_the_models_own() -> None:
    """The public names are the same objects as the shared model's."""
    for name in ("Ack", "AppendRecord", "Record"):
        assert getattr(rangelog, name) is getattr(rangelog_core.record, name)
    for name in ("StreamConfig", "StreamConfigChange"):
        assert getattr(rangelog, name) is getattr(rangelog_core.stream_config, name)
    for name in rangelog.limits.__all__:
        assert getattr(rangelog.limits, name) is getattr(rangelog_core.limits, name)


READABLE = {
    *dir(builtins), *rangelog.__all__, *typing.__all__, *collections.abc.__all__,
    "asyncio", "concurrent", "datetime", "timedelta", "_T", "KeyProvider",
}  # fmt: skip
"""What whoever reads `help` knows, or finds in `rangelog`; `_T` is any type, a KeyProvider is of `rangelog_tier`."""
VALUES = {"StreamConfig", "StreamConfigChange", "Retention", "ScalingPolicy", "TopicConfig", "TopicConfigChange"}
"""Classes that a program makes itself."""
OWN_USE = "package's own use"


def _public_calls() -> Iterator[tuple[str, Callable[..., Any]]]:
    for module, names in ((rangelog, rangelog.__all__), (rangelog.sync, dir(rangelog.sync))):
        for name in names:
            thing = getattr(module, name)
            if inspect.isfunction(thing):
                yield f"{module.__name__}.{name}", thing
            elif name in (
                "Client",
                "Reader",
                "Writer",
                "CursorReader",
                "TopicProducer",
                "TopicReader",
                "Topics",
                "Table",
            ):
                for member, call in inspect.getmembers(thing, inspect.isfunction):
                    if not member.startswith("_") and OWN_USE not in (call.__doc__ or ""):
                        yield f"{module.__name__}.{name}.{member}", call
            elif module is rangelog and name in VALUES:
                yield f"rangelog.{name}", thing.__init__


def test_help_shows_types_that_one_can_read() -> None:
    """Arguments show what they may be, not the name of an alias that `help` expands nowhere."""
    calls = dict(_public_calls())
    assert {"rangelog.connect", "rangelog.Client.reader", "rangelog.sync.Writer.append"} <= set(calls)
    unreadable = set()
    for name, call in calls.items():
        for parameter in inspect.signature(call).parameters.values():
            if isinstance(parameter.annotation, str):
                used = ast.walk(ast.parse(parameter.annotation, mode="eval"))
                words = {node.id for node in used if isinstance(node, ast.Name)}
                unreadable |= {f"{name}({parameter.name}: {word})" for word in words - READABLE}
    assert not unreadable, sorted(unreadable)
