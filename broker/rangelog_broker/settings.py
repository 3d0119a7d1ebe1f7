"""The settings of a broker, and their defaults."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, field_validator, model_validator
from pydantic_settings import NoDecode, SettingsConfigDict

from rangelog.errors import InvalidArgument
from rangelog.protocol.lag_limits import LAG_MS_LEAST, LAG_MS_MOST, REPLICA_LAG_MS_MAX, REPLICA_LAG_MS_MIN, LagLimits
from rangelog_core.ids import check_name
from rangelog_core.limits import MIB, NAME_LENGTH_MAX
from rangelog_server_common.address_settings import check_listen, check_listen_or_none, check_peer, split_listen
from rangelog_server_common.logging import LogFormat
from rangelog_server_common.tls_settings import TlsSettings

_GIB = 1_024 * MIB


class BrokerSettings(TlsSettings):
    """Keys of the TOML file, `RANGELOG_BROKER_…` in the environment."""

    model_config = SettingsConfigDict(env_prefix="RANGELOG_BROKER_", env_nested_delimiter="__", extra="forbid")

    name: str
    pd: Annotated[list[str], NoDecode]
    listen: str = "127.0.0.1:7190"
    """Where producers connect."""
    control_listen: str = "127.0.0.1:7191"
    """The gRPC services: groups, transactions, tables."""
    rest_listen: str = "127.0.0.1:7192"
    """The REST interface for administration; empty: none."""
    doors: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Further front ends by name, each with its own keys, `listen` among them: a table [doors.NAME]."""
    log_format: LogFormat = "auto"
    """json, logfmt (key=value), or auto: text on a terminal, JSON elsewhere."""
    metrics_listen: str = ""
    """Where metrics and probes are served; empty: nowhere. Port 0: any free one, which the log and the endpoint file name."""
    advertise_host: str = ""
    zone: str = ""
    host: str = Field(default="", max_length=NAME_LENGTH_MAX)
    token: str | None = Field(default=None, repr=False)
    tier_url: str = ""
    encryption_keys_dir: str = ""
    """Directory of keys, ID.key, with which objects of the tier are read; empty: RANGELOG_ENCRYPTION_KEYS_DIR counts."""
    encryption_kms_key_id: str = ""
    """In its place: a key of AWS KMS, by id, alias/name or ARN."""
    replica_lag_ms_min: float = Field(default=REPLICA_LAG_MS_MIN, ge=LAG_MS_LEAST, le=LAG_MS_MOST)
    """Of the broker's own writers, as of `rangelog.connect`."""
    replica_lag_ms_max: float = Field(default=REPLICA_LAG_MS_MAX, ge=LAG_MS_LEAST, le=LAG_MS_MOST)
    fetch_bytes_max: int = Field(default=192 * MIB, ge=16 * MIB, le=64 * _GIB)
    """The memory of all fetches through doors: the last batches of shards, answers that are not sent, what is read ahead."""
    run_dir: Path | None = None
    """Where the broker writes its addresses once it serves. It keeps no data."""
    watermark_interval_s: float = Field(default=10.0, ge=0.05, le=3_600)
    """How often a topic's watermark is computed while its producers note times."""
    watermark_expiry_s: float = Field(default=60.0, ge=0.1, le=86_400)
    """A producer that notes no time for so long holds the watermark back no more."""

    def listened(self) -> Iterator[tuple[str, str]]:
        """See TlsSettings."""
        yield "listen", self.listen
        yield "control_listen", self.control_listen
        yield "rest_listen", self.rest_listen
        yield "metrics_listen", self.metrics_listen
        yield from ((f"doors.{name}.listen", str(keys.get("listen", ""))) for name, keys in self.doors.items())

    def all_doors(self) -> dict[str, dict[str, Any]]:
        """Return the keys of the doors to open, by name; REST has a key of its own."""
        return ({"rest": {"listen": self.rest_listen}} if self.rest_listen else {}) | self.doors

    @field_validator("doors")
    @classmethod
    def _good_doors(cls, value: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        if "rest" in value:
            raise ValueError("REST has a key of its own: give rest_listen")
        for name, keys in value.items():
            if not keys.get("listen"):
                raise ValueError(f"the door {name[:100]!r} has no address: give doors.{name[:100]}.listen")
        return value

    @model_validator(mode="after")
    def _one_place_of_keys(self) -> BrokerSettings:
        if self.encryption_keys_dir and self.encryption_kms_key_id:
            raise ValueError("encryption_keys_dir and encryption_kms_key_id exclude each other: give one")
        return self

    @model_validator(mode="after")
    def _lag_limits_in_order(self) -> BrokerSettings:
        if self.replica_lag_ms_min > self.replica_lag_ms_max:
            raise ValueError("replica_lag_ms_min must not be more than replica_lag_ms_max")
        return self

    @property
    def lag_limits(self) -> LagLimits:
        """Of the broker's own writers."""
        return LagLimits(self.replica_lag_ms_min, self.replica_lag_ms_max)

    @field_validator("name")
    @classmethod
    def _good_name(cls, value: str) -> str:
        try:
            return check_name("broker", value)
        except InvalidArgument as error:
            raise ValueError(error.message) from error

    @field_validator("pd", mode="before")
    @classmethod
    def _split(cls, value: Any) -> Any:
        return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value

    @field_validator("pd")
    @classmethod
    def _some(cls, value: list[str]) -> list[str]:
        if not value:
            raise ValueError("name at least one placement driver: host:port")
        return [check_peer(address) for address in value]

    @field_validator("tier_url")
    @classmethod
    def _known_store(cls, value: str) -> str:
        if value and not value.startswith(("s3://", "file://")):
            raise ValueError("an object store's URL begins with s3:// or file://")
        return value

    @field_validator("listen", "control_listen")
    @classmethod
    def _good_address(cls, value: str) -> str:
        return check_listen(value)

    @field_validator("rest_listen", "metrics_listen")
    @classmethod
    def _good_address_or_none(cls, value: str) -> str:
        return check_listen_or_none(value)

    @model_validator(mode="after")
    def _can_be_reached(self) -> BrokerSettings:
        hosts = (split_listen(self.listen)[0], split_listen(self.control_listen)[0])
        if not self.advertise_host and any(host in ("0.0.0.0", "::") for host in hosts):  # noqa: S104
            raise ValueError("advertise_host is needed when the broker listens on all addresses")
        return self
