"""Topics in text form: names, keys and key ranges, scaling policies, tags, positions.

What holds: a key that is printed is read back as the same key. The leading digits are enough: `8` is the middle of the key
space, `end` its end; `0x` and all 32 digits are read as well, as JSON and error messages have them.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import click

from pdctl.units import Size, quoted
from rangelog_core.errors import InvalidArgument
from rangelog_core.key_ranges import KEY_BYTES, KEY_SPACE_END, KeyRange
from rangelog_core.limits import OFFSET_MAX
from rangelog_core.topic_names import DEFAULT_NAMESPACE, TopicName, parse_topic_name

_KEY_DIGITS = 2 * KEY_BYTES
_LEADING = re.compile(rf"[0-9a-f]{{1,{_KEY_DIGITS}}}\Z")
_FULL = re.compile(rf"0x([0-9a-f]{{{_KEY_DIGITS}}})\Z")
_NUMBER = re.compile(r"[0-9]{1,19}\Z")
_END = "end"
_FACTOR_MAX, _SHARDS_MAX, _TARGET_MAX = 64, 3_000, 1 << 53


class TopicNameType(click.ParamType[TopicName]):
    """NAMESPACE/NAME, or a name in the namespace `default`."""

    name = "topic"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> TopicName:
        """Parse."""
        try:
            return parse_topic_name(str(value))
        except InvalidArgument as error:
            self.fail(f"{error.message} (a topic is NAMESPACE/NAME, or NAME in {DEFAULT_NAMESPACE})", param, ctx)


class KeyType(click.ParamType[int]):
    """A place in the key space."""

    name = "key"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Parse."""
        text = str(value).strip().lower()
        if text in (_END, f"{KEY_SPACE_END:#x}"):
            return KEY_SPACE_END
        full = _FULL.match(text)
        if full is not None:
            return int(full[1], 16)
        if not _LEADING.match(text):
            self.fail(
                f"{quoted(value)} is not a key: write its leading hexadecimal digits, such as 8 for the middle of the key "
                f"space, or {_END}",
                param,
                ctx,
            )
        return int(text.ljust(_KEY_DIGITS, "0"), 16)


class KeyRangeType(click.ParamType[KeyRange]):
    """LOW..HIGH; without a low end from the first key, without a high end up to the last one."""

    name = "key range"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> KeyRange:
        """Parse."""
        low, dots, high = str(value).partition("..")
        if not dots:
            self.fail(f"{quoted(value)} is not a key range: write LOW..HIGH, such as 4..8 or c..{_END}", param, ctx)
        key = KeyType()
        made = KeyRange(
            key.convert(low, param, ctx) if low else 0, key.convert(high, param, ctx) if high else KEY_SPACE_END
        )
        if made.low >= made.high:
            self.fail(f"{quoted(value)} has no keys: its low end must be below its high end", param, ctx)
        return made


def show_key(key: int) -> str:
    """Return a key by its leading digits: 8, 2aa, end."""
    if key == KEY_SPACE_END:
        return _END
    return f"{key:0{_KEY_DIGITS}x}".rstrip("0") or "0"


def show_key_range(key_range: KeyRange) -> str:
    """4..8"""
    return f"{show_key(key_range.low)}..{show_key(key_range.high)}"


class ScalingChoice(NamedTuple):
    """A scaling policy."""

    kind: str
    target_per_s: int = 0
    factor: int = 0
    shards_min: int = 0
    shards_max: int = 0


class ScalingType(click.ParamType[ScalingChoice]):
    """`fixed`, `events:1000` or `bytes:1MiB`, the last two with `,factor=2`, `,min=1` and `,max=100`."""

    name = "scaling"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> ScalingChoice:
        """Parse."""
        text = str(value).strip().lower()
        if text == "fixed":
            return ScalingChoice("fixed")
        policy, *more = text.split(",")
        kind, _, target_text = policy.partition(":")
        target = -1
        if kind == "bytes":
            target = Size().convert(target_text, param, ctx)
        elif kind == "events" and _NUMBER.match(target_text):
            target = int(target_text)
        bounds = {"factor": (2, _FACTOR_MAX), "min": (1, _SHARDS_MAX), "max": (1, _SHARDS_MAX)}
        found: dict[str, int] = {}
        for option in more:
            name, _, number = option.partition("=")
            low, high = bounds.pop(name, (1, 0))
            if not _NUMBER.match(number) or not low <= int(number) <= high:
                target = -1
                break
            found[name] = int(number)
        if not 1 <= target <= _TARGET_MAX:
            self.fail(
                f"{quoted(value)} is not a scaling policy: write fixed, events:1000 or bytes:1MiB (per second and shard), "
                f"the last two also with ,factor=2 (2 to {_FACTOR_MAX}), ,min=1 and ,max=100 (1 to {_SHARDS_MAX})",
                param,
                ctx,
            )
        return ScalingChoice(kind, target, found.get("factor", 0), found.get("min", 0), found.get("max", 0))


class TagType(click.ParamType[tuple[str, str]]):
    """KEY=VALUE."""

    name = "tag"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        """Parse."""
        if isinstance(value, tuple):  # click converts a default, and what is converted already, again
            return value
        key, sign, tag = str(value).partition("=")
        if not (key and sign):
            self.fail(f"{quoted(value)} is not a tag: write KEY=VALUE", param, ctx)
        return key, tag


class PositionType(click.ParamType[tuple[int, int]]):
    """SHARD=OFFSET."""

    name = "position"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, int]:
        """Parse."""
        if isinstance(value, tuple):
            return value
        shard, _, offset = str(value).partition("=")
        if not (_NUMBER.match(shard) and _NUMBER.match(offset)) or int(offset) > OFFSET_MAX:
            self.fail(f"{quoted(value)} is not a position: write SHARD=OFFSET, such as 0=1200", param, ctx)
        return int(shard), int(offset)
