"""The house rules that no linter checks: sizes, docstrings, words, and what must not be in the project."""

from __future__ import annotations

import ast
import functools
import gc
import re
import subprocess
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest

from tests.support.packages import PRODUCT

pytestmark = pytest.mark.timeout(300)  # whichever test is the first parses all files

ROOT = Path(__file__).resolve().parents[2]
SOURCE_ROOTS = (*PRODUCT, "tools")
FILE_LINES_MAX = 500
FUNCTION_LINES_MAX = 60

FORBIDDEN_WORDS = (
    "blob",
    "bookie",
    "lac",
    "ledger",
    "leo",
    "rotate",
)
"""Other systems' names for what docs/GLOSSARY.md names; ours is there."""

NEXT_LAYER = "broker/"
"""Partitioned streams, groups and protocol front ends: there the words of those protocols have a meaning of their own."""

TOPIC_METADATA = (
    "core/rangelog_core/",
    "client/rangelog/_sync_",
    *(
        f"client/rangelog/{name}.py"
        for name in (
            "__init__",
            "_client",
            "_client_topics",
            "errors",
            "sync",
        )
    ),
    *(
        f"client/rangelog/{name}/"
        for name in (
            "_consume",
            "_produce",
            "_sink",
            "_table",
            "_topics",
            "_transact",
            "spark",
            "testing",
        )
    ),
    *("pd/", "ctl/", "jobs/", "page/", "cli/", "workbench/", "tools/config_reference.py", "tools/page_screenshots.py"),
    "tools/write_openapi.py",
    *(
        "client/rangelog/ranges.py",
        "tier/rangelog_tier/restore/",
        "server_common/rangelog_server_common/http_answers.py",
    ),
    NEXT_LAYER,
)
"""The placement driver keeps topics and their shards; errors and calls on them are in the core; producers and tables know their
map, and so do readers of topics, which are above the readers of streams; Spark reads either."""

WORDS_WITH_A_PLACE: dict[str, str | tuple[str, ...]] = {
    "broker": TOPIC_METADATA,
    "controller": NEXT_LAYER,
    "coordinator": NEXT_LAYER,
    "generation": ("client/rangelog/_consume/", "ctl/pdctl/groups/", "cli/rangelog_cli/files/", "files/", NEXT_LAYER),
    "lsn": "range_server/",  # of the write-ahead log
    "master": ("client/rangelog/spark/", "jobs/"),  # Spark's own name for where it runs
    "node": "pd/rangelog_pd/consensus/",  # the Raft library's
    "partition": (
        "client/rangelog/spark/",
        "jobs/",
        "client/rangelog/_table/",
        "client/rangelog/_sync_tables.py",
        "workbench/rangelog_bench/topics/",
        "ctl/pdctl/tables/",
        "files/",
        NEXT_LAYER,
    ),
    "segment": ("range_server/", "tools/make_golden.py", NEXT_LAYER),  # one file of the write-ahead log
    "shard": TOPIC_METADATA,
    "topic": TOPIC_METADATA,
}
LIBRARY_NAMES = {"partition", "rpartition", "CiphertextBlob", "master_key_identifier"}  # of str, AWS KMS, pyarrow


def _expanded(glob: str) -> Iterator[str]:
    """Yield the globs that a glob with braces stands for: "a/{b,c}" is "a/b" and "a/c"."""
    head, brace, rest = glob.partition("{")
    if not brace:
        yield glob
        return
    depth, start, parts = 0, 0, []
    for at, sign in enumerate(rest):
        if depth == 0 and sign in ",}":
            parts.append(rest[start:at])
            start = at + 1
            if sign == "}":
                break
        depth += {"{": 1, "}": -1}.get(sign, 0)
    for part in parts:
        yield from _expanded(f"{head}{part}{rest[at + 1 :]}")


_RUFF = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["ruff"]["lint"]["per-file-ignores"]
CORES = [core for glob in _RUFF if glob.startswith("!{") for core in _expanded(glob[1:])]
"""The cores, as pyproject.toml has them: ruff bans modules there, and built-in functions are banned here."""

WITHOUT_ASSERTIONS = ("range_server/",)

COUNTERPARTS = {
    "Client", "Reader", "Writer", "SerializingWriter", "SerializingProducer", "SerializingTransaction",
    "SerializingTransactional", "TopicProducer", "Topics", "TopicReader", "Table", "Tables",
    "TableWatch", "GroupMember", "Groups", "Transaction", "Transactional", "Transactions", "CursorReader", "StreamCursors",
    "Runtime",
}  # fmt: skip
"""Client, writer, producer, topics, tables, groups and what reads them, asynchronous and blocking; the running process of
either server. Tables of the placement driver's state are no user's."""

WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
Function = ast.FunctionDef | ast.AsyncFunctionDef


def tracked(*patterns: str) -> list[Path]:
    """Files that git knows or would add."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *patterns],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split("\n")
    return [ROOT / name for name in listed if name and (ROOT / name).is_file()]


def name_of(path: Path) -> str:
    """Its place in the project, as people write it."""
    return path.relative_to(ROOT).as_posix()


def sources() -> list[Path]:
    """Our own code, without generated stubs."""
    return [path for path in tracked("*.py") if name_of(path).split("/")[0] in SOURCE_ROOTS and "_pb2" not in path.name]


def _test_files() -> list[Path]:
    """All test files."""
    return tracked("tests/*.py")


@functools.cache
def tree_of(path: Path) -> ast.Module:
    """The parsed file. Python's collector goes over no trees: some two million nodes, which take it longer than all else."""
    text = path.read_text()
    was_on = gc.isenabled()
    gc.disable()
    try:
        return ast.parse(text)
    finally:
        gc.freeze()
        if was_on:
            gc.enable()


@functools.cache
def nodes_of(tree: ast.AST) -> list[ast.AST]:
    """Every node of a module, which all rules go over."""
    return list(ast.walk(tree))


@functools.cache
def functions(tree: ast.AST) -> list[Function]:
    """Every function of a module."""
    return [node for node in nodes_of(tree) if isinstance(node, Function)]


def names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Every identifier that a module defines or uses, arguments and aliases too, with its line."""
    for node in nodes_of(tree):
        for field in ("name", "id", "attr", "arg", "asname"):
            name = getattr(node, field, None)
            if isinstance(name, str):
                yield getattr(node, "lineno", 0), name


def words_of(name: str) -> set[str]:
    """The words of an identifier in lower case, each plural as its singular too."""
    words = {word.lower() for word in WORD.findall(name)}
    return words | {word.removesuffix("s") for word in words}


def test_files_and_functions_can_be_read_in_one_sitting() -> None:
    """No file and no function of ours grows beyond the bound, tests included."""
    long: list[str] = []
    for path in [*sources(), *_test_files()]:
        lines = path.read_text().count("\n")
        if lines > FILE_LINES_MAX:
            long.append(f"{name_of(path)}: {lines} lines")
        for node in functions(tree_of(path)):
            lines = (node.end_lineno or 0) - node.lineno
            if lines > FUNCTION_LINES_MAX:
                long.append(f"{name_of(path)}:{node.lineno} {node.name}: {lines} lines")
    assert not long, long


def test_modules_and_tests_say_what_they_are() -> None:
    """Each module has a docstring, and so has each test."""
    silent: list[str] = []
    for path in [*sources(), *_test_files()]:
        tree = tree_of(path)
        if path.read_text().strip() and ast.get_docstring(tree) is None:
            silent.append(name_of(path))
        if path.name.startswith("test_"):
            silent += [
                f"{name_of(path)}: {node.name}"
                for node in functions(tree)
                if node.name.startswith("test_") and ast.get_docstring(node) is None
            ]
    assert not silent, silent


def forbidden_words(place: str) -> set[str]:
    """The words that no name in a file at this place may have."""
    elsewhere = {word for word, home in WORDS_WITH_A_PLACE.items() if not place.startswith(home)}
    return elsewhere.union(FORBIDDEN_WORDS)


def test_one_word_per_thing() -> None:
    """Names do not use the words that the glossary forbids, and some words only where they mean something."""
    wrong: list[str] = []
    for path in sources():
        place = name_of(path)
        forbidden = forbidden_words(place)
        for line, name in names(tree_of(path)):
            if name not in LIBRARY_NAMES and words_of(name) & forbidden:
                wrong.append(f"{place}:{line} {name}")
    assert not wrong, wrong


@pytest.mark.parametrize("word", ["controller", "coordinator", "generation", "partition", "segment"])
def test_words_of_the_next_layer_are_free_there_alone(word: str) -> None:
    """The next layer may use the words of its protocols, every other package may not; rivals' words are forbidden in all."""
    assert word not in forbidden_words("broker/rangelog_broker/groups.py")
    for place in ("proto", "core", "server_common", "client", "pd", "cli"):
        assert word in forbidden_words(f"{place}/module.py")
    assert {"ledger", "bookie", "blob"} <= forbidden_words("broker/rangelog_broker/groups.py")


