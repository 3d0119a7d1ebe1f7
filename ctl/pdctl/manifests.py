"""`pdctl object manifest` and `pdctl object streams`: what other programs read of the tier."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pdctl.output import Shown, emit_data, emit_list, field, printable
from pdctl.session import Session, output_option, session_of
from pdctl.units import show_bytes, show_time
from rangelog_core.errors import (
    ConfigInvalid,
    Corruption,
    ObjectNotFound,
    PreconditionFailed,
    StreamNotFound,
    UnsupportedVersion,
)
from rangelog_core.topic_names import SEPARATOR, TopicName, parse_topic_name

if TYPE_CHECKING:
    from rangelog_core.manifest import StreamManifest
    from rangelog_core.net.pd_client import PdClient

_OBJECT_COLUMNS = [
    field("START", "start_offset"),
    field("END", "end_offset"),
    field("RECORDS", "record_count"),
    field("SIZE", "size_bytes", show_bytes),
    field("FROM", "timestamp_ms_min", show_time),
    field("TO", "timestamp_ms_max", show_time),
]
_STREAM_COLUMNS = [
    field("STREAM", "stream"),
    ("SHARD OF", lambda row: f"{row['topic']} {row['shard_id']}" if row["topic"] else "-"),
    field("FOLDER", "folder"),
    field("OBJECTS", "object_count"),
    field("RECORDS", "record_count"),
    field("SIZE", "size_bytes", show_bytes),
    field("WRITTEN", "written_ms", show_time),
    field("MANIFEST", "manifest"),
]


@click.command()
@click.argument("stream", metavar="STREAM|NAMESPACE/TOPIC")
@click.option("--urls", is_flag=True, help="With the path or URL of each object, by the cluster's tier_url.")
@click.option("--url-prefix", metavar="PREFIX", help="The same, with this before each key: where you see the tier.")
@output_option(more=["paths"])
@session_of
def manifest(session: Session, stream: str, urls: bool, url_prefix: str | None, output: str) -> None:
    """Name the live objects of a stream, or of all shards of a topic: committed, and not trimmed.

    Leave out rows whose offset is below trim_offset: the first object may still have some.

    \b
    Examples:
      pdctl object manifest flights -o json
      pdctl object manifest shop/orders --urls -o paths
      pdctl object manifest flights --url-prefix /mnt/logs -o paths
    """  # \b is click's
    topic = parse_topic_name(stream) if SEPARATOR in stream else None

    async def fetch(pd: PdClient) -> tuple[dict[str, Any], Callable[[str], str] | None]:
        locate = await _locate(pd, session.timeout_s) if urls and url_prefix is None else _below(url_prefix)
        if topic is not None:
            return await _topic_document(pd, topic, session.timeout_s), locate
        return await _stream_document(pd, stream, session.timeout_s), locate

    document, locate = session.with_pd(fetch)
    rows = _rows(document)
    if locate is not None:
        for row in rows:
            row["url"] = locate(row["key"])
    _emit(document, rows, output, "key" if locate is None else "url", f"{stream} has no objects yet")


@click.command()
@click.option("--tier-url", metavar="URL", help="The object store: file:///… or s3://… Else the cluster's own.")
@output_option
@session_of
def streams(session: Session, tier_url: str | None, output: str) -> None:
    """List which stream is in which folder of the object store, by the manifests there.

    With --tier-url this reads the store alone, and needs no cluster.

    \b
    Examples:
      pdctl object streams
      pdctl object streams --tier-url s3://my-bucket/logs?region=eu-central-1
    """
    url = tier_url if tier_url is not None else session.with_pd(lambda pd: _tier_url(pd, session.timeout_s))
    emit_list(_streams(url), output, _STREAM_COLUMNS, empty="there are no manifests: nothing is in the tier yet")


def _emit(document: dict[str, Any], rows: list[dict[str, Any]], output: str, place: str, empty: str) -> None:
    if output == "paths":
        for row in rows:
            click.echo(printable(row[place]))
    elif output == "table":
        columns: list[Shown] = [*_OBJECT_COLUMNS, field(place.upper(), place)]
        if "shards" in document:
            columns.insert(0, field("SHARD", "shard_id"))
            rows = [
                row | {"shard_id": each["shard"]["shard_id"]} for each in document["shards"] for row in each["objects"]
            ]
        emit_list(rows, output, columns, empty=empty)
    else:
        emit_data(document, output)


def _rows(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the objects of a document, which are changed in it."""
    return [row for each in document.get("shards", [document]) for row in each["objects"]]


