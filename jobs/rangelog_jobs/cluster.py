"""Which cluster a job works on, and its client. A plain value, so that Spark can send it to the workers."""

from __future__ import annotations

from dataclasses import dataclass

import rangelog.sync
from rangelog.context import read_context
from rangelog.ranges import TopicCalls, by_name
from rangelog.spark.options import Options, parse_options
from rangelog_core.errors import InvalidArgument, StreamNotFound
from rangelog_core.ids import shard_stream_name
from rangelog_core.net.tls import TlsConfig
from rangelog_core.net.token_sources import Token, TokenFile
from rangelog_core.topic_kinds import check_kind
from rangelog_core.topic_names import TopicName, parse_topic_name
from rangelog_proto.v1 import topic_pb2
from rangelog_tier.encryption_keys import KeyDirectory, KeyProvider
from rangelog_tier.kms_keys import KmsKeys

_OF_READS = ("tier_url", "encryption_keys_dir", "encryption_kms_key_id")
"""Options that a sink does not know: it does not read the tier."""


@dataclass(frozen=True, slots=True)
class ClusterAddress:
    """The address of a cluster, as all jobs take it.

    Attributes:
        pd: Addresses of the placement drivers: "host:port,host:port".
        token: The cluster's token, if it requires one.
        tier_url: The object store's URL, where Spark reaches it by another URL than the cluster.
        tls: The job's certificate, by paths that each executor can read, where the cluster has TLS.
        encryption_keys: The keys of encrypted objects: of a directory that each executor can read, or of AWS KMS.

    Example:
        ```python
        audit_streams(spark, ClusterAddress("127.0.0.1:7100"), prefix="flights")
        ```
    """

    pd: str
    token: Token | None = None
    tier_url: str | None = None
    tls: TlsConfig | None = None
    encryption_keys: KeyProvider | None = None

    def client(self) -> rangelog.sync.Client:
        """This process's client."""
        from rangelog.spark.reading import client_of

        return client_of(self.pd, self.token, self.tier_url, self.tls, self.encryption_keys)

    def to_options(self, **more: str) -> dict[str, str]:
        """Return the options of the data source `rangelog` that name this cluster, and more."""
        known = {"pd": self.pd, "tier_url": self.tier_url}
        if isinstance(self.token, TokenFile):
            known["token_file"] = self.token.path
        elif isinstance(self.token, str):
            known["token"] = self.token
        if self.tls is not None:
            known |= {"tls_ca": self.tls.ca, "tls_cert": self.tls.cert, "tls_key": self.tls.key}
        if isinstance(self.encryption_keys, KeyDirectory):
            known["encryption_keys_dir"] = self.encryption_keys.path
        elif isinstance(self.encryption_keys, KmsKeys):
            known["encryption_kms_key_id"] = self.encryption_keys.key_id
        elif self.encryption_keys is not None:
            raise InvalidArgument("Spark takes encryption keys as KeyDirectory or KmsKeys: its workers make their own")
        return {name: value for name, value in known.items() if value} | more

    def to_sink_options(self, **more: str) -> dict[str, str]:
        """As `to_options`, for a sink."""
        return {name: value for name, value in self.to_options(**more).items() if name not in _OF_READS}

    def read_options(self, stream: str, **more: str) -> Options:
        """Return the checked options of a read of one stream. Raises InvalidArgument."""
        return parse_options(self.to_options(stream=stream, **more))

    def stream_names(self, stream: str | None, prefix: str | None) -> list[str]:
        """Return the names that a job is asked for: one, those with a prefix, or all. Raises StreamNotFound, Unavailable."""
        client = self.client()
        if stream is not None:
            return [client.describe_stream(stream).name]
        found = [each.name for each in client.list_streams(prefix or "")]
        if not found and prefix:
            raise StreamNotFound(f"no stream has a name that starts with {prefix!r}: see `pdctl stream list`")
        return found

    def shard_streams(self, topic: str, *, of_records: bool = False) -> dict[str, str]:
        """Return the streams of a topic's shards, those that have ended as well: each one's name, and what to call it.

        `of_records`: a table is refused. Raises TopicNotFound, TopicKindForbids, Unavailable.
        """
        client = self.client()
        calls = TopicCalls(client.asynchronous.metadata.pd)
        named = by_name(parse_topic_name(topic))
        listed = client.run(calls.shards(named, topic_pb2.SHARD_SELECTION_ALL))
        if of_records:
            check_kind(listed.topic, topic_pb2.TOPIC_KIND_RECORDS)
        name = TopicName(listed.topic.namespace, listed.topic.name)
        return {
            shard_stream_name(listed.topic.topic_id, each.shard_id): f"{name} shard {each.shard_id}"
            for each in listed.shards
        }


def find_cluster(
    pd: str | None,
    token: Token | None,
    tier_url: str | None,
    tls: TlsConfig | None = None,
    encryption_keys: KeyProvider | None = None,
) -> ClusterAddress:
    """Return the cluster that a command names, or the one of `rangelog local`. Raises InvalidArgument."""
    if not pd:
        context = read_context()
        if context is None:
            raise InvalidArgument(
                "which cluster? Pass --pd host:port,…, set RANGELOG_PD, or start one with `rangelog local`"
            )
        pd, tls, token = ",".join(context.pd), tls or context.tls, token or context.token()
    return ClusterAddress(pd, token or None, tier_url or None, tls, encryption_keys)
