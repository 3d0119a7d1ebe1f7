"""House rule of order: what a program does in turn follows its history, not the order of a set.

Sets of strings, and of objects without a hash of their own, have another order in each process. Sets of ints have not; sets of
tasks have none in the simulator, which numbers tasks.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.tidy.test_tidy import Function, functions, name_of, nodes_of, tracked, tree_of

PLACES = ("core", "server_common", "tier", "client", "jobs", "broker", "range_server", "pd")
ORDER_IS_LOST = {"sorted", "len", "any", "all", "min", "max", "sum", "set", "frozenset"}
KEEPS_ORDER = {"list", "tuple", "deque", "iter", "enumerate", "zip", "map", "dict.fromkeys", "asyncio.gather"}
SET = re.compile(r"(frozen)?set(?!\[(int|asyncio\.Task\[.*\])\])\b")
PERMITTED = {
    ("client/rangelog/_loop_thread.py", "self._calls"): "blocked threads, which are all told the same",
    ("jobs/rangelog_jobs/fan_out.py", "set(tracker.getJobIdsForGroup(None)) - known"): "numbers of jobs",
    ("client/rangelog/_sync_bases.py", "_open_clients"): "clients that end with their program",
    (
        "pd/rangelog_pd/consensus/rules/member_changes.py",
        "set(self._SyncObj__raftMatchIndex) - wanted",
    ): "forgotten alike",
    ("range_server/rangelog_server/ranges/space.py", "{*tombstone.segments, where}"): "numbers of segments",
}


def _is_set(node: ast.expr, known: set[str]) -> bool:
    """Whether an expression is a set, by what it looks like and what is known of names."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub | ast.BitAnd | ast.BitOr):
        return _is_set(node.left, known) or _is_set(node.right, known)
    if isinstance(node, ast.Call):
        return ast.unparse(node.func) in ("set", "frozenset")
    return isinstance(node, ast.Set | ast.SetComp) or (
        isinstance(node, ast.Name | ast.Attribute) and ast.unparse(node) in known
    )


def _known(tree: ast.AST) -> set[str]:
    """The names that are declared as sets."""
    declared = [node for node in nodes_of(tree) if isinstance(node, ast.AnnAssign | ast.arg) and node.annotation]
    return {
        ast.unparse(node.target) if isinstance(node, ast.AnnAssign) else node.arg
        for node in declared
        if SET.match(ast.unparse(node.annotation or node))
    }


def _assigned(function: Function, known: set[str]) -> set[str]:
    return {
        ast.unparse(target)
        for node in nodes_of(function)
        if isinstance(node, ast.Assign) and _is_set(node.value, known)
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def taken_in_turn(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield line and text of each set whose members are taken one after the other."""
    attributes = {each for each in _known(tree) if "." in each}
    for scope in [tree, *functions(tree)]:
        known = attributes | _known(scope)
        if isinstance(scope, Function):
            known |= _assigned(scope, known)
        unordered = {
            id(each)
            for node in nodes_of(scope)
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ORDER_IS_LOST
            for each in node.args
        }
        for node in nodes_of(scope):
            walked: list[ast.expr] = []
            if isinstance(node, ast.For | ast.AsyncFor):
                walked = [node.iter]
            elif isinstance(node, ast.ListComp | ast.GeneratorExp | ast.DictComp) and id(node) not in unordered:
                walked = [each.iter for each in node.generators]
            elif isinstance(node, ast.Call) and ast.unparse(node.func) in KEEPS_ORDER and id(node) not in unordered:
                walked = [each.value if isinstance(each, ast.Starred) else each for each in node.args]
            yield from ((each.lineno, ast.unparse(each)) for each in walked if _is_set(each, known))


def test_nothing_is_done_in_the_order_of_a_set() -> None:
    """A seed of the simulation had two histories: a new owner looked at its transactions by a set of their ids."""
    found = {
        (name_of(path), text): line
        for path in tracked(*(f"{place}/*.py" for place in PLACES))
        if "_pb2" not in path.name
        for line, text in taken_in_turn(tree_of(path))
    }
    wrong = [
        f"{path}:{line}: {text}: take dict.fromkeys"
        for (path, text), line in found.items()
        if (path, text) not in PERMITTED
    ]
    assert not wrong, "\n".join(wrong)
    assert not PERMITTED.keys() - found.keys(), "these are permitted, and not there"


def test_the_check_sees_what_had_two_histories() -> None:
    """Displays, calls, differences, and names that are declared; not what is sorted, and no ints."""
    source = """
class Owner:
    def __init__(self):
        self.names: set[str] = set()
        self.numbers: set[int] = set()
    def look(self, gone: set[str]):
        for name in {each for each in self.names}: ...
        for name in self.names: ...
        for name in sorted(self.names - gone): ...
        for number in self.numbers: ...
        left = self.names - gone
        return [name for name in left], len([*left]), list(gone)
"""
    texts = [text for _, text in taken_in_turn(ast.parse(source))]
    assert sorted(set(texts)) == ["gone", "left", "self.names", "{each for each in self.names}"]