async def _stream_document(pd: PdClient, name: str, timeout_s: float) -> dict[str, Any]:
    from rangelog_core.net.manifest_calls import fetch_manifest

    try:
        return (await fetch_manifest(pd, timeout_s, name=name)).document()
    except StreamNotFound as error:
        raise StreamNotFound(f"{error.message}: a topic is given as NAMESPACE/NAME, such as default/{name}") from error


async def _topic_document(pd: PdClient, topic: TopicName, timeout_s: float) -> dict[str, Any]:
    """Return the manifests of a topic's shards, by id; those of shards whose stream is gone are left out."""
    from pdctl.topics import calls
    from pdctl.topics.views import key_range_view
    from rangelog_core.manifest import VERSION_KEY, ManifestShard
    from rangelog_core.net.manifest_calls import fetch_manifest
    from rangelog_core.versions import MANIFEST_VERSIONS

    listed = await calls.list_shards(pd, calls.reference(topic), timeout_s, selection="ALL")

    async def one(shard_id: int) -> dict[str, Any] | None:
        row = listed.shards[shard_id]
        shard = ManifestShard(str(topic), listed.topic.topic_id, shard_id)
        try:
            found = await fetch_manifest(pd, timeout_s, stream_id=row.stream_id, shard=shard)
        except StreamNotFound:
            return None
        graph = {
            "state": "ended" if row.ended_version else "current",
            "key_range": key_range_view(row.key_range),
            "predecessors": list(row.predecessors),
            "successors": list(row.successors),
        }
        return graph | found.document()

    shards = [each for each in await calls.for_each(sorted(listed.shards), one) if each is not None]
    return {
        VERSION_KEY: max((each[VERSION_KEY] for each in shards), default=MANIFEST_VERSIONS.lowest),
        "topic": str(topic),
        "topic_id": listed.topic.topic_id,
        "map_version": listed.topic.map_version,
        "shards": shards,
    }


async def _tier_url(pd: PdClient, timeout_s: float) -> str:
    from rangelog_proto.v1 import pd_pb2

    url = (await pd.call(pd_pb2.DescribeClusterRequest(), pd_pb2.DescribeClusterResponse, timeout_s=timeout_s)).tier_url
    if not url:
        raise PreconditionFailed("this cluster has no tier: give the placement drivers a tier_url")
    return url


async def _locate(pd: PdClient, timeout_s: float) -> Callable[[str], str]:
    """Return the function from the key of an object to its place: the tier may have several stores."""
    from rangelog_tier.opening import object_location

    return partial(object_location, await _tier_url(pd, timeout_s))


def _below(prefix: str | None) -> Callable[[str], str] | None:
    return None if prefix is None else lambda key: f"{prefix.rstrip('/')}/{key}"


def _streams(url: str) -> list[dict[str, Any]]:
    from rangelog_core.manifest import parse_manifest
    from rangelog_core.object_keys import MANIFESTS
    from rangelog_core.tier_stores import parse_tier
    from rangelog_tier import open_object_store
    from rangelog_tier.opening import store_location

    place = store_location(parse_tier(url)[-1].url)
    if place.startswith("/") and not Path(place).is_dir():  # opening the store would make it
        raise ConfigInvalid(f"there is no directory {place}: give the tier URL of the placement drivers")
    store = open_object_store(url)
    found = []
    try:
        for info in store.list(MANIFESTS):
            try:
                each = parse_manifest(store.get(info.key), f"the manifest {info.key}")
            except ObjectNotFound:  # its stream was deleted meanwhile
                continue
            except (Corruption, UnsupportedVersion) as error:
                click.echo(f"pdctl: {printable(error.message)}", err=True)
                continue
            found.append(_stream_row(each, info.key))
    finally:
        store.close()
    return sorted(found, key=lambda row: (row["topic"] or row["stream"], row["shard_id"] or 0, row["stream_id"]))


def _stream_row(found: StreamManifest, key: str) -> dict[str, Any]:
    document = found.document()
    shard = dataclasses.asdict(found.shard) if found.shard is not None else {"topic": None, "shard_id": None}
    kept = ("stream", "stream_id", "folder", "revision", "trim_offset", "record_count", "size_bytes", "written_ms")
    return {
        **{name: document[name] for name in kept},
        "topic": shard["topic"],
        "shard_id": shard["shard_id"],
        "object_count": len(found.objects),
        "manifest": key,
    }
