"""Doors: protocol front ends of a broker. A door translates and decides nothing.

What holds: a broker has the doors that its settings name; each is an entry point of the group `rangelog.doors`, so that it may
come from another distribution. One that is not there, or whose settings are wrong, ends the start with one line. A door is
opened before the broker registers, takes no new client while the broker hands over, and is closed before its journals.
"""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any, NamedTuple, Protocol

from pydantic import BaseModel, ConfigDict, ValidationError, field_validator

from rangelog import Client
from rangelog.errors import ConfigInvalid
from rangelog_broker.verbs.consume import Consumes
from rangelog_broker.verbs.fetch import Fetches
from rangelog_broker.verbs.produce import Batches
from rangelog_broker.verbs.read import Reads
from rangelog_broker.verbs.send import Sends
from rangelog_core.net.tls import TlsConfig
from rangelog_server_common.address_settings import check_listen
from rangelog_server_common.quotas.guard import QuotaGuard
from rangelog_server_common.rights.guard import RightsGuard
from rangelog_server_common.tokens.verifier import TokenVerifier

GROUP = "rangelog.doors"


class DoorSettings(BaseModel):
    """The keys that every door has; a door's own are those of a subclass."""

    model_config = ConfigDict(extra="forbid")

    listen: str
    """Where it is served, host:port."""

    @field_validator("listen")
    @classmethod
    def _good_address(cls, value: str) -> str:
        return check_listen(value)


class DoorContext(NamedTuple):
    """The broker behind a door."""

    batches: Batches
    fetches: Fetches
    sends: Sends
    reads: Reads
    client: Client
    rights: RightsGuard
    quotas: QuotaGuard
    verifier: TokenVerifier | None
    token: str | None
    tls: TlsConfig | None
    consumes: Consumes


class OpenDoor(Protocol):
    """A door that is being served."""

    def problems(self) -> list[str]:
        """Return why it is not ready; nothing where it is."""

    def leave(self) -> None:
        """Take no new connection; those that exist are served on. Idempotent."""

    async def close(self) -> None:
        """End all connections, after a grace period. Idempotent."""


@dataclass(frozen=True, slots=True)
class Door:
    """A front end: its name, its settings, and what opens it on a bound socket, which is its own from then on."""

    name: str
    settings: type[DoorSettings]
    open: Callable[[DoorContext, Any, socket.socket], Awaitable[OpenDoor]]


def find_door(name: str, values: Mapping[str, Any]) -> tuple[Door, DoorSettings]:
    """Return a door and its settings. Raises ConfigInvalid."""
    found = tuple(entry_points(group=GROUP, name=name))
    if not found:
        known = ", ".join(sorted(each.name for each in entry_points(group=GROUP)))
        raise ConfigInvalid(
            f"doors.{name}: no such door is installed: pip install 'rangelog[{name}]'; there are: {known}"
        )
    try:
        door: Door = found[0].load()
    except ModuleNotFoundError as error:
        raise ConfigInvalid(f"doors.{name}: {error.name} is not installed: pip install 'rangelog[{name}]'") from error
    try:
        return door, door.settings(**values)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"]) or "listen"
        said = first["msg"].removeprefix("Value error, ")
        raise ConfigInvalid(f"doors.{name}.{key}: {said}: correct it and start again") from None