@pytest.mark.parametrize("word", ["broker", "shard", "topic"])
def test_words_of_topics_are_free_where_their_metadata_is(word: str) -> None:
    """The next layer and the placement driver may use them; what is below topics may not."""
    for place in ("broker/rangelog_broker/groups.py", "pd/rangelog_pd/state/topics.py", "core/rangelog_core/ids.py"):
        assert word not in forbidden_words(place)
    for place in ("server_common", "client/rangelog/_append", "client/rangelog/_read", "range_server"):
        assert word in forbidden_words(f"{place}/module.py")


def test_the_glossary_names_every_forbidden_word() -> None:
    """Whoever trips over a word finds in the glossary what to say instead."""
    rows = (ROOT / "docs" / "GLOSSARY.md").read_text().lower()
    missing = [word for word in (*FORBIDDEN_WORDS, *WORDS_WITH_A_PLACE) if word not in rows]
    assert not missing, missing


def test_nothing_unfinished_and_no_pickle() -> None:
    """No placeholder is left, and nothing imports pickle (the Raft library's names for it are cut off by name)."""
    found: list[str] = []
    for path in sources():
        text = path.read_text()
        found += [
            f"{name_of(path)}: {word}" for word in ("TODO", "FIXME", "XXX", "NotImplementedError") if word in text
        ]
        for node in nodes_of(tree_of(path)):
            imported = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            imported += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            found += [
                f"{name_of(path)}: {name}"
                for name in imported
                if name.split(".")[0] in ("pickle", "cloudpickle", "dill", "marshal", "shelve")
            ]
    assert not found, found


def test_cores_open_nothing() -> None:
    """A core does no I/O through built-in functions either; each glob names some."""
    assert [core for core in CORES if not any(fnmatch(name_of(path), core) for path in sources())] == []
    found = [
        f"{name_of(path)}:{node.lineno} {node.func.id}()"
        for path in sources()
        if any(fnmatch(name_of(path), core) for core in CORES)
        for node in nodes_of(tree_of(path))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in ("open", "print", "input", "exec", "eval", "__import__")
    ]
    assert not found, found


def test_servers_guard_nothing_by_assertions() -> None:
    """What `python -O` leaves out decides nothing: assertions stand in `validate`, for tests, and in test helpers only."""
    found: list[str] = []
    for path in sources():
        if not name_of(path).startswith(WITHOUT_ASSERTIONS) or path.name == "testing.py":
            continue
        tree = tree_of(path)
        checks = [function for function in functions(tree) if function.name == "validate"]
        allowed = {id(node) for function in checks for node in ast.walk(function)}
        found += [
            f"{name_of(path)}:{node.lineno}"
            for node in nodes_of(tree)
            if isinstance(node, ast.Assert) and id(node) not in allowed
        ]
    assert not found, found


def test_no_machine_paths() -> None:
    """Nothing names a place on the machine it was written on."""
    pattern = re.compile(r"/(?:work|root)/(?!\.)|/home/\w")
    found = [
        name_of(path)
        for path in tracked()
        if path.suffix in {".py", ".md", ".toml", ".proto", ".sh", ".lock", ""}
        and path != Path(__file__)
        and pattern.search(path.read_text(errors="ignore"))
    ]
    assert not found, found


@pytest.mark.parametrize(
    "page",
    ["README.md", "docs/ARCHITECTURE.md", "docs/PROTOCOL.md", "docs/OPERATIONS.md", "CHANGELOG.md", "tests/README.md"],
)
def test_make_targets_that_are_named_exist(page: str) -> None:
    """Every `make …` that a page tells a reader to type is a target of the Makefile."""
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    text = (ROOT / page).read_text()
    code = re.findall(r"```console\n(.*?)```", text, re.DOTALL) + re.findall(r"`([^`\n]+)`", text)
    named = {target for each in code for target in re.findall(r"\bmake ([a-z-]+)", each)}
    assert named <= targets, named - targets
    if page == "README.md":
        assert {"demo", "test"} <= named


