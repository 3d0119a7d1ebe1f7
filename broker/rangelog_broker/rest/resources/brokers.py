"""The brokers of the cluster, and how much each of them owns."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import Field

from rangelog_broker.rest.values import CALL_TIMEOUT_S, AnswerBody, TheClient
from rangelog_proto.v1 import broker_pb2
from rangelog_server_common.http_answers import possible


class BrokerAnswer(AnswerBody):
    """A broker that has registered."""

    name: str = Field(examples=["broker1"])
    is_alive: bool = Field(description="Whether shards are assigned to it.", examples=[True])
    address: str = Field(description="Where producers connect.", examples=["127.0.0.1:7190"])
    control_address: str = Field(description="Its gRPC services.", examples=["127.0.0.1:7191"])
    zone: str = Field(examples=["zone1"])
    version: str = Field(examples=["0.1.0"])
    registered_ms: int = Field(description="Milliseconds since the Unix epoch.", examples=[1790000000000])
    shards: int = Field(description="Shards that are assigned to it.", examples=[12])
    journals: int = Field(description="Coordinator journals that are assigned to it.", examples=[8])
    doors: dict[str, str] = Field(description="Addresses of its doors, by name.", examples=[{"rest": "127.0.0.1:7192"}])


class BrokerList(AnswerBody):
    """All brokers that have registered, in order of names."""

    brokers: list[BrokerAnswer]


router = APIRouter(prefix="/v1/brokers", tags=["brokers"])


@router.get("", summary="List brokers", responses=possible())
async def list_brokers(client: TheClient) -> BrokerList:
    """Return all brokers, and how many shards and coordinator journals are assigned to each. A cluster has up to 1,000."""
    request = broker_pb2.ListBrokersRequest()
    listed = await client.metadata.pd.call(request, broker_pb2.ListBrokersResponse, timeout_s=CALL_TIMEOUT_S)
    owned = {each.broker: each for each in listed.owned}
    nothing = broker_pb2.OwnedCount()
    return BrokerList(
        brokers=[
            BrokerAnswer(
                name=each.name,
                is_alive=not each.lost,
                address=each.address,
                control_address=each.control_address,
                zone=each.zone,
                version=each.version,
                registered_ms=each.registered_ms,
                shards=owned.get(each.name, nothing).shards,
                journals=owned.get(each.name, nothing).journals,
                doors={one.door: one.address for one in each.endpoints},
            )
            for each in sorted(listed.brokers, key=lambda one: one.name)
        ]
    )
