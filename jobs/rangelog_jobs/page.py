"""One HTML page that needs nothing beside itself: headings, tables, bars. And files that are written whole or not at all."""

from __future__ import annotations

import html
import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from rangelog_core.errors import InvalidArgument

_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 78rem; padding: 0 1rem }
body { color: #1c2330; background: #fff }
h1 { font-size: 1.5rem } h2 { font-size: 1.15rem; margin-top: 2rem }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums }
th, td { text-align: left; padding: .3rem .7rem; border-bottom: 1px solid #dde2ea; vertical-align: top }
th { color: #5a6577; font-weight: 600 } td.number, th.number { text-align: right }
.good { color: #0b7a4b } .bad { color: #b3261e; font-weight: 600 } .quiet { color: #5a6577 }
code { font-size: .85em; overflow-wrap: anywhere }
.bar { display: inline-block; height: .7em; background: #4c7dd0; min-width: 1px }
@media (prefers-color-scheme: dark) {
  body { background: #14181f; color: #dde3ec } th, .quiet { color: #98a4b6 } th, td { border-color: #2b3340 }
  .good { color: #5fd39d } .bad { color: #ff8a80 } .bar { background: #7ba4ee }
}
"""


class Markup(str):
    """Text that is HTML already. Other text is escaped."""

    __slots__ = ()


def text_of(value: object) -> Markup:
    """Return a value as HTML."""
    return value if isinstance(value, Markup) else Markup(html.escape(str(value)))


def tag(name: str, value: object, css: str = "") -> Markup:
    """Return an element around a value."""
    attribute = f' class="{css}"' if css else ""
    return Markup(f"<{name}{attribute}>{text_of(value)}</{name}>")


def bar(share: float) -> Markup:
    """Return a bar of a share of its column's width, from 0 to 1."""
    return Markup(f'<span class="bar" style="width:{max(0.0, min(1.0, share)) * 12:.2f}rem"></span>')


def table(headings: Sequence[str], rows: Sequence[Sequence[object]], *, empty: str) -> Markup:
    """Return a table; columns of numbers are those whose headings begin with '#', which is not shown."""
    if not rows:
        return tag("p", empty, "quiet")
    css = ["number" if each.startswith("#") else "" for each in headings]
    head = "".join(tag("th", name.removeprefix("#"), each) for name, each in zip(headings, css, strict=True))
    body = "".join(
        "<tr>" + "".join(tag("td", value, each) for value, each in zip(row, css, strict=True)) + "</tr>\n"
        for row in rows
    )
    return Markup(f"<table><thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table>")


def page(title: str, parts: Sequence[object]) -> str:
    """Return a whole page."""
    body = "\n".join(text_of(each) for each in parts)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width"><title>{html.escape(title)}</title>'
        f"<style>{_STYLE}</style></head>\n<body>\n<h1>{html.escape(title)}</h1>\n{body}\n</body></html>\n"
    )


def check_writable(path: str | None) -> Path | None:
    """Return the path of a file that can be written, before the work for it begins. Raises InvalidArgument."""
    if path is None:
        return None
    file = Path(path)
    folder = file.absolute().parent
    if file.is_dir():
        raise InvalidArgument(f"{path} is a folder: name a file")
    if not folder.is_dir():
        raise InvalidArgument(f"{path} cannot be written: there is no folder {folder}: make it first")
    try:
        _beside(file).touch()
        _beside(file).unlink()
    except OSError as error:
        raise InvalidArgument(f"{path} cannot be written ({error.strerror}): check its folder") from None
    return file


def write_whole(file: Path, text: str) -> None:
    """Write a file; another program sees its old content or the new one. Raises OSError."""
    temporary = _beside(file)
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(file)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _beside(file: Path) -> Path:
    return file.with_name(f".{file.name}.{os.getpid()}")


def show_time(wall_ms: int | None) -> str:
    """An ISO time in UTC; a dash for none."""
    if wall_ms is None:
        return "-"
    try:
        return datetime.fromtimestamp(wall_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        return f"{wall_ms} ms"


def show_size(size_bytes: float | None) -> str:
    """12.3 MiB; a dash for None."""
    if size_bytes is None:
        return "-"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size_bytes) < 1024:
            return f"{size_bytes:.0f} B" if unit == "B" else f"{size_bytes:.1f} {unit}"
        size_bytes /= 1024
    return f"{size_bytes:.1f} TiB"
