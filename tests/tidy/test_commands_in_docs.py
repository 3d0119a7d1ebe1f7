"""Every `pdctl …` and `rangelog …` that a page shows is a command, with the options it shows."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from pdctl.main import main as pdctl
from rangelog_cli.main import cli as rangelog

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = {"pdctl": pdctl, "rangelog": rangelog}
PAGES = ["README.md", "CONTRIBUTING.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))]
_START = re.compile(r"(?:^|[|;(] *|&& +|=\$\()(?:[A-Z_]+=\S+ +)*(pdctl|rangelog) +([^#|;)&]*)")
_PLACEHOLDER = re.compile(r"[A-Z][A-Z_]*|…|<.*>|\\…")


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


def problem_of(line: str) -> str | None:
    """What is wrong with a line that calls one of our commands, None where nothing is."""
    for program, words in _START.findall(line):
        known: Any = COMMANDS[program]
        rest = iter(words.split())
        for word in rest:
            subcommands = getattr(known, "commands", {})
            if word in subcommands:
                known = subcommands[word]
            elif word.startswith("-"):
                name = word.rstrip(",").split("=")[0]
                option = option_of(known, name)
                if option is None and name not in ("-h", "--help"):
                    return f"{line}: {known.name} has no {name}"
                takes_next = option is not None and not option.is_flag and "=" not in word
                if takes_next and next(rest, None) == "…":
                    break
            elif _PLACEHOLDER.fullmatch(word):
                break  # one of several, as the text says
            elif subcommands:
                return f"{line}: {known.name} has no command {word}"
        else:
            alone = getattr(known, "invoke_without_command", False) or re.search(r"-(?:h|-help|-version)\b", words)
            if getattr(known, "commands", {}) and not alone and words.strip():
                return f"{line}: names no command of {known.name}"
    return None


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
    ],
)
def test_wrong_commands_are_found(line: str, wrong: str | None) -> None:
    """An option, a command or a word too few is named; other programs are not looked at."""
    said = problem_of(line)
    assert said == (None if wrong is None else f"{line}: {wrong}")
