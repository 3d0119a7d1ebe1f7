"""Generate the blocking classes of `rangelog.sync` from the asynchronous ones; --check: compare them with what is committed.

Invariant: a blocking class has every public method of its asynchronous class, with its parameters, defaults and overloads,
except those whose docstring says "package's own use", and those that its base in `_sync_bases.py` defines.

The asynchronous form of a method decides: a coroutine or a plain call runs on the loop, an asynchronous iterator is
iterated there, a property is read, a future becomes one for threads, an iterable argument is made a list on the calling thread,
and an object comes and goes in its blocking form. READS and ON_ANY_THREAD have the rest.
"""

from __future__ import annotations

import ast
import builtins
import re
import sys
import textwrap
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "client" / "rangelog"
BASES = "_sync_bases"
WIDTH = 120
OWN_USE = "package's own use"


GENERATED = {
    "_sync_client": ("_client.Client",),
    "_sync_cursors": ("_read.cursors.StreamCursors",),
    "_sync_groups": ("_consume.group.GroupMember", "_consume.groups.Groups"),
    "_sync_tables": ("_table.table.Table", "_table.watch.TableWatch", "_table.tables.Tables"),
    "_sync_topics": ("_produce.producer.TopicProducer", "_consume.reader.TopicReader", "_topics.topics.Topics"),
    "_sync_transactions": (
        "_transact.transaction.Transaction", "_transact.transactional.Transactional", "_transact.transactions.Transactions",
    ),
    "_sync_writer": ("_append.writer.Writer",),
}  # fmt: skip
BY_HAND = {
    "_sync_reader": ("_read.reader.Reader", "_read.cursor_reader.CursorReader"),
    "_sync_serializing": (
        "_append.serializing.SerializingWriter", "_produce.serializing.SerializingProducer",
        "_transact.serializing.SerializingTransactional",
    ),
}  # fmt: skip
"""Modules of `rangelog`, and the asynchronous classes whose blocking forms they have."""
PARENTS = {"Client": "_client_topics.TopicOperations"}
"""Where a class has public methods from."""
BLOCKING = {
    each.rpartition(".")[2]: (module, each.rpartition(".")[0])
    for module, classes in (GENERATED | BY_HAND).items()
    for each in classes
}
"""Class → the module of its blocking form, and of its asynchronous form."""
READS = {
    "Client": ("describe_stream", "end_offset", "group", "transactional"),
    "GroupMember": ("time_window",),
    "Groups": ("checkpoint_positions", "describe", "lag"),
    "StreamCursors": ("get",),
    "Table": ("get", "get_many", "position", "watch"),
    "Tables": ("describe",),
    "TopicReader": ("time_window",),
    "Topics": ("cut", "describe", "shards"),
    "Transaction": ("outcome",),
    "Transactions": ("describe",),
}
"""Calls that change nothing in the cluster: their outcome is known where the client is closed meanwhile."""
ON_ANY_THREAD = {
    "Client": ("cursors", "producer", "reader", "table", "topic_reader", "writer"),
    "GroupMember": ("position",),
    "TableWatch": ("position",),
    "Transactional": ("transaction",),
}
"""Calls that need no loop: they make an object, or read what changes in one step. Other plain calls run on the loop."""
REWORDED = {
    "async with": "with",
    "n asynchronous iterator": "n iterator",
    ", at the lowest cost": "; every call goes to the client's own thread and back",
    "without waiting. The arguments": "and return a future of its ack. Blocks only while `inflight_bytes_max` bytes are not "
    "acked. The future cannot be cancelled; its callbacks run on the client's own thread: they must neither block nor call the "
    "client. The arguments",
}
"""Words of docstrings that hold for the asynchronous form only."""
Function = ast.FunctionDef | ast.AsyncFunctionDef


class Source:
    """A module of `rangelog`, parsed."""

    def __init__(self, name: str) -> None:
        self.name = f"rangelog.{name}"
        text = (PACKAGE / f"{name.replace('.', '/')}.py").read_bytes()
        self._lines = text.split(b"\n")
        body = ast.parse(text).body
        self.top = {each.name: each for each in body if isinstance(each, ast.ClassDef | Function)}
        self.imports = dict(self._imports(body))
        guarded = [each for statement in body if isinstance(statement, ast.If) for each in statement.body]
        self.only_types = dict(self._imports(guarded))

    @staticmethod
    def _imports(body: Iterable[ast.stmt]) -> Iterator[tuple[str, tuple[str, str]]]:
        for statement in body:
            if isinstance(statement, ast.ImportFrom):
                yield from ((each.asname or each.name, (str(statement.module), each.name)) for each in statement.names)

    def text_of(self, tree: ast.expr | ast.arg) -> str:
        """Return the text of an expression, in one line."""
        lines = self._lines[tree.lineno - 1 : tree.end_lineno]
        lines[-1] = lines[-1][: tree.end_col_offset]
        lines[0] = lines[0][tree.col_offset :]
        return " ".join(b" ".join(lines).decode().split())

    def lines_of(self, function: Function) -> str:
        """Return the lines of a function, decorators and comments included."""
        first = function.decorator_list[0].lineno
        return b"\n".join(self._lines[first - 1 : function.end_lineno]).decode()


