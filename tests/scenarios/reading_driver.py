"""The commands of a reader's scenarios: where a position is read from, and what the answers of a range's replicas prove."""

from __future__ import annotations

from types import SimpleNamespace

from rangelog.protocol.proof import Told, weigh
from rangelog.protocol.reading import ReadPreference, locate, tiers_for
from rangelog_core.errors import RangelogError
from tests.scenarios.appender_driver import names, replica


class ReadingDriver:
    """The ranges of one stream, as the placement driver listed them, and what its last range's replicas answered."""

    def __init__(self) -> None:
        self.ranges: list[SimpleNamespace] = []
        self.sealed: list[bool] = []
        self.trim_offset = 0
        self.told: dict[str, Told] = {}

    def do_range(self, start: str, end: str, *, tiered: str = "", hot: str = "yes", lost: str = "no") -> list[str]:
        """`range 0 10 tiered=10 hot=no`: a sealed range; `range 10 open`: one that is written to; `lost=yes`: given up."""
        is_sealed = end != "open"
        self.ranges.append(
            SimpleNamespace(
                index=len(self.ranges),
                start_offset=int(start),
                end_offset=int(end) if is_sealed else 0,
                tiered_end_offset=int(tiered or start),
                hot_dropped=hot == "no",
                lost=lost == "yes",
            )
        )
        self.sealed.append(is_sealed)
        return []

    def do_trim(self, offset: str) -> list[str]:
        """`trim 5`: everything below is gone."""
        self.trim_offset = int(offset)
        return []

    def do_read(self, position: str, preference: str = "hot_first") -> list[str]:
        """`read 7 cold_first`: which range and tier it comes from."""
        try:
            found = locate(self.ranges, self.sealed, int(position), self.trim_offset)
            if found is None:
                return ["no range yet: wait"]
            source = self.ranges[found.number]
            tiers = tiers_for(
                source, sealed=found.sealed, position=int(position), preference=ReadPreference.parse(preference)
            )
        except RangelogError as error:
            return [error.code if error.offset is None else f"{error.code} offset={error.offset}"]
        return [f"r{source.index} {', then '.join(tier.value for tier in tiers)}"]

    def do_told(
        self, who: str, flag: str = "", *, durable: str = "0", confirm: str = "0", sealed: str = ""
    ) -> list[str]:
        """`told a durable=7 confirm=5`, `told b doubtful durable=3`, `told c sealed=7`: a replica's answer."""
        end = int(sealed) if sealed else None
        self.told[who] = Told(replica(who), int(durable), int(confirm), end, flag == "doubtful")
        return []

    def do_silent(self, who: str) -> list[str]:
        """`silent c`: it does not answer any more."""
        self.told.pop(who, None)
        return []

    def do_weigh(self, *, replicas: str = "3", acks: str = "2", start: str = "0", floor: str = "0") -> list[str]:
        """What the answers so far prove."""
        found = weigh(
            list(self.told.values()),
            replicas=int(replicas),
            acks=int(acks),
            start_offset=int(start),
            floor_offset=int(floor),
        )
        line = f"confirmed={found.confirmed_offset} held={found.held_offset}"
        line += f" by {names(found.holders)}" if found.holders else ""
        line += "" if found.sealed_end_offset is None else f" sealed={found.sealed_end_offset}"
        return [line + ("" if found.complete else ", more may be acked")]
