"""The settings of a placement driver, and their defaults."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator
from pydantic_settings import SettingsConfigDict

from rangelog_core.repack_choice import (
    MIN_AGE_MS_DEFAULT,
    TARGET_BYTES_DEFAULT,
    TARGET_BYTES_MAX,
    TARGET_BYTES_MIN,
    TRIMMED_FRACTION_DEFAULT,
    RepackRules,
)
from rangelog_core.stream_defaults import REPLICAS_DEFAULT, REPLICAS_MAX
from rangelog_pd.consensus.rules.changes import GROUP_SIZES
from rangelog_pd.consensus.rules.timings import (
    ELECTION_MS_MAX,
    ELECTION_MS_MIN,
    ELECTION_MS_MOST,
    Timings,
)
from rangelog_pd.reconcile.directives import DELETE_GRACE_MS_DEFAULT
from rangelog_pd.reconcile.orphans import QUIET_MS_DEFAULT
from rangelog_pd.reconcile.repack_queue import CONCURRENCY_DEFAULT
from rangelog_pd.reconcile.retention_queue import INTERVAL_MS_MIN
from rangelog_pd.reconcile.scaling_view import MINUTE_MS, PLAN_TIMEOUT_MS
from rangelog_pd.reconcile.upkeep import REPLACE_AFTER_MS
from rangelog_pd.state.versions import FEATURE_LEVEL, FEATURE_LEVEL_MIN
from rangelog_server_common.address_settings import check_listen, check_listen_or_none, check_peer
from rangelog_server_common.data_directory import check_directory_name
from rangelog_server_common.logging import LogFormat
from rangelog_server_common.tls_settings import TlsSettings


class MemberSettings(BaseModel):
    """The addresses of one member: for its peers (Raft), and for all others (API)."""

    model_config = ConfigDict(extra="forbid")

    raft_address: str
    api_address: str

    @field_validator("raft_address", "api_address")
    @classmethod
    def _good_address(cls, value: str) -> str:
        return check_listen(value)  # a group of one may leave the choice of its port to the system


class PdSettings(TlsSettings):
    """Keys of the TOML file, `RANGELOG_PD_…` in the environment."""

    model_config = SettingsConfigDict(env_prefix="RANGELOG_PD_", env_nested_delimiter="__", extra="forbid")

    name: str
    data_dir: Path
    listen: str = ""
    raft_listen: str = ""
    log_format: LogFormat = "auto"
    """json, logfmt (key=value), or auto: text on a terminal, JSON elsewhere."""
    metrics_listen: str = ""
    """Where metrics and probes are served; empty: nowhere. Port 0: any free one, which the log and the endpoint file name."""
    page_listen: str = ""
    """Where the page for browsers is served; empty: nowhere. Port 0: any free one, which the log and the endpoint file name."""
    page_cert: str = ""
    """With TLS: the certificate by which the page makes its calls on the cluster, of role admin or client."""
    page_key: str = ""
    """The private key of page_cert."""
    page_hosts: list[str] = Field(default_factory=list, max_length=32)
    """Without TLS: the names under which browsers reach the page, besides localhost and IP addresses."""
    members: dict[str, MemberSettings] = Field(default_factory=dict)
    """Those that the group begins with. Once members were changed, the log says who they are."""
    join: str = ""
    """Instead of members: the API of a member of the group to which this one is to be added."""
    restore_snapshot: Path | None = None
    """A saved state that a new group of one begins with; only on an empty directory."""
    tier_url: str = ""
    encryption_keys_dir: str = ""
    """Directory of keys, ID.key, as on the range servers: snapshots in the tier are encrypted, and no object is taken that is
    in clear; empty: RANGELOG_ENCRYPTION_KEYS_DIR counts, where it is set."""
    encryption_kms_key_id: str = ""
    """In its place: a key of AWS KMS, by id, alias/name or ARN."""
    token: str | None = Field(default=None, repr=False)
    raft_secret: str = Field(default="", repr=False)
    stream_replicas: int = Field(default=REPLICAS_DEFAULT, ge=1, le=REPLICAS_MAX)
    """Replicas of a stream that is created without a number of them. Acks follow: 2, or 1 with one replica."""
    election_ms_min: int = Field(default=ELECTION_MS_MIN, ge=ELECTION_MS_MIN, le=ELECTION_MS_MOST)
    election_ms_max: int = Field(default=ELECTION_MS_MAX, ge=ELECTION_MS_MIN, le=ELECTION_MS_MOST)
    """A member that hears no leader stands for election after a time between both; the same on all members."""
    heartbeat_interval_ms: int = Field(default=500, ge=50, le=10_000)
    server_suspect_ms: int = Field(default=1_500, ge=100)
    server_dead_ms: int = Field(default=5_000, ge=200)
    repair_after_ms: int = Field(default=REPLACE_AFTER_MS, ge=200)
    orphan_quiet_ms: int = Field(default=QUIET_MS_DEFAULT, ge=200)
    tier_prepare_ttl_ms: int = Field(default=120_000, ge=1_000)
    tier_snapshot_interval_ms: int = Field(default=300_000, ge=0)
    tier_snapshot_soon_ms: int = Field(default=30_000, ge=100)
    tier_snapshot_count: int = Field(default=10, ge=2, le=1_000)
    delete_grace_ms: int = Field(default=DELETE_GRACE_MS_DEFAULT, ge=0)
    repack_target_bytes: int = Field(default=TARGET_BYTES_DEFAULT, ge=0, le=TARGET_BYTES_MAX)
    repack_min_age_ms: int = Field(default=MIN_AGE_MS_DEFAULT, ge=0)
    repack_trimmed_fraction: float = Field(default=TRIMMED_FRACTION_DEFAULT, gt=0.0, le=1.0)
    repack_concurrency: int = Field(default=CONCURRENCY_DEFAULT, ge=1, le=1_000)
    scaling_minute_ms: int = Field(default=MINUTE_MS, ge=100)
    scale_timeout_ms: int = Field(default=int(PLAN_TIMEOUT_MS), ge=1_000)
    retention_interval_ms: int = Field(default=INTERVAL_MS_MIN, ge=100)
    snapshot_entries: int = Field(default=5_000, ge=100)
    auto_finalize: bool = True
    """Whether this member, as leader, raises the cluster version once all members have a higher level; else `pdctl upgrade
    finalize` does. A new cluster begins at the level of its members either way."""
    feature_level_max: int = Field(default=FEATURE_LEVEL, ge=FEATURE_LEVEL_MIN, le=FEATURE_LEVEL)

    def listened(self) -> Iterator[tuple[str, str]]:
        """See TlsSettings."""
        own = self.members.get(self.name)
        yield "listen", self.listen or (own.api_address if own is not None else "")
        if self.join or len(self.members) > 1:
            yield "raft_listen", self.raft_listen or (own.raft_address if own is not None else "")
        yield "metrics_listen", self.metrics_listen
        yield "page_listen", self.page_listen

    @field_validator("data_dir")
    @classmethod
    def _good_directory(cls, value: Path) -> Path:
        return check_directory_name(value)

    @field_validator("listen", "raft_listen", "metrics_listen", "page_listen")
    @classmethod
    def _good_address_or_none(cls, value: str) -> str:
        return check_listen_or_none(value)

    @field_validator("join")
    @classmethod
    def _good_peer_or_none(cls, value: str) -> str:
        return check_peer(value) if value else value

    @model_validator(mode="after")
    def _consistent(self) -> PdSettings:
        if self.join:
            self._check_joining()
        elif not self.members:
            raise ValueError(
                "no members are given: pass --member NAME=RAFT_HOST:PORT@API_HOST:PORT for each, or --join for one more"
            )
        elif self.name not in self.members:
            raise ValueError(f"{self.name!r} is not among the members {', '.join(self.members)}")
        elif len(self.members) not in GROUP_SIZES:
            raise ValueError(
                f"{len(self.members)} members: a group begins with 1, 3 or 5 (pdctl pd add and remove change it)"
            )
        if self.restore_snapshot is not None and len(self.members) != 1:
            raise ValueError("--restore-snapshot begins a group of one: give this member alone, add the others then")
        if (self.join or len(self.members) > 1) and not self.raft_secret:
            raise ValueError("raft_secret is missing: the members of a group authenticate each other with it")
        if 0 < self.repack_target_bytes < TARGET_BYTES_MIN:
            raise ValueError(f"repack_target_bytes must be 0 (nothing is repacked) or at least {TARGET_BYTES_MIN:,}")
        if self.server_dead_ms <= self.server_suspect_ms:
            raise ValueError("server_dead_ms must be more than server_suspect_ms")
        if self.election_ms_max <= self.election_ms_min:
            raise ValueError(
                "election_ms_max must be more than election_ms_min: at equal times members split their votes"
            )
        if self.encryption_keys_dir and self.encryption_kms_key_id:
            raise ValueError("encryption_keys_dir and encryption_kms_key_id exclude each other: give one")
        self._check_page()
        return self

    def _check_page(self) -> None:
        if bool(self.page_cert) != bool(self.page_key):
            raise ValueError("page_cert and page_key go together: give both, or none")
        if self.page_cert and not self.tls_ca:
            raise ValueError("page_cert is for a cluster with TLS: give tls_ca, tls_cert and tls_key, too")
        if self.page_listen and self.tls_ca and not self.page_cert:
            raise ValueError(
                "page_listen with TLS needs page_cert and page_key, by which the page makes its calls on the cluster: "
                "`rangelog certs issue admin page`"
            )

    def _check_joining(self) -> None:
        if self.members:
            raise ValueError("--join and --member exclude each other: a group is begun, or joined")
        if not (self.listen and self.raft_listen):
            raise ValueError("--join needs --listen and --raft-listen: where this member is reached")

    @property
    def repack_rules(self) -> RepackRules:
        """When objects are repacked."""
        return RepackRules(self.repack_target_bytes, self.repack_min_age_ms, self.repack_trimmed_fraction)

    @property
    def timings(self) -> Timings:
        """The times of Raft in a group with others."""
        return Timings.of_elections(self.election_ms_min, self.election_ms_max)

    @property
    def api_address(self) -> str:
        """The address of this member's API."""
        return self.listen if self.join else self.members[self.name].api_address
