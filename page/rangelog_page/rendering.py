"""From what is known to HTML: the templates, and the files that they refer to.

What holds: every text that a template puts out is escaped, and its characters that cannot be seen are written as numbers,
whether a template asks for it or not; static files are those that were there at the start, by their exact names: no path is
ever opened for a request.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from pdctl.units import show_age, show_bytes, show_ms, show_time
from rangelog_core.errors import Overloaded
from rangelog_page.failures import Failure
from rangelog_page.page_query import PageQuery
from rangelog_page.sections import VIEWS, Section
from rangelog_page.texts import shown

ANSWER_BYTES_MAX = 4 * 1024 * 1024
_TEXT_LENGTH_MAX = 4_000
_HERE = Path(__file__).parent
_TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
_PATHS = {"stream": "/streams/", "topic": "/topics/", "group": "/groups/"}
_TABS = (("cluster", "/"), ("streams", "/streams"), ("topics", "/topics"), ("groups", "/groups"), ("tasks", "/tasks"),
         ("health", "/health"))  # fmt: skip


@dataclass(frozen=True, slots=True)
class StaticFile:
    """A file as it is served."""

    body: bytes
    content_type: str
    version: str


class Rendering:
    """The templates and static files, read once."""

    def __init__(self, cluster_name: str) -> None:
        """`cluster_name`: what the head of the page calls this placement driver."""
        self.files = _read_files(_HERE / "static")
        self._environment = Environment(
            loader=FileSystemLoader(_HERE / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            auto_reload=False,
            trim_blocks=True,
            lstrip_blocks=True,
            finalize=_visible,
        )
        self._environment.filters |= {
            "age": show_age,
            "bytes": show_bytes,
            "commands": _commands,
            "count": _count,
            "ms": lambda value: show_ms(value, "0s"),
            "time": show_time,
        }
        self._environment.globals |= {
            "tabs": _TABS,
            "link": link,
            "with_query": with_query,
            "static": {name: f"/static/{name}?v={each.version}" for name, each in self.files.items()},
            "placement_driver": cluster_name,
        }

    def section(self, section: Section, found: Mapping[str, Any]) -> str:
        """Return the inside of a section. Raises Overloaded where it is too large."""
        return self._bounded(self._environment.get_template(f"sections/{section.name}.html").render(found))

    def failure(self, failure: Failure) -> str:
        """Return the inside of a section that could not be looked at."""
        return self._environment.get_template("failure.html").render(failure=failure)

    def whole(self, view_name: str, title: str, parts: list[tuple[Section, str, str]]) -> str:
        """Return a page. `parts`: each section, the address where it is looked at again, its inside."""
        view = VIEWS[view_name]
        made = [(section, address, Markup(inside)) for section, address, inside in parts]  # noqa: S704 - made by templates
        return self._bounded(
            self._environment.get_template("view.html").render(view=view, title=title, parts=made, tab=view.tab)
        )

    def refusal(self, failure: Failure) -> bytes:
        """Return the page of a request that is refused."""
        return (
            self._environment.get_template("refusal.html").render(failure=failure, title="Not shown", tab="").encode()
        )

    def _bounded(self, text: str) -> str:
        if len(text) > ANSWER_BYTES_MAX:
            raise Overloaded("there is too much to be shown at once: look at less of it, by a prefix or a lower limit")
        return text


def link(kind: str, name: str) -> str:
    """Return the address of a stream, topic or group.

    >>> link("topic", "default/a b"), link("stream", "../x?y")
    ('/topics/default/a%20b', '/streams/..%2Fx%3Fy')
    """
    return _PATHS[kind] + quote(name, safe="/" if kind == "topic" else "")


def with_query(path: str, query: PageQuery | None = None, **changed: Any) -> str:
    """Return an address with the parameters of a query that differ from the defaults, some of them changed."""
    given = query.model_dump(exclude_defaults=True) if query is not None else {}
    wanted = {key: value for key, value in (given | changed).items() if value not in (None, "")}
    return f"{path}?{urlencode(wanted)}" if wanted else path


def _visible(value: Any) -> Any:
    """Return what a template puts out: called by it for each expression."""
    if isinstance(value, (Markup, int, float)):
        return value
    if isinstance(value, str):
        return shown(value, _TEXT_LENGTH_MAX)
    raise TypeError(
        f"a template puts out a {type(value).__name__}"
    )  # such as a method of a dictionary, for a missing key


def _commands(text: str) -> Markup:
    """Return a text with what stands between backticks as code, all of it escaped.

    >>> _commands("see `pdctl top`, <b>")
    Markup('see <code>pdctl top</code>, &lt;b&gt;')
    """
    parts = [escape(shown(each, _TEXT_LENGTH_MAX)) for each in text.split("`")]
    whole = len(parts) % 2 == 1
    marked = [Markup("<code>{}</code>").format(each) if whole and at % 2 else each for at, each in enumerate(parts)]
    return (Markup() if whole else escape("`")).join(marked)


def _count(value: int | float | None) -> str:
    return "–" if value is None else f"{value:,.0f}"


def _read_files(folder: Path) -> dict[str, StaticFile]:
    found = {}
    for path in sorted(folder.iterdir()):
        if path.suffix in _TYPES:
            body = path.read_bytes()
            found[path.name] = StaticFile(body, _TYPES[path.suffix], hashlib.blake2b(body, digest_size=8).hexdigest())
    return found
