"""Arguments of public methods, checked by their annotations before anything is done: `@checked_arguments` on a class.

What holds: an argument of another type than its annotation names raises InvalidArgument, which says what is wanted. Annotations
that are not in the table are left to the method. A method stays what it is: a coroutine function, or one that is not.
"""

from __future__ import annotations

import functools
import inspect
import math
import reprlib
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime
from numbers import Integral, Real
from typing import Any, NamedTuple, TypeVar

from rangelog_core.errors import InvalidArgument

_T = TypeVar("_T")
_INT_MAX = (1 << 63) - 1
_TEXTS = (str, bytes, bytearray, memoryview)


class ArgumentCheck(NamedTuple):
    """What an annotation lets pass, and how that is said."""

    passes: Callable[[Any], bool]
    wanted: str


def _is_whole(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool) and 0 <= int(value) <= _INT_MAX


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and not math.isnan(value)


def _all(of: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: (
        isinstance(value, Collection) and not isinstance(value, (*_TEXTS, Mapping)) and all(map(of, value))
    )


def _named(name: str) -> Callable[[Any], bool]:
    """Whether a value is of a class of that name, which need not be imported for it."""
    return lambda value: any(each.__name__ == name for each in type(value).__mro__)


_CHECKS = {
    "str": ArgumentCheck(lambda value: isinstance(value, str), "text"),
    "int": ArgumentCheck(_is_whole, "a whole number from 0 up"),
    "float": ArgumentCheck(_is_number, "a number"),
    "bool": ArgumentCheck(lambda value: isinstance(value, bool), "True or False"),
    "bytes": ArgumentCheck(lambda value: isinstance(value, bytes), "bytes"),
    "datetime": ArgumentCheck(lambda value: isinstance(value, datetime), "a datetime"),
    "Sequence[str]": ArgumentCheck(_all(lambda each: isinstance(each, str)), "a list of texts"),
    "Sequence[int]": ArgumentCheck(_all(_is_whole), "a list of whole numbers from 0 up"),
    "Sequence[bytes]": ArgumentCheck(_all(lambda each: isinstance(each, bytes)), "a list of bytes"),
    "Sequence[TablePut | TableDelete | TableCheck]": ArgumentCheck(
        _all(lambda each: type(each).__name__ in ("TablePut", "TableDelete", "TableCheck")),
        "a list of TablePut, TableDelete and TableCheck",
    ),
    "Mapping[int, int]": ArgumentCheck(
        lambda value: isinstance(value, Mapping) and all(_is_whole(each) for row in value.items() for each in row),
        "a mapping of whole numbers to whole numbers",
    ),
    "Mapping[str, str]": ArgumentCheck(
        lambda value: isinstance(value, Mapping) and all(isinstance(each, str) for row in value.items() for each in row),
        "a mapping of texts to texts",
    ),
    "Iterable[BytesLike | AppendRecord]": ArgumentCheck(
        lambda value: isinstance(value, Iterable) and not isinstance(value, (*_TEXTS, Mapping)),
        "an iterable of bytes or AppendRecords",
    ),
    **{name: ArgumentCheck(_named(name), f"a {name}") for name in (
        "Cut", "StreamConfig", "StreamConfigChange", "TopicConfig", "TopicConfigChange", "GroupListener",
        "TopicShards",
    )},
    **{name: ArgumentCheck(callable, "a function") for name in ("Callable[[bytes], Any]", "Callable[[Any], bytes]")},
}  # fmt: skip


def check_of(annotation: str) -> ArgumentCheck | None:
    """Return the check of an annotation, as it is written; None: there is none."""
    found = _CHECKS.get(annotation.removesuffix(" | None"))
    if found is None or not annotation.endswith(" | None"):
        return found
    passes = found.passes
    return ArgumentCheck(lambda value: value is None or passes(value), f"{found.wanted}, or None")


def checked_arguments(cls: type[_T]) -> type[_T]:
    """Make each public method that a class defines check its arguments."""
    for name, method in list(vars(cls).items()):
        if inspect.isfunction(method) and not name.startswith("_"):
            setattr(cls, name, _checked(method))
    return cls


def _checked(method: Callable[..., Any]) -> Callable[..., Any]:
    parameters = inspect.signature(method).parameters.values()
    checks = {each.name: check for each in parameters if (check := check_of(str(each.annotation))) is not None}
    if not checks:
        return method
    in_order = []
    for each in parameters:
        if each.kind not in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD):
            break
        in_order.append(each.name)
    several = next((each.name for each in parameters if each.kind is each.VAR_POSITIONAL), None)

    def look(arguments: tuple[Any, ...], options: Mapping[str, Any]) -> None:
        for name, value in zip(in_order, arguments, strict=False):
            _check(method.__name__, name, checks.get(name), value)
        if several is not None:
            for value in arguments[len(in_order) :]:
                _check(method.__name__, several, checks.get(several), value)
        for name, value in options.items():
            _check(method.__name__, name, checks.get(name), value)

    if inspect.iscoroutinefunction(method):

        @functools.wraps(method)
        async def checked_call(*arguments: Any, **options: Any) -> Any:
            look(arguments, options)
            return await method(*arguments, **options)

        return checked_call

    @functools.wraps(method)
    def checked(*arguments: Any, **options: Any) -> Any:
        look(arguments, options)
        return method(*arguments, **options)

    return checked


def _check(method: str, name: str, check: ArgumentCheck | None, value: Any) -> None:
    if check is not None and not check.passes(value):
        raise InvalidArgument(f"{name} of {method} must be {check.wanted}, not {reprlib.repr(value)}")
