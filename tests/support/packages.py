"""The folders of the product's packages, as pyproject.toml names them for mypy."""

from __future__ import annotations

import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_FILES: list[str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]["mypy_path"]
PRODUCT = tuple(_FILES)
