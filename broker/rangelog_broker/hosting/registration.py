"""Registers this broker and keeps it alive for the placement driver: heartbeats with what it knows of its shards."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from rangelog.errors import RangelogError
from rangelog_broker.hosting.assignments import OwnedKey
from rangelog_broker.hosting.load_report import LoadReport
from rangelog_core.net.pd_client import PdClient
from rangelog_core.versions import FEATURE_LEVEL
from rangelog_proto.v1 import broker_pb2

CALL_TIMEOUT_S = 5.0
HEARTBEAT_TIMEOUT_S = 2.0
INTERVAL_MS_DEFAULT = 500
RETRY_S = 0.2

_log = logging.getLogger("rangelog.broker")


class Reported(Protocol):
    """What heartbeats report, and what their answers ask for."""

    minute_s: float
    """What counts as a minute in moving averages."""

    def loads(self) -> Mapping[OwnedKey, broker_pb2.ShardLoad]:
        """Return the loads of all shards that are not idle."""

    def covered(self) -> Sequence[broker_pb2.ShardCover]:
        """Return how far snapshots reach, of the shards that were asked for last."""

    def cover(self, wanted: Sequence[broker_pb2.ShardCover]) -> None:
        """Make snapshots reach so far: the whole list of what is wanted now."""


class Registration:
    """One broker in one incarnation. `register`, then `run` as a task."""

    def __init__(
        self,
        brokers: PdClient,
        row: broker_pb2.Broker,
        reported: Reported,
        unopenable: Callable[[], Sequence[OwnedKey]] = tuple,
    ) -> None:
        """`row`: name, incarnation, addresses, zone, version. `unopenable`: see Host."""
        self._brokers = brokers
        self._row = row
        self._reported = reported
        self._unopenable = unopenable
        self._report = LoadReport()
        self._interval_s = INTERVAL_MS_DEFAULT / 1000
        self.heartbeats = self.heartbeat_failures = 0
        self.answered_s: float | None = None
        """When a placement driver answered last, on the loop's clock; None: never yet."""
        self.heard_rights: Callable[[int], None] = lambda version: None
        """Told the version of the rights in force with each answer."""
        self.heard_tokens: Callable[[int], None] = lambda version: None
        """Told the version of what tokens are checked against with each answer."""
        self.heard_quotas: Callable[[int], None] = lambda version: None
        """Told the version of the quotas with each answer."""
        self.heard_version: Callable[[int], None] = lambda version: None
        """Told the broker version with each answer."""

    async def register(self) -> None:
        """Register. Raises PreconditionFailed (another one of this name is alive), Unavailable, Unauthorized."""
        row = self._row
        request = broker_pb2.RegisterBrokerRequest(
            request_id=uuid.uuid4().hex,
            name=row.name,
            incarnation=row.incarnation,
            address=row.address,
            control_address=row.control_address,
            zone=row.zone,
            version=row.version,
            feature_level=FEATURE_LEVEL,
            endpoints=row.endpoints,
            host=row.host,
        )
        response = await self._brokers.call(request, broker_pb2.RegisterBrokerResponse, timeout_s=CALL_TIMEOUT_S)
        if response.heartbeat_interval_ms:
            self._interval_s = response.heartbeat_interval_ms / 1000
        if response.rate_minute_ms:
            self._reported.minute_s = response.rate_minute_ms / 1000
        self.heard_rights(response.rights_version)
        self.heard_tokens(response.tokens_version)
        self.heard_quotas(response.quotas_version)
        self.heard_version(response.broker_version)
        self.answered_s = asyncio.get_running_loop().time()
        _log.info("registered as %s@%016x at %s", row.name, row.incarnation, row.address)

    async def register_at_last(self) -> None:
        """Register; retry until a placement driver answers. Raises refusals that are final."""
        said = ""
        while True:
            try:
                return await self.register()
            except RangelogError as error:
                if not error.retriable:
                    raise
                if error.message != said:
                    said = error.message
                    _log.warning("not registered yet: %s", said)
            await asyncio.sleep(RETRY_S)

    async def run(self) -> None:
        """Send heartbeats until cancelled; register again where the placement driver asks for it."""
        while True:
            await asyncio.sleep(self._interval_s)
            loads, complete = self._report.next(self._reported.loads())
            request = broker_pb2.BrokerHeartbeatRequest(
                name=self._row.name,
                incarnation=self._row.incarnation,
                loads=loads,
                complete=complete,
                covered=self._reported.covered(),
                feature_level=FEATURE_LEVEL,
                host=self._row.host,
                unopenable=[broker_pb2.OwnedShard(topic_id=key[0], shard_id=key[1]) for key in self._unopenable()],
            )
            self._report.forget()
            self.heartbeats += 1
            try:
                response = await self._brokers.call(
                    request, broker_pb2.BrokerHeartbeatResponse, timeout_s=HEARTBEAT_TIMEOUT_S
                )
                self.answered_s = asyncio.get_running_loop().time()
                self.heard_rights(response.rights_version)
                self.heard_tokens(response.tokens_version)
                self.heard_quotas(response.quotas_version)
                self.heard_version(response.broker_version)
                if response.register:
                    await self.register()
                elif not response.send_all:
                    self._report.answered()
                self._reported.cover(response.cover)
            except RangelogError as error:
                self.heartbeat_failures += 1
                _log.info("no heartbeat: %s", error)
            except Exception:
                self.heartbeat_failures += 1
                _log.exception("a heartbeat failed")

    async def leave(self) -> None:
        """Ask that everything be assigned to others. The port of this broker is closed already, which is what they look at."""
        request = broker_pb2.ReportBrokerLostRequest(name=self._row.name, incarnation=self._row.incarnation)
        try:
            await self._brokers.call(request, broker_pb2.ReportBrokerLostResponse, timeout_s=CALL_TIMEOUT_S)
        except RangelogError as error:
            _log.info("others learn of the end by themselves: %s", error)

    async def others_are_alive(self) -> bool:
        """Return whether another broker counts as alive; also where no placement driver answers."""
        try:
            found = await self._brokers.call(
                broker_pb2.ListBrokersRequest(), broker_pb2.ListBrokersResponse, timeout_s=CALL_TIMEOUT_S
            )
        except RangelogError as error:
            _log.info("other brokers are not known: %s", error)
            return True
        return any(not each.lost and each.name != self._row.name for each in found.brokers)