def class_at(place: str) -> tuple[Source, ast.ClassDef]:
    """Return a class by module and name."""
    module, _, name = place.rpartition(".")
    source = Source(module)
    of = source.top[name]
    assert isinstance(of, ast.ClassDef), place
    return source, of


def functions(of: ast.ClassDef) -> list[Function]:
    """Return the functions in a class."""
    return [each for each in of.body if isinstance(each, Function)]


def marks(function: Function) -> set[str]:
    """Return the names of a function's decorators, of those that are plain names."""
    return {each.id for each in function.decorator_list if isinstance(each, ast.Name)}


def names_in(*trees: ast.AST | None) -> set[str]:
    """Return the names that expressions use."""
    return {each.id for tree in trees if tree is not None for each in ast.walk(tree) if isinstance(each, ast.Name)}


def laid_out(indent: str, head: str, items: Sequence[str], tail: str) -> str:
    """Return `head`, the items with commas, and `tail`, in one line or in several."""
    line = f"{indent}{head}{', '.join(items)}{tail}"
    if len(line) <= WIDTH or not items:
        return line
    rows = [""]
    for item in items:
        if len(f"{indent}    {rows[-1]}{item},") > WIDTH:
            rows.append("")
        rows[-1] += f"{item}, "
    return "\n".join([f"{indent}{head}", *(f"{indent}    {row.rstrip()}" for row in rows), f"{indent}{tail}"])


def quoted(indent: str, text: str) -> str:
    """Return a docstring; of a long one the first sentence stands alone."""
    first, _, rest = text.partition(". ")
    if not rest or len(f'{indent}"""{text}"""') <= WIDTH:
        return f'{indent}"""{text}"""\n'
    wrapped = textwrap.fill(rest, WIDTH, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)
    return f'{indent}"""{first}.\n\n{wrapped}\n{indent}"""\n'


def described(docstring: str, place: str) -> str:
    """Return the first paragraph of a docstring, the errors, and a reference if there is more."""
    summary, *paragraphs = docstring.split("\n\n")
    said, more = [" ".join(summary.split())], False
    for paragraph in paragraphs:
        if paragraph.startswith("Raises:"):
            errors = re.findall(r"^    ([A-Z][\w, ]+):", paragraph, re.MULTILINE)
            said.append(f"Raises {', '.join(errors)}.")
        elif paragraph.startswith("Raises "):
            said.append(" ".join(paragraph.split()))
        elif not paragraph.startswith("Example:"):
            more = True
    text = " ".join([*said, *([f"See `rangelog.{place}`."] if more else [])])
    for old, new in REWORDED.items():
        text = text.replace(old, new)
    return text