@pytest.mark.parametrize(
    "page",
    [
        "README.md",
        *(f"{each}/README.md" for each in PRODUCT),
        "docs/ARCHITECTURE.md",
        "docs/where.md",
        "docs/safety.md",
        "docs/PROTOCOL.md",
        "docs/FORMATS.md",
        "docs/OPERATIONS.md",
        "tests/README.md",
    ],
)
def test_files_that_are_named_exist(page: str) -> None:
    """A page names only modules, folders and pages that are there."""
    known = ["/" + name_of(path) for path in tracked()]
    named = [text.split("::")[0] for text in re.findall(r"`([^`\s]+)`", (ROOT / page).read_text())]
    gone = [
        name
        for name in named
        if (re.search(r"\.(py|md|toml)$", name) and not any(path.endswith("/" + name) for path in known))
        or (re.fullmatch(r"[\w/]+/", name) and not any(f"/{name}" in path for path in known))
    ]
    links = re.findall(r"\]\(([^)#:]+)\)", (ROOT / page).read_text())
    gone += [link for link in links if not ((ROOT / page).parent / link).exists()]
    assert not gone, gone


def private_imports(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """The private modules and names of `rangelog` that a module imports, with the line."""
    for node in nodes_of(tree):
        if isinstance(node, ast.Import):
            imported = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            imported = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in imported:
            package, *rest = name.split(".")
            if package == "rangelog" and any(part.startswith("_") for part in rest):
                yield node.lineno, name


def test_nobody_outside_the_client_imports_its_private_modules() -> None:
    """Servers, commands, tools and benchmarks use `rangelog` by its public names; only tests look inside."""
    found = [
        f"{name_of(path)}:{line} {name}"
        for path in tracked("*.py")
        if not name_of(path).startswith(("client/rangelog/", "tests/"))
        for line, name in private_imports(tree_of(path))
    ]
    assert not found, found


def test_every_package_is_built_typed_linted_and_under_contract() -> None:
    """A package that is added is in the wheel, among what mypy and ruff read, and among the roots of the import contracts."""
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    folders = {
        str(path.parent.relative_to(ROOT).as_posix())
        for path in sources()
        if path.name == "__init__.py" and len(path.relative_to(ROOT).parts) == 3
    }
    assert len(folders) >= 13
    workbench = tomllib.loads((ROOT / "workbench" / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"][
        "wheel"
    ]
    assert {
        *config["hatch"]["build"]["targets"]["wheel"]["packages"],
        *(f"workbench/{each}" for each in workbench["packages"]),
    } == folders
    assert set(config["importlinter"]["root_packages"]) == {folder.split("/")[1] for folder in folders}
    roots = {folder.split("/")[0] for folder in folders}
    assert roots <= set(config["ruff"]["src"])
    assert roots <= {*config["mypy"]["files"], "proto"} and roots == set(PRODUCT)


UNIT_FOLDERS = {
    "broker": "broker/rangelog_broker",
    "cli": "cli/rangelog_cli",
    "client": "client/rangelog",
    "core": "core/rangelog_core",
    "files": "files/rangelog_files",
    "http": "broker/rangelog_http",
    "jobs": "jobs/rangelog_jobs",
    "page": "page/rangelog_page",
    "pd": "pd/rangelog_pd",
    "pdctl": "ctl/pdctl",
    "range_server": "range_server/rangelog_server",
    "server_common": "server_common/rangelog_server_common",
    "tier": "tier/rangelog_tier",
    "workbench/bench": "workbench/rangelog_bench",
    "workbench/demo": "workbench/rangelog_demo",
}
"""Where the sources are that a folder of unit tests is about."""
UNIT_FOLDERS_OF_NO_PACKAGE = {"checkers", "golden", "tls"}
"""Tests of the harness itself, of bytes that several packages write, and of what holds for every port."""


def test_unit_tests_lie_where_their_sources_do() -> None:
    """Each folder of unit tests has the name of the source folder it is about, without a leading underscore."""
    astray: list[str] = []
    for path in tracked("tests/unit/*.py"):
        package, *folders = path.relative_to(ROOT / "tests" / "unit").parts[:-1] or ("checkers",)
        if package == "workbench" and folders:
            package = f"workbench/{folders.pop(0)}"
        if package in UNIT_FOLDERS_OF_NO_PACKAGE:
            continue
        source = ROOT / UNIT_FOLDERS.get(package, package)
        for folder in folders:
            source = source / folder if (source / folder).is_dir() else source / f"_{folder}"
        if not source.is_dir():
            astray.append(name_of(path))
    assert not astray, astray


def test_one_class_name_one_meaning() -> None:
    """No two public classes of the product have the same name, but for the few pairs that are each other's counterpart."""
    homes: dict[str, list[str]] = {}
    for path in sources():
        for node in tree_of(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(name_of(path))
    shared = {name: found for name, found in homes.items() if len(found) > 1 and name not in COUNTERPARTS}
    assert not shared, shared
