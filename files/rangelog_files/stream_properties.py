"""The properties of a stream of event files: one small JSON object, changed by compare-and-set. No I/O.

What holds: every change raises `version` by one, and names the version that it was made from; so of two changes made from one
version one is refused. Properties that this program does not know are kept as they are.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from rangelog_core.errors import ConfigInvalid, Corruption
from rangelog_files.index_file import INTERVAL_BYTES_DEFAULT
from rangelog_files.layout import DURATION_S_DEFAULT, NUMBER_MAX, TIME_S_MAX

PROPERTIES_FILE_BYTES_MAX = 64 * 1024
WRITERS_MAX = 1_000
_BOUNDS = {
    "version": (1, NUMBER_MAX), "generation": (1, NUMBER_MAX), "writers": (1, WRITERS_MAX),
    "partition_s": (1, TIME_S_MAX), "index_interval_bytes": (1, 1 << 40),
}  # fmt: skip
CHANGEABLE = ("ttl_s", "writers", "partition_s", "index_interval_bytes")
"""What `changed` takes; a generation is raised by a truncation alone."""


@dataclass(frozen=True, slots=True)
class EventStreamProperties:
    """The properties of a stream of events, as of one version.

    Attributes:
        version: Rises by one with each change.
        generation: The number of the present generation; a truncation begins the next one.
        ttl_s: How long events are read after they were written, in seconds; None: for ever.
        writers: How many writers without a prefix of their own it may have at a time.
        partition_s: The span of time of each partition's directory, in seconds.
        index_interval_bytes: The distance of two entries of an index, in bytes of the event file.
        others: Properties that this program does not know.
    """

    version: int = 1
    generation: int = 1
    ttl_s: float | None = None
    writers: int = 64
    partition_s: int = DURATION_S_DEFAULT
    index_interval_bytes: int = INTERVAL_BYTES_DEFAULT
    others: Mapping[str, Any] = field(default_factory=dict)

    def encode(self) -> bytes:
        """Return the file's content."""
        known = {name: getattr(self, name) for name in (*_BOUNDS, "ttl_s")}
        return json.dumps({**self.others, **known}, indent=1, sort_keys=True).encode() + b"\n"

    def changed(self, **values: Any) -> EventStreamProperties:
        """Return the next version, with these values of CHANGEABLE. Raises ConfigInvalid.

        Example:
            >>> EventStreamProperties().changed(ttl_s=60.0).version
            2
        """
        for name in values:
            if name not in CHANGEABLE:
                raise ConfigInvalid(
                    f"a stream of events has no property {name!r:.100}: there are {', '.join(CHANGEABLE)}"
                )
        return _checked(replace(self, version=self.version + 1, **values), ConfigInvalid)

    def truncated(self) -> EventStreamProperties:
        """Return the next version, in the next generation."""
        return replace(self, version=self.version + 1, generation=self.generation + 1)


def decode_properties(data: bytes, source: str) -> EventStreamProperties:
    """Return the properties that a file has. Raises Corruption, which names `source`, for anything else."""
    if len(data) > PROPERTIES_FILE_BYTES_MAX:
        raise Corruption(f"{source}: {len(data)} bytes are no properties: at most {PROPERTIES_FILE_BYTES_MAX}")
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Corruption(f"{source}: the properties are no JSON: {error}") from error
    if not isinstance(found, dict):
        raise Corruption(f"{source}: the properties are no JSON object")
    known = {name: found.pop(name) for name in (*_BOUNDS, "ttl_s") if name in found}
    if "version" not in known or "generation" not in known:
        raise Corruption(f"{source}: the properties have no version or no generation")
    return _checked(EventStreamProperties(**known, others=found), Corruption, f"{source}: ")


def _checked(
    properties: EventStreamProperties, error: type[ConfigInvalid | Corruption], where: str = ""
) -> EventStreamProperties:
    for name, (least, most) in _BOUNDS.items():
        value = getattr(properties, name)
        if type(value) is not int or not least <= value <= most:
            raise error(f"{where}{name} is {value!r:.100}, not a whole number of {least} … {most}")
    ttl_s = properties.ttl_s
    if ttl_s is not None and (type(ttl_s) not in (int, float) or not 0 < ttl_s <= TIME_S_MAX):
        raise error(f"{where}ttl_s is {ttl_s!r:.100}, not seconds above 0, or null")
    return properties
