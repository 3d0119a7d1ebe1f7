"""Colors of the page: text can be read on its ground, in light and in dark."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import rangelog_page

CONTRAST_MIN = 4.5
"""Of text to its ground, as WCAG has it."""


def palettes() -> dict[str, dict[str, str]]:
    text = (Path(rangelog_page.__file__).parent / "static" / "page.css").read_text()
    light, dark = re.findall(r":root \{(.*?)\}", text, re.DOTALL)
    read = {
        name: dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", part)) for name, part in (("light", light), ("dark", dark))
    }
    assert len(read["light"]) == len(read["dark"]) >= 15
    return read


def luminance(color: str) -> float:
    parts = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read(scheme: str) -> None:
    """On cards and on the ground, in every color that text has."""
    palette = palettes()[scheme]
    for ink in ("ink", "dim", "accent", "good", "warn", "bad", "idle"):
        for ground in ("card", "ground"):
            assert contrast(palette[ink], palette[ground]) >= CONTRAST_MIN, (ink, ground)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_boxes_can_be_seen(scheme: str) -> None:
    """Each kind of box stands out from the ground of its lane."""
    palette = palettes()[scheme]
    for kind in ("open", "sealed", "replica", "object", "lost"):
        assert contrast(palette[kind], palette["ground"]) >= 3, kind
