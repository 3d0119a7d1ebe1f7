"""The templates: whatever others have named or written, the page has no markup but its own; addresses stay in their part."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import rangelog_page
from rangelog_page.drawing import draw
from rangelog_page.failures import Failure
from rangelog_page.page_query import PageQuery
from rangelog_page.rendering import Rendering, link, with_query
from rangelog_page.sections import SECTIONS, VIEWS
from rangelog_page.texts import shown_bytes
from tests.unit.page.page_examples import EXAMPLES, hostile

EVIL = [
    "<script>alert(1)</script>",
    "\"><img src=x onerror='alert(1)'>",
    "' onmouseover='alert(1)",
    "</title></svg></details><script src=//evil.example/x.js></script>",
    "javascript:alert(1)",
    "{{ 7 * 7 }}{% raw %}",
    "\u202e<b>\u2066\u200b\x00\x1b[31m",
    "&lt;script&gt;&#x3c;",
]
OWN_TAGS = {
    "html", "head", "meta", "title", "link", "script", "body", "a", "header", "p", "span", "nav", "ul", "li",
    "main", "h1", "h2", "h3", "section", "div", "dl", "dt", "dd", "table", "thead", "tbody", "tr", "th", "td",
    "bdi", "code", "form", "label", "input", "button", "svg", "rect", "text", "details", "summary", "strong",
    "meter", "ol", "time", "pre",
}  # fmt: skip


class Reader(HTMLParser):
    """Collects what a browser would make of a page."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
def rendering() -> Rendering:
    return Rendering("pd1")


def whole(rendering: Rendering, section_name: str, found: dict[str, Any]) -> str:
    section = SECTIONS[section_name]
    view = next(name for name, each in VIEWS.items() if section_name in each.sections)
    return rendering.whole(view, str(found), [(section, f"/parts/{section_name}", rendering.section(section, found))])


@pytest.mark.parametrize("evil", EVIL)
@pytest.mark.parametrize("name", sorted(SECTIONS))
def test_no_markup_comes_from_a_name(rendering: Rendering, name: str, evil: str) -> None:
    """With every text of a section replaced: the tags and attributes are those of the templates, and no address leaves."""
    text = whole(rendering, name, hostile(EXAMPLES[name], evil))
    page = Reader(text)
    usual = Reader(whole(rendering, name, hostile(EXAMPLES[name], "plain")))
    assert [tag for tag, _ in page.tags] == [tag for tag, _ in usual.tags]
    assert {tag for tag, _ in page.tags} <= OWN_TAGS
    for tag, attributes in page.tags:
        assert not [each for each in attributes if each.startswith("on") or each in ("style", "srcdoc")], (
            tag,
            attributes,
        )
        for key in ("href", "src", "action", "data-part"):
            assert (attributes.get(key) or "/").startswith(("/", "#")) and not (attributes.get(key) or "").startswith(
                "//"
            )
    assert len([1 for tag, _ in page.tags if tag == "script"]) == 1
    assert "\u202e" not in text and "\x00" not in text and "\x1b" not in text


@pytest.mark.parametrize("name", sorted(SECTIONS))
def test_every_section_has_a_look_with_nothing(rendering: Rendering, name: str) -> None:
    """Nothing to show is said, with what to do; a section is never blank."""
    empty = rendering.section(SECTIONS[name], EXAMPLES[f"{name}, empty"])
    assert 'class="empty' in empty or "nothing is wrong" in empty or "no range lacks" in empty or "healthy" in empty


def test_no_scripts_or_styles_but_files() -> None:
    """The policy of contents holds: templates have no inline script, no style and no address elsewhere."""
    folder = Path(rangelog_page.__file__).parent
    for path in (folder / "templates").rglob("*.html"):
        text = path.read_text()
        assert not re.search(r"\sstyle=|\son[a-z]+=|<style|https?:|\|\s*safe|Markup|autoescape", text), path
        assert all("src=" in each for each in re.findall(r"<script[^>]*>", text)), path
    script = (folder / "static" / "page.js").read_text()
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|https?:", script
    )
    assert "url(" not in (folder / "static" / "page.css").read_text()


def test_addresses() -> None:
    """Names cannot leave their part of an address, nor parameters theirs."""
    assert link("stream", "../../x?y#z") == "/streams/..%2F..%2Fx%3Fy%23z"
    assert link("stream", "//evil.example") == "/streams/%2F%2Fevil.example"
    assert link("topic", "default/a b") == "/topics/default/a%20b"
    assert link("group", '"><x') == "/groups/%22%3E%3Cx"
    query = PageQuery(prefix="a&b=c", limit=10)
    assert with_query("/streams", query, after="n ü") == "/streams?prefix=a%26b%3Dc&limit=10&after=n+%C3%BC"
    assert with_query("/streams", query, prefix="", limit="") == "/streams"


def test_commands_in_texts(rendering: Rendering) -> None:
    """What stands between backticks is code; a lone one is a character; none of it is markup."""
    for text, expected in (
        ("see `pdctl top` or <b>", "see <code>pdctl top</code> or &lt;b&gt;"),
        ("a ` alone", "a ` alone"),
        ("`<script>`", "<code>&lt;script&gt;</code>"),
        ("`a`b`c", "`".join(["", "a", "b", "c"])),
        ("\u202e", "\\u202e"),
    ):
        assert f"<strong>{expected}</strong>" in rendering.failure(Failure(400, "X", text, ""))


def test_a_refusal_is_escaped(rendering: Rendering) -> None:
    """A message may quote what was asked for."""
    text = rendering.refusal(Failure(400, "X", "<script>alert(1)</script>", "a & b")).decode()
    assert "<script>alert" not in text and "&lt;script&gt;" in text


def test_values_of_records_are_shown_as_they_are(rendering: Rendering) -> None:
    """Line ends and markup of a value are text."""
    value = '<b>bold</b>\n{"a": "</pre>"}'
    row = EXAMPLES["tail"]["records"][0] | {"value": shown_bytes(value.encode())[0]}
    page = Reader(rendering.section(SECTIONS["tail"], EXAMPLES["tail"] | {"records": [row]}))
    assert value in page.text and "b" not in {tag for tag, _ in page.tags}


def test_a_drawing_is_drawn_with_numbers(rendering: Rendering) -> None:
    """Places are numbers of the drawing, the words those of the box."""
    found = EXAMPLES["stream"]
    drawing = draw(found["ranges"], found["objects"], trim_offset=10, end_offset=500)
    page = Reader(rendering.section(SECTIONS["stream"], found | {"drawing": drawing}))
    boxes = [
        attributes for tag, attributes in page.tags if tag == "rect" and "box" in (attributes["class"] or "").split()
    ]
    assert len(boxes) == sum(len(lane.boxes) for lane in drawing.lanes)
    assert all(re.fullmatch(r"\d+\.\d{4}%", str(each["x"])) and each["aria-label"] for each in boxes)
    lanes = [attributes for tag, attributes in page.tags if tag == "svg" and attributes.get("role") == "group"]
    assert len(lanes) == len(drawing.lanes)
    assert sum(each["tabindex"] == "0" for each in boxes) == sum(bool(lane.boxes) for lane in drawing.lanes)
