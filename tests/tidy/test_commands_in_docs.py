"""Every `pdctl …` and `rangelog …` that a page, or a text of the programs, shows is a command, with the options it shows."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click
import pytest

from pdctl.main import main as pdctl
from rangelog_cli.main import cli as rangelog

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = {"pdctl": pdctl, "rangelog": rangelog}
PAGES = ["README.md", "CONTRIBUTING.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))]
PROGRAMS = ("client", "core", "ctl", "examples", "page", "pd", "server_common", "cli")
"""The others name no command."""
OTHER_TEXTS = [
    *(ROOT / "page/rangelog_page/templates").rglob("*.html"),
    *(ROOT / "tools").glob("*.toml"),
    ROOT / "helm/rangelog/values.yaml",
]
_START = re.compile(r"(?:^|[|;(] *|&& +|=\$\()(?:[A-Z_]+=\S+ +)*(pdctl|rangelog) +([^#|;)&]*)")
_CODE = re.compile(r"(?:`|<code>)((?:pdctl|rangelog) [^`<]+)(?:`|</code>)")
_EXAMPLE = re.compile(r"^ {4,}\S.*$", re.MULTILINE)
_ONE_WORD = re.compile(r"'(?!pdctl|rangelog)[^']*'|\"(?!pdctl|rangelog)[^\"]*\"|\{\{.*?\}\}|\$\(date[^)]*\)")
_PLACEHOLDER = re.compile(r"\[?[A-Z][A-Z_]*\]?|…|<.*>|\\…")


def command_lines(text: str) -> list[str]:
    """The lines of console and indented blocks, and inline code, which may name a group: `pdctl table`."""
    blocks = re.findall(r"```console\n(.*?)```", text, re.DOTALL)
    outside = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    blocks += re.findall(r"^    (?! )\S.*(?:\\\n.*)*$", outside, re.MULTILINE)
    lines = "\n".join(blocks).replace("\\\n", " ").split("\n")
    inline = re.findall(r"`((?:pdctl|rangelog) [^`]+)`", outside)
    return [line.removeprefix("$ ").strip() for line in (*lines, *(" ".join([*each.split(), "…"]) for each in inline))]


def option_of(command: Any, word: str) -> Any:
    """The option of a command that a word is, None where it is none."""
    return next((each for each in command.params if word in (*each.opts, *each.secondary_opts)), None)


def arguments_of(command: Any) -> float:
    """How many arguments a command takes at most."""
    numbers = [each.nargs for each in command.params if each.param_type_name == "argument"]
    return math.inf if -1 in numbers else sum(numbers)


def commands_of(command: click.Command) -> dict[str, click.Command | None]:
    """The commands of a group, those that other distributions bring among them; nothing for a command that is no group."""
    if not isinstance(command, click.Group):
        return {}
    context = click.Context(command)
    return {name: command.get_command(context, name) for name in command.list_commands(context)}


def problem_of(line: str) -> str | None:
    """What is wrong with a line that calls one of our commands, None where nothing is."""
    for program, words in _START.findall(_ONE_WORD.sub("X", line)):
        known: Any = COMMANDS[program]
        rest, given = iter(re.split(r" (?:<|>+) ", words)[0].split()), 0
        for word in rest:
            subcommands = commands_of(known)
            if word in subcommands:
                known = subcommands[word]
            elif word.startswith("-") and word != "-":
                name = word.rstrip(",").split("=")[0]
                option = option_of(known, name)
                if option is None and name not in ("-h", "--help"):
                    return f"{line}: {known.name} has no {name}"
                takes_next = option is not None and not option.is_flag and "=" not in word
                if takes_next and next(rest, None) == "…":
                    break
            elif subcommands and _PLACEHOLDER.fullmatch(word):
                break  # one of several, as the text says
            elif subcommands:
                return f"{line}: {known.name} has no command {word}"
            elif word not in ("…", "\\"):
                given += 1
        else:
            alone = getattr(known, "invoke_without_command", False) or re.search(r"-(?:h|-help|-version)\b", words)
            if commands_of(known) and not alone and words.strip():
                return f"{line}: names no command of {known.name}"
            if given > arguments_of(known):
                return f"{line}: {known.name} takes no {given} arguments"
    return None


def texts_of(source: str) -> list[str]:
    """The texts in a module, docstrings among them; what is filled in is a placeholder."""
    found: list[str] = []
    parts: set[int] = set()  # of those that are filled in
    for each in ast.walk(ast.parse(source)):
        if isinstance(each, ast.JoinedStr):
            parts.update(map(id, ast.walk(each)))
            found.append("".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in each.values))
        elif isinstance(each, ast.Constant) and isinstance(each.value, str) and id(each) not in parts:
            found.append(each.value)
    return found


def commands_in_texts(texts: Iterable[str]) -> list[str]:
    """The commands in texts for people: in backquotes or marked as code, which may name a group; and lines of examples."""
    found: list[str] = []
    for text in texts:
        found += [" ".join([*line.split(), "…"]) for line in _CODE.findall(text)]
        found += [line.strip().split("   ")[0] for line in _EXAMPLE.findall(text.replace("\\\n", " "))]
    return found


@pytest.mark.parametrize("program", PROGRAMS)
def test_commands_in_the_texts_of_programs_exist(program: str) -> None:
    """What an error, a help text or a docstring tells people to run."""
    modules = [path for path in (ROOT / program).rglob("*.py") if "_pb2" not in path.name]
    found = {path: commands_in_texts(texts_of(path.read_text())) for path in modules}
    wrong = [
        f"{path.relative_to(ROOT)}: {said}"
        for path, lines in found.items()
        for line in lines
        if (said := problem_of(line))
    ]
    assert not wrong, wrong
    assert any(found.values()), "the search finds nothing"


def test_commands_in_other_texts_exist() -> None:
    """What the page, the advice on errors and the settings tell people to run."""
    found = {path: commands_in_texts([path.read_text()]) for path in OTHER_TEXTS}
    wrong = [f"{path.name}: {said}" for path, lines in found.items() for line in lines if (said := problem_of(line))]
    assert not wrong, wrong
    assert sum(map(len, found.values())) > 40, "the search finds nothing"


@pytest.mark.parametrize("page", PAGES)
def test_commands_that_are_named_exist(page: str) -> None:
    """Each names a command to the end, and no option that it lacks."""
    problems = [said for line in command_lines((ROOT / page).read_text()) if (said := problem_of(line))]
    assert not problems, problems


def test_pages_show_commands() -> None:
    """The search finds them: hundreds of lines, of which most groups have one."""
    lines = [line for page in PAGES for line in command_lines((ROOT / page).read_text())]
    named = {
        words.split()[0] for line in lines for program, words in _START.findall(line) if program == "pdctl" and words
    }
    assert len(lines) > 300
    assert set(pdctl.commands) <= named | {"completion"}, set(pdctl.commands) - named


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("pdctl stream create clicks --retention 7d", None),
        ("tail -f app.log | pdctl stream append clicks --take-over", None),
        ("docker compose run x; pdctl --pd a:1,b:2 cluster status", None),
        ("pdctl stream", "names no command of stream"),
        ("pdctl stream make clicks", "stream has no command make"),
        ("pdctl stream create clicks --retain 7d", "create has no --retain"),
        ("cat x && rangelog pd --confg a.toml", "pd has no --confg"),
        ("pdctl table …", None),
        ("pdctl stream read clicks --start -1h --end -0", None),
        ("pdctl stream read clicks -1h", "read has no -1h"),
        ("rangelog local --data-dir stop --port 0 stop", None),
        ("pdctl topic show … --lag", "show has no --lag"),
        ("pdctl topic show a b", "show takes no 2 arguments"),
        ("pdctl audit export -", None),
    ],
)
def test_wrong_commands_are_found(line: str, wrong: str | None) -> None:
    """An option, a command or a word too few is named; other programs are not looked at."""
    said = problem_of(line)
    assert said == (None if wrong is None else f"{line}: {wrong}")


def test_commands_in_the_texts_of_a_module_are_found() -> None:
    """In plain texts, in what is filled in, over several lines, and in examples of a docstring."""
    source = '''
"""See `pdctl topic show`.

    pdctl stream list -o json
"""
raise Wrong(f"{name} is there: `pdctl topic show {name} "
            f"--lag`", "`pdctl make`")
'''
    expected = ["pdctl topic show …", "pdctl stream list -o json", "pdctl topic show … --lag …", "pdctl make …"]
    assert sorted(commands_in_texts(texts_of(source))) == sorted(expected)
