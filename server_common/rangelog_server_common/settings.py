"""Settings of a server from flags, environment and file: valid ones, or an error of one line that names the key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_settings import BaseSettings

from rangelog_core.errors import ConfigInvalid

_S = TypeVar("_S", bound=BaseSettings)


def load_settings(kind: type[_S], values: Mapping[str, Any]) -> _S:
    """Return settings of `kind`; the environment fills in what `values` leaves out. Raises ConfigInvalid."""
    try:
        return kind(**values)
    except ValidationError as error:
        found = sorted(
            error.errors(), key=lambda each: each["type"] != "extra_forbidden"
        )  # a typo also leaves a key missing
        raise _invalid(found[0], kind.model_config.get("env_prefix", "")) from None


def _invalid(first: Any, env_prefix: str) -> ConfigInvalid:
    key = ".".join(str(part) for part in first["loc"]) or "configuration"
    if first["type"] == "extra_forbidden":
        return ConfigInvalid(
            f"unknown key {key!r} in the configuration: correct or remove it (docs/configuration.md has all keys)"
        )
    if first["type"] == "missing":
        flag = "--" + key.replace("_", "-")
        return ConfigInvalid(f"{key} is missing: give {flag}, {env_prefix}{key.upper()} or the key in --config")
    said = first["msg"].removeprefix("Value error, ")
    return ConfigInvalid(f"{key}: {said}: correct it and start again")
