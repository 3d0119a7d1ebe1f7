"""Where a new streaming query begins: the option "startingOffsets".

One position for all that is read, or JSON that names one for each stream or topic:

    latest          earliest          -1h          2026-01-31T12:00:00Z          250          {"cut":1, ...}
    {"flights": 250, "rides": "earliest", "fares": "-1h"}
    {"default/rides": {"cut":1,"topic_id":3,"offsets":{"0":120,"1":80}}, "default/fares": "latest"}

The offset is one of a stream, the cut one of a topic. JSON names each stream or topic that the query lists; of a pattern those
that it does not name begin at their ends, as without the option.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from rangelog.spark.options import Position, position
from rangelog_core.errors import ConfigInvalid, RangelogError
from rangelog_core.ids import check_name
from rangelog_core.topic_names import parse_topic_name

OPTION = "startingOffsets"
START_DEFAULT = "latest"
TEXT_LENGTH_MAX = 1 << 20
Starting = Position | Mapping[str, Position]


def parse_starting(text: str, names: Sequence[str], now: datetime, *, of_topics: bool) -> Starting:
    """Return where a query begins with these streams or topics, or with those of a pattern if there are none.

    Raises ConfigInvalid, which names the option; InvalidArgument for a bad name.
    """
    if not text.startswith("{"):
        return _one(text, now, of_topic=of_topics)
    parsed = _parsed(text)
    if of_topics and type(parsed.get("cut")) is int:
        if len(names) > 1:
            raise ConfigInvalid(f'option {OPTION}: a cut is of one topic; name the topic of each: {{"{names[0]}": …}}')
        return _one(text, now, of_topic=True)
    found = {_name(name, of_topics): _told(name, told, now, of_topics) for name, told in parsed.items()}
    unknown, missing = [name for name in found if name not in names], [name for name in names if name not in found]
    if names and unknown:
        raise ConfigInvalid(f"option {OPTION} names {unknown[0]!r}, which the query does not read")
    if missing:
        raise ConfigInvalid(f"option {OPTION} is JSON, and does not name {missing[0]!r}")
    return found


def _parsed(text: str) -> dict[str, Any]:
    try:
        if len(text) > TEXT_LENGTH_MAX:
            raise ValueError(f"it has {len(text)} characters; {TEXT_LENGTH_MAX} are allowed")
        parsed = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigInvalid(f"option {OPTION} is no JSON: {error}") from error
    assert isinstance(parsed, dict)  # it begins with a brace
    return parsed


def _name(name: str, of_topics: bool) -> str:
    return str(parse_topic_name(name)) if of_topics else check_name("stream", name)


def _told(name: str, told: Any, now: datetime, of_topics: bool) -> Position:
    text = told if isinstance(told, str) else json.dumps(told)
    try:
        return _one(text, now, of_topic=of_topics)
    except RangelogError as error:
        raise ConfigInvalid(f"of {name[:100]!r}: {error}") from error


def _one(text: str, now: datetime, *, of_topic: bool) -> Position:
    return text if text == START_DEFAULT else position(OPTION, text, "earliest", now, of_topic=of_topic)
