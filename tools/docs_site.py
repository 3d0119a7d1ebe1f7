"""The hooks of the documentation site (mkdocs.yml): README.md is one of its pages, and links out of docs/ become plain text."""

from __future__ import annotations

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
_LINK = re.compile(r"\[([^]\n]+)\]\(([^)\s]+)\)")


def overview(readme: str) -> str:
    """Return the README as a page of docs/: its links are relative to that folder."""

    def moved(link: re.Match[str]) -> str:
        label, target = link.groups()
        if ":" in target or target.startswith("#"):
            return link[0]
        return f"[{label}]({target.removeprefix('docs/') if target.startswith('docs/') else f'../{target}'})"

    return _LINK.sub(moved, readme)


def without_outer_links(text: str, page: str) -> str:
    """Return a page's text in which a link to a file of the project outside docs/ is that file's name.

    Args:
        text: Markdown.
        page: The page's path, relative to docs/.
    """

    def plain(link: re.Match[str]) -> str:
        label, target = link.groups()
        if ":" in target or target.startswith("#"):
            return link[0]
        aim = (ROOT / "docs" / page).parent.joinpath(target.split("#")[0]).resolve()
        if aim.is_relative_to(ROOT / "docs") or not aim.exists():
            return link[0]  # one that is broken stays, so that the build reports it
        return label if label.startswith("`") else f"`{label}`"

    return _LINK.sub(plain, text)


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add README.md as the page overview.md."""
    files.append(File.generated(config, "overview.md", content=overview((ROOT / "README.md").read_text())))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn links out of docs/ into plain text."""
    return without_outer_links(markdown, page.file.src_uri)