class Module:
    """A generated module."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._parts: list[str] = []
        self._names: list[str] = []
        self.calls: set[tuple[str, str]] = set()
        self._imports: dict[str, tuple[str, str]] = {}
        self._only_types: dict[str, tuple[str, str]] = {}
        self._bases = Source(BASES)

    def add_class(self, name: str) -> None:
        """Generate a class."""
        self._names.append(name)
        source, of = class_at(f"{BLOCKING[name][1]}.{name}")
        base = self._bases.top.get(f"{name}Base")
        parent = self._import(f"rangelog.{BASES}", f"{name}Base" if base is not None else "Blocking")
        if base is None:
            first = (ast.get_docstring(of) or "").split("\n\n")[0]
            told = described(f"{first} Arguments, results and errors are those of `rangelog.{name}`.", "")
            self._parts.append(f"\n\nclass {name}({parent}[{self._asynchronous(name)}]):\n{quoted('    ', told)}")
        else:
            self._parts.append(f'\n\nclass {name}({parent}):\n    """{ast.get_docstring(base, clean=False)}"""\n')
        written = set(self._written(f"{name}Base"))
        for home, each in ((source, of), *([class_at(PARENTS[name])] if name in PARENTS else [])):
            for function in functions(each):
                public = function.name == "__aiter__" or not function.name.startswith("_")
                if public and function.name not in written and OWN_USE not in (ast.get_docstring(function) or ""):
                    self._add_method(name, home, each, function)

    def _written(self, name: str) -> Iterator[str]:
        """Yield the names of the methods that a base and its own bases define."""
        base = self._bases.top.get(name)
        if isinstance(base, ast.ClassDef):
            yield from ("__aiter__" if each.name == "__iter__" else each.name for each in functions(base))
            for each in base.bases:
                yield from (found for parent in names_in(each) for found in self._written(parent))

    def _add_method(self, of_class: str, source: Source, of: ast.ClassDef, function: Function) -> None:
        self._import_names(source, function)
        if "overload" in marks(function):
            self._import("typing", "overload")
            self._parts.append(f"\n{source.lines_of(function)}\n")
            return
        name = function.name.replace("__aiter__", "__iter__")
        self.calls.add((of_class, name))
        assert function.returns is not None, name
        parameters, passed = self._parameters(source, function)
        overloaded = any(each.name == name and "overload" in marks(each) for each in functions(of))
        call, end = "make(" if overloaded else f"self._of.{name}(", ")"
        if "property" in marks(function):
            call, end = f"self._of.{name}", ""
        elif name == "__iter__":
            call = "aiter(self._of"
        head, tail, returns = self._handed(of_class, name, function, source.text_of(function.returns))
        text = "    @property\n" if "property" in marks(function) else ""
        text += laid_out("    ", f"def {name}(", ["self", *parameters], f") -> {returns}:") + "\n"
        docstring = ast.get_docstring(function)
        if docstring is not None:
            waits = returns.startswith("Future[")  # for room, where the asynchronous form refuses
            said = described(docstring, f"{of_class}.{name}")
            text += quoted("        ", said.replace("Raises Overloaded, ", "Raises ") if waits else said)
        if overloaded:
            text += f"        make: {self._import('typing', 'Any')} = self._of.{name}\n"
        self._parts.append(f"\n{text}{self._body(f'{head}{call}', passed, f'{end}{tail}', returns)}")

    def _handed(self, of_class: str, name: str, function: Function, returns: str) -> tuple[str, str, str]:
        """Return what stands before and behind the asynchronous call, and what the blocking one returns."""
        reads = ", reads=True" if name in READS.get(of_class, ()) else ""
        items = re.fullmatch(r"Async(?:Iterator|Generator)\[(.+?)(?:, None)?\]", returns)
        future = re.fullmatch(r"asyncio\.Future\[(.+)\]", returns)
        if items is not None:
            self._import("collections.abc", "Iterator")
            return "self._loop.iterate(", ")", f"Iterator[{items[1]}]"
        if future is not None:
            submit = self._import("rangelog._sync_submit", "submit_when_there_is_room")
            self._import("concurrent.futures", "Future")
            return f"{submit}(self._loop, self._of.ready, lambda: ", ")", f"Future[{future[1]}]"
        if isinstance(function, ast.AsyncFunctionDef):
            return "self._loop.run(", f"{reads})", returns
        if "property" in marks(function) or name in ON_ANY_THREAD.get(of_class, ()):
            return "", "", returns
        return "self._loop.call(lambda: ", f"{reads})", returns

    def _body(self, head: str, passed: Sequence[str], tail: str, returns: str) -> str:
        forms = [each.strip() for each in returns.split("|") if each.strip() in BLOCKING]
        if not forms:
            return laid_out("        ", f"{'return ' if returns != 'None' else ''}{head}", passed, tail) + "\n"
        for each in forms:
            if BLOCKING[each][0] != self._name:
                self._import(f"rangelog.{BLOCKING[each][0]}", each)
        if len(forms) == 1:
            return laid_out("        ", f"return {forms[0]}(self._loop, {head}", passed, f"{tail})") + "\n"
        usual, other = forms
        return (
            laid_out("        ", f"made = {head}", passed, tail)
            + f"\n        if isinstance(made, {self._asynchronous(other)}):"
            + f"\n            return {other}(self._loop, made)\n        return {usual}(self._loop, made)\n"
        )

    def _parameters(self, source: Source, function: Function) -> tuple[list[str], list[str]]:
        """Return the parameters as they are declared, and as they are handed on."""
        arguments = function.args
        declared, passed = [], []
        ordered = [each for each in arguments.args if each.arg != "self"]
        defaults: list[ast.expr | None] = [*[None] * (len(ordered) - len(arguments.defaults)), *arguments.defaults]
        for each, default in zip(ordered, defaults, strict=True):
            declared.append(self._declared(source, each, default))
            passed.append(self._passed(source, each))
        if arguments.vararg is not None:
            declared.append(f"*{self._declared(source, arguments.vararg, None)}")
            passed.append(f"*{arguments.vararg.arg}")
        elif arguments.kwonlyargs:
            declared.append("*")
        for each, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
            declared.append(self._declared(source, each, default))
            passed.append(f"{each.arg}={self._passed(source, each)}")
        return declared, passed

    @staticmethod
    def _declared(source: Source, argument: ast.arg, default: ast.expr | None) -> str:
        return source.text_of(argument) + (f" = {source.text_of(default)}" if default is not None else "")

    def _passed(self, source: Source, argument: ast.arg) -> str:
        annotation = source.text_of(argument.annotation) if argument.annotation is not None else ""
        if annotation.startswith("Iterable["):
            return f"{self._import('rangelog._sync_submit', 'listed')}({argument.arg})"
        return f"{argument.arg}.asynchronous" if annotation in BLOCKING else argument.arg

    def add_connect(self, source: Source) -> None:
        """Generate `connect`, which makes the client."""
        function = source.top["connect"]
        assert isinstance(function, Function)
        self._import_names(source, function, but={"Connecting"})
        parameters, passed = self._parameters(source, function)
        make = self._import(source.name, "connect", "async_connect")
        connected = self._import(f"rangelog.{BASES}", "connected")
        said = "Return a blocking client of a cluster. The arguments and errors are those of `rangelog.connect`."
        body = laid_out("    ", f"return {connected}(Client, {make}(", passed, "))")
        self._parts.append(
            f"\n\n{laid_out('', 'def connect(', parameters, ') -> Client:')}\n{quoted('    ', said)}{body}\n"
        )

    def _asynchronous(self, name: str) -> str:
        return self._import(f"rangelog.{BLOCKING[name][1]}", name, f"Async{name}")

    def _import_names(self, source: Source, function: Function, but: Iterable[str] = ()) -> None:
        used = names_in(function.args, function.returns) - {
            "AsyncIterator",
            "AsyncGenerator",
            "asyncio",
            *vars(builtins),
            *but,
        }
        for name in used:
            if name in BLOCKING:
                if BLOCKING[name][0] != self._name:
                    self._import(f"rangelog.{BLOCKING[name][0]}", name)
            elif name in source.only_types:
                self._only_types[name] = source.only_types[name]
            else:
                self._import(*source.imports.get(name, (source.name, name)), name)

    def _import(self, module: str, name: str, known_as: str = "") -> str:
        known_as = known_as or name
        if self._imports.setdefault(known_as, (module, name)) != (module, name):
            raise SystemExit(f"generate_blocking: {self._name} needs two things by the name {known_as}")
        return known_as

    def text(self) -> str:
        """Return the module."""
        names = ", ".join(self._names)
        lines = [
            f'"""Generated by tools/generate_blocking.py from the asynchronous {names}; do not edit."""\n',
            "# fmt: off",
            "# ruff: noqa: I001",
            "from __future__ import annotations\n",
        ]
        if self._only_types:
            self._import("typing", "TYPE_CHECKING")
        lines += self._import_lines(self._imports)
        if self._only_types:
            lines += ["\nif TYPE_CHECKING:", *(f"    {each}" for each in self._import_lines(self._only_types))]
        return "\n".join(lines) + "\n" + "".join(self._parts)

    @staticmethod
    def _import_lines(imports: dict[str, tuple[str, str]]) -> list[str]:
        by_module = defaultdict(list)
        for known_as, (module, name) in sorted(imports.items()):
            by_module[module].append(name if name == known_as else f"{name} as {known_as}")
        return [
            laid_out("", f"from {module} import (", names, ")")
            if len(names) > 3
            else f"from {module} import {', '.join(names)}"
            for module, names in sorted(by_module.items())
        ]


def generate() -> dict[Path, str]:
    """Return the text of each module."""
    modules = {name: Module(name) for name in GENERATED}
    for name, module in modules.items():
        for each in GENERATED[name]:
            module.add_class(each.rpartition(".")[2])
    modules["_sync_client"].add_connect(Source("_client"))
    calls = {call for module in modules.values() for call in module.calls}
    for name, named in (*READS.items(), *ON_ANY_THREAD.items()):
        for each in named:
            if (name, each) not in calls:
                raise SystemExit(
                    f"generate_blocking: READS or ON_ANY_THREAD names {name}.{each}, which is not generated"
                )
    return {PACKAGE / f"{name}.py": module.text() for name, module in modules.items()}


def main(arguments: Sequence[str]) -> int:
    """Return 0 when the modules are those that the asynchronous classes make."""
    made = generate()
    stale = [path for path in made if not path.exists() or path.read_text() != made[path]]
    if "--check" not in arguments:
        for path in stale:
            path.write_text(made[path])
        return 0
    for path in stale:
        print(f"generate_blocking: {path.name} is not what the asynchronous classes make; run `make blocking`")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
