"""The settings of the door: a table [doors.http]."""

from __future__ import annotations

from pydantic import Field, field_validator

from rangelog.errors import InvalidArgument
from rangelog_broker.door import DoorSettings
from rangelog_core.topic_names import parse_topic_name
from rangelog_http.origins import is_origin
from rangelog_http.wire.json_pointers import parse_pointer

HEADERS_MAX = 32
ORIGINS_MAX = 100


class HttpSettings(DoorSettings):
    """See the module."""

    keep_headers: list[str] = Field(default_factory=list, max_length=HEADERS_MAX)
    """Headers of requests that become headers of their records, besides X-Rangelog-Header-NAME."""
    key_pointers: dict[str, str] = Field(default_factory=dict)
    """By topic, "namespace/name": the JSON pointer to the key in a value, where a request names none."""
    allow_origins: list[str] = Field(default_factory=list, max_length=ORIGINS_MAX)
    """Origins of the web pages that may use the door: "https://shop.example". None of them: no page may."""

    @field_validator("keep_headers")
    @classmethod
    def _lower(cls, value: list[str]) -> list[str]:
        return [each.lower() for each in value]

    @field_validator("allow_origins")
    @classmethod
    def _good_origins(cls, value: list[str]) -> list[str]:
        for each in value:
            if not is_origin(each):
                raise ValueError(
                    f"{each[:100]!r} is no origin: https://shop.example, without a path, and each by its name"
                )
        return value

    @field_validator("key_pointers")
    @classmethod
    def _good_pointers(cls, value: dict[str, str]) -> dict[str, str]:
        try:
            for pointer in value.values():
                parse_pointer(pointer)
            return {str(parse_topic_name(topic)): pointer for topic, pointer in value.items()}
        except InvalidArgument as error:
            raise ValueError(error.message) from None
