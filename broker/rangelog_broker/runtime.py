"""One running broker: the port of producers, the gRPC services, and what is assigned to it, on one event loop.

Order: sockets are bound, the broker registers, and what is assigned to it from then on is opened. At a stop the port is closed
first and everything is assigned to others; the connections that exist are served until their shards are assigned elsewhere, so
producers see one fence and no gap besides.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack, suppress
from importlib.metadata import version
from typing import Any

from rangelog import Client
from rangelog.errors import Unavailable
from rangelog_broker import metrics
from rangelog_broker.door import DoorContext, OpenDoor, find_door
from rangelog_broker.hosting.assignments import AssignmentWatch, OwnedKey
from rangelog_broker.hosting.host import Host
from rangelog_broker.hosting.journals import OwnedJournals
from rangelog_broker.hosting.owned import OwnedShards
from rangelog_broker.hosting.registration import Registration
from rangelog_broker.kind import KindContext
from rangelog_broker.kinds import BYTE_CALLS, needs_of_call
from rangelog_broker.services import SERVICES, add_services
from rangelog_broker.serving.connection import ProducerPort, make_factory
from rangelog_broker.settings import BrokerSettings
from rangelog_broker.topic_rights import TopicRights
from rangelog_broker.transactions.inquiries import Inquiries
from rangelog_broker.verbs.consume import Consumes
from rangelog_broker.verbs.fetch import Fetches
from rangelog_broker.verbs.read import Reads
from rangelog_broker.verbs.send import Sends
from rangelog_core.net.data_connection import DataConnections
from rangelog_core.net.owner_calls import OwnerCalls
from rangelog_core.net.principals import Port, Role
from rangelog_core.net.tls_peers import server_arguments
from rangelog_proto.v1 import broker_pb2
from rangelog_server_common.address_settings import split_listen
from rangelog_server_common.grpc_server import GrpcServer
from rangelog_server_common.metrics.listening import serve_metrics
from rangelog_server_common.process import remove_endpoint, write_endpoint
from rangelog_server_common.quotas.guard import QuotaGuard
from rangelog_server_common.rights.guard import RightsGuard
from rangelog_server_common.tls_settings import open_tls
from rangelog_server_common.tokens.settings import open_verifier
from rangelog_server_common.tokens.trust_keeper import TrustKeeper
from rangelog_server_common.tokens.verifier import TokenVerifier
from rangelog_tier.encryption_keys import key_provider

SWEEP_INTERVAL_S = 1.0
HAND_OVER_S = 5.0
"""How long a stopping broker serves what it still owns."""
LOOK_AGAIN_S = 0.25
"""How often a stopping broker looks whether there is another one."""

_log = logging.getLogger("rangelog.broker")


def bind(listen: str) -> socket.socket:
    """Bind a port without listening on it yet. Raises Unavailable."""
    host, port = split_listen(listen)
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, kind, protocol)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError as error:
        raise Unavailable(f"cannot listen on {listen}: {error.strerror or error}") from error
    return bound


class Runtime:
    """One running broker. For one event loop."""

    def __init__(self, settings: BrokerSettings) -> None:
        self._settings = settings
        self._stop = asyncio.Event()
        self._row = broker_pb2.Broker(
            name=settings.name,
            incarnation=secrets.randbits(63) | 1,
            zone=settings.zone,
            host=settings.host,
            version=version("rangelog"),
        )

    def stop(self) -> None:
        """Make `run` return soon."""
        self._stop.set()

    async def run(self) -> None:
        """Serve until stopped. Raises Unavailable (port in use, no placement driver), PreconditionFailed (name in use)."""
        settings, row = self._settings, self._row
        loop = asyncio.get_running_loop()
        async with AsyncExitStack() as stack:
            stack.callback(_log.info, "stopped")
            self._check_tls()
            bound = stack.enter_context(self._bind())
            row.address = self._advertised(bound.getsockname())
            client = self._client()
            stack.push_async_callback(client.close)
            rights, trust, verifier = self._open_checks(stack, client)
            quotas = QuotaGuard(byte_calls=BYTE_CALLS)
            topics = quotas.pd = client.metadata.pd
            stack.push_async_callback(quotas.close)
            control = self._control(verifier)
            control.hold_by(quotas.hold_call)
            control.limit_by(lambda caller, method, request: rights.require(caller, needs_of_call(method, request)))
            stack.push_async_callback(control.stop)
            watch = AssignmentWatch(client.metadata.pd, row.name, row.incarnation)
            journals = OwnedJournals(client, topics)
            owned = OwnedShards(client, topics, lambda key: key in watch.assigned, journals.open_table)
            calls = self._calls(client)
            stack.push_async_callback(calls.close)
            inquiries = Inquiries(calls)
            _join(owned, journals, inquiries)
            context = KindContext(client, topics, calls, owned, TopicRights(rights, topics), settings)
            add_services(stack, control, journals, context)
            control_port = await control.start(settings.control_listen, SERVICES)
            row.control_address = self._advertised((split_listen(settings.control_listen)[0], control_port))
            stack.push_async_callback(owned.scaling.close)
            stack.push_async_callback(owned.covering.close)
            host = Host(lambda key: self._open_one(owned, journals, key), owned.scaling.settled)
            stack.push_async_callback(host.close)
            watch.on_assigned, watch.on_withdrawn = host.assigned, host.withdrawn
            watch.on_topic, watch.on_topic_gone = owned.topic_changed, owned.topic_gone
            port = ProducerPort(
                row.name, row.incarnation, settings.token, owned, loop, rights=rights, verifier=verifier, quotas=quotas
            )
            stack.callback(port.close)
            server = await self._listen(make_factory(port), bound)
            stack.callback(server.close)
            desk = self._open_desk(stack, owned, port, rights, quotas, verifier)
            doors = await self._open_doors(stack, desk)
            registration = Registration(client.metadata.pd, row, owned, host.unopenable)
            registration.heard_rights, registration.heard_tokens = rights.heard, trust.heard
            registration.heard_quotas, registration.heard_version = quotas.heard, journals.heard_version
            facts = metrics.BrokerFacts(port, desk, owned, journals, host, registration, doors)
            metrics_address = await self._serve_metrics(stack, facts, control)
            if not await self._registered(registration):
                return
            await control.set_serving(True)
            beating = asyncio.create_task(registration.run())
            stack.callback(beating.cancel)
            for work in (watch.run(), inquiries.run(), self._sweep(port)):
                stack.callback(asyncio.create_task(work).cancel)
            self._announce(stack, metrics_address)
            await self._stop.wait()
            beating.cancel()
            closings = [server.close, desk.reads.leave, desk.consumes.leave, *(door.leave for door in doors.values())]
            await self._hand_over(closings, registration, watch)

    # ---- ways in and out; rangelog_broker.testing has others

    def _check_tls(self) -> None:
        open_tls(self._settings, Role.BROKER)

    def _bind(self) -> socket.socket:
        return bind(self._settings.listen)

    def _client(self) -> Client:
        settings = self._settings
        return Client(
            settings.pd,
            token=settings.token,
            tls=settings.tls,
            tier_url=settings.tier_url or None,
            encryption_keys=key_provider(settings.encryption_keys_dir, settings.encryption_kms_key_id),
            lag_limits=settings.lag_limits,
            connections=DataConnections(token=settings.token, tls=settings.tls, client_name=f"broker {settings.name}"),
        )

    def _control(self, verifier: TokenVerifier | None) -> GrpcServer:
        settings = self._settings
        return GrpcServer(token=settings.token, tls=settings.tls, port=Port.BROKER_CONTROL, verifier=verifier)

    def _calls(self, client: Client) -> OwnerCalls:
        return OwnerCalls(client.metadata.pd, token=self._settings.token, tls=self._settings.tls)

    async def _listen(self, factory: Callable[[], Any], bound: socket.socket) -> asyncio.Server:
        tls = server_arguments(self._settings.tls, tokens=self._settings.tokens)
        return await asyncio.get_running_loop().create_server(factory, sock=bound, backlog=1024, **tls)

    # ---- inside

    def _open_checks(
        self, stack: AsyncExitStack, client: Client
    ) -> tuple[RightsGuard, TrustKeeper, TokenVerifier | None]:
        """Return what says who clients are and what they may do; the placement driver is asked by the broker's client."""
        rights, trust = RightsGuard(), TrustKeeper()
        rights.pd = client.metadata.pd
        rights.begin_unknown()
        stack.push_async_callback(rights.close)
        verifier = open_verifier(stack, self._settings, trust.now)
        if verifier is not None:
            trust.pd = client.metadata.pd
        stack.push_async_callback(trust.close)
        return rights, trust, verifier

    def _open_desk(
        self,
        stack: AsyncExitStack,
        owned: OwnedShards,
        port: ProducerPort,
        rights: RightsGuard,
        quotas: QuotaGuard,
        verifier: TokenVerifier | None,
    ) -> DoorContext:
        """Return the verbs for doors, with a client of their own: its budgets are not those of shards and journals."""
        settings, client = self._settings, self._client()
        stack.push_async_callback(client.close)
        fetches = Fetches(owned, owned.rows, client, quotas, settings.fetch_bytes_max)
        stack.push_async_callback(fetches.close)
        sends = Sends(client, quotas)
        stack.push_async_callback(sends.close)
        reads, consumes = Reads(client, quotas), Consumes(client, quotas, settings.name)
        stack.push_async_callback(consumes.close)
        return DoorContext(
            port.batches, fetches, sends, reads, client, rights, quotas, verifier, settings.token, settings.tls, consumes
        )  # fmt: skip

    async def _serve_metrics(self, stack: AsyncExitStack, facts: metrics.BrokerFacts, control: GrpcServer) -> str:
        listen, parts = self._settings.metrics_listen, metrics.parts(facts, control.calls)
        problems = lambda: metrics.problems(facts)  # noqa: E731
        return await serve_metrics(stack, listen, "broker", self._row.name, parts, problems, self._settings.tls)

    async def _open_doors(self, stack: AsyncExitStack, context: DoorContext) -> dict[str, OpenDoor]:
        """Serve the doors that the settings name, and note their addresses. Raises ConfigInvalid, Unavailable."""
        opened: dict[str, OpenDoor] = {}
        for name, values in self._settings.all_doors().items():
            door, settings = find_door(name, values)
            bound = stack.enter_context(bind(settings.listen))
            address = self._advertised(bound.getsockname())
            opened[name] = await door.open(context, settings, bound)
            stack.push_async_callback(opened[name].close)
            self._row.endpoints.add(door=name, address=address)
        self._row.endpoints.sort(key=lambda each: each.door)
        return opened

    async def _registered(self, registration: Registration) -> bool:
        """Register; return False where the broker is stopped before a placement driver answers."""
        registering = asyncio.create_task(registration.register_at_last())
        stopped = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait((registering, stopped), return_when=asyncio.FIRST_COMPLETED)
            if registering.done():
                await registering
                return True
            return False
        finally:
            registering.cancel()
            stopped.cancel()

    async def _open_one(self, owned: OwnedShards, journals: OwnedJournals, key: OwnedKey) -> Any:
        return await (owned.open_one(key) if key[0] else journals.open_coordinator(key))

    async def _hand_over(
        self, closings: Iterable[Callable[[], object]], registration: Registration, watch: AssignmentWatch
    ) -> None:
        """Hand everything over to other brokers, and wait until nothing is assigned to this one, for a while at most.

        Where no other broker is alive nobody will: then the end is now.
        """
        for close in closings:
            close()
        await registration.leave()
        with suppress(TimeoutError):
            async with asyncio.timeout(HAND_OVER_S):
                while await registration.others_are_alive():
                    with suppress(TimeoutError):
                        async with asyncio.timeout(LOOK_AGAIN_S):
                            await watch.wait_for_nothing()
                            return

    def _advertised(self, address: tuple[Any, ...]) -> str:
        host = self._settings.advertise_host or address[0]
        return f"[{host}]:{address[1]}" if ":" in host else f"{host}:{address[1]}"

    def _announce(self, stack: AsyncExitStack, metrics_address: str) -> None:
        """Write the endpoint file, until the end, and a line of the log."""
        row, run_dir = self._row, self._settings.run_dir
        doors = {each.door: each.address for each in row.endpoints}
        content = {
            "broker": row.name,
            "address": row.address,
            "control_address": row.control_address,
            "rest_address": doors.get("rest", ""),
            "doors": doors,
            "metrics_address": metrics_address,
        }
        if run_dir is not None:
            write_endpoint(run_dir, content)
            stack.callback(remove_endpoint, run_dir)
        named = ", ".join(f"{name} at {address}" for name, address in doors.items()) or "none"
        _log.info("serving producers at %s, services at %s, doors: %s", row.address, row.control_address, named)

    async def _sweep(self, port: ProducerPort) -> None:
        while True:
            await asyncio.sleep(SWEEP_INTERVAL_S)
            port.sweep()


def _join(owned: OwnedShards, journals: OwnedJournals, inquiries: Inquiries) -> None:
    """Let the shards ask coordinators of transactions, and follow the broker version."""
    owned.on_staged, owned.verify = inquiries.note, inquiries.verify
    owned.scaling.end_transaction = inquiries.end
    owned.broker_version = lambda: journals.broker_version
