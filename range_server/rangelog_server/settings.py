"""The settings of a range server, and their defaults."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, field_validator, model_validator
from pydantic_settings import NoDecode, SettingsConfigDict

from rangelog_core.errors import InvalidArgument
from rangelog_core.ids import check_name
from rangelog_core.labels import check_labels
from rangelog_core.limits import ADDRESS_LENGTH_MAX, MIB
from rangelog_server_common.address_settings import check_listen, check_listen_or_none, check_peer, split_listen
from rangelog_server_common.data_directory import check_directory_name
from rangelog_server_common.logging import LogFormat
from rangelog_server_common.tls_settings import TlsSettings

SEGMENT_SIZE_BYTES_MIN = 16 * MIB
SEGMENT_SIZE_BYTES_MAX = 1024 * MIB


class RangeServerSettings(TlsSettings):
    """Keys of the TOML file, `RANGELOG_SERVER_…` in the environment."""

    model_config = SettingsConfigDict(env_prefix="RANGELOG_SERVER_", extra="forbid")

    name: str
    data_dir: Path
    data_listen: str = "127.0.0.1:7180"
    control_listen: str = "127.0.0.1:7181"
    log_format: LogFormat = "auto"
    """json, logfmt (key=value), or auto: text on a terminal, JSON elsewhere."""
    metrics_listen: str = ""
    """Where metrics and probes are served; empty: nowhere. Port 0: any free one, which the log and the endpoint file name."""
    advertise_host: str = ""
    pd: Annotated[list[str], NoDecode] = Field(default_factory=list)
    zone: str = ""
    rack: str = Field(default="", max_length=ADDRESS_LENGTH_MAX)
    host: str = Field(default="", max_length=ADDRESS_LENGTH_MAX)
    labels: Annotated[list[str], NoDecode] = Field(default_factory=list)
    """key=value: what streams may ask of the servers of their replicas."""
    token: str | None = Field(default=None, repr=False)
    tier_url: str = ""
    encryption_keys_dir: str = ""
    """Directory of keys, ID.key, whose current one encrypts the objects that are uploaded; empty: they are in clear."""
    encryption_kms_key_id: str = ""
    """In its place: a key of AWS KMS, by id, alias/name or ARN."""
    encrypt_log: bool = False
    """Encrypt new segments of the log; the others stay readable, and are rewritten in time."""
    log_keys_dir: str = ""
    """Directory of the keys of the log, to read and to encrypt; empty: those of the objects."""
    capacity_bytes: int = Field(default=0, ge=0)
    segment_size_bytes: int = Field(default=64 * MIB, ge=SEGMENT_SIZE_BYTES_MIN, le=SEGMENT_SIZE_BYTES_MAX)
    cache_bytes: int = Field(default=32 * MIB, ge=0)
    direct_io: bool = True
    """Write and read the log past the page cache. Off: through it, for a slow disk with many readers far behind the tail."""
    scrub_bytes_per_s: int = Field(default=8 * MIB, ge=0)
    """The rate at which sealed replicas are read again and checked; 0: not at all."""
    compaction_bytes_per_s: int = Field(default=8 * MIB, ge=0)
    """The rate at which batches are moved so that segments of the log become free; 0: not at all."""
    repair_bytes_per_s: int = Field(default=64 * MIB, ge=0)
    """The rate at which this server copies replicas from its peers, so that appends and reads go on; 0: no bound."""
    scrub_interval_s: float = Field(default=3600.0, gt=0)
    """The least time from the start of one pass over all sealed replicas to the next."""

    def listened(self) -> Iterator[tuple[str, str]]:
        """See TlsSettings."""
        yield "data_listen", self.data_listen
        yield "control_listen", self.control_listen
        yield "metrics_listen", self.metrics_listen

    @field_validator("name")
    @classmethod
    def _good_name(cls, value: str) -> str:
        try:
            return check_name("range server", value)
        except InvalidArgument as error:
            raise ValueError(error.message) from error

    @field_validator("data_dir")
    @classmethod
    def _good_directory(cls, value: Path) -> Path:
        return check_directory_name(value)

    @field_validator("labels")
    @classmethod
    def _good_labels(cls, value: list[str]) -> list[str]:
        try:
            check_labels(value)
        except InvalidArgument as error:
            raise ValueError(error.message) from error
        return value

    @field_validator("pd", "labels", mode="before")
    @classmethod
    def _split(cls, value: Any) -> Any:
        return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value

    @model_validator(mode="after")
    def _one_place_of_keys(self) -> RangeServerSettings:
        if self.encryption_keys_dir and self.encryption_kms_key_id:
            raise ValueError("encryption_keys_dir and encryption_kms_key_id exclude each other: give one")
        return self

    @field_validator("data_listen", "control_listen")
    @classmethod
    def _good_address(cls, value: str) -> str:
        return check_listen(value)

    @field_validator("metrics_listen")
    @classmethod
    def _good_address_or_none(cls, value: str) -> str:
        return check_listen_or_none(value)

    @field_validator("pd")
    @classmethod
    def _good_peers(cls, value: list[str]) -> list[str]:
        return [check_peer(address) for address in value]

    @model_validator(mode="after")
    def _can_be_reached(self) -> RangeServerSettings:
        hosts = (split_listen(self.data_listen)[0], split_listen(self.control_listen)[0])
        if not self.advertise_host and any(host in ("0.0.0.0", "::") for host in hosts):  # noqa: S104
            raise ValueError("advertise_host is needed when the server listens on all addresses")
        return self
