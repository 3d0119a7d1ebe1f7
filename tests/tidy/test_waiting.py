"""House rules of waiting: tests wait by `tests/support/waiting.py`, and assert no times outside of `measure`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.tidy.test_tidy import ROOT, Function, functions, name_of, tracked, tree_of

CLOCKS = {"time.monotonic", "time.perf_counter", "time.monotonic_ns", "time.perf_counter_ns", "time.time", "loop.time"}
SLEEPS = {"asyncio.sleep", "time.sleep", "sleep", "page.wait_for_timeout"}
TIMED = re.compile(r"sleep\(|wait_for_timeout\(|monotonic|perf_counter|\.time\(")
"""A file without these words breaks no rule."""
LIMITS = {"asyncio.timeout", "asyncio.timeout_at"}
ARITHMETIC = {"max", "min", "sum", "abs", "round", "int", "float", "sorted", "median"}
DERIVED_MAX = 3
"""How many assignments lie between a reading of a clock and what is compared."""
WAITING = "tests/support/waiting.py"
VIRTUAL = "tests/simulation/"
"""Time of its helpers passes when nothing else can be done: a sleep is a place in the order of events."""

PERMITTED = {
    ("tests/chaos/chaos_brokers.py", "_scale"): "the moment of the second scale is drawn",
    ("tests/chaos/chaos_proxy.py", "_serve"): "the delay of a slow connection",
    ("tests/chaos/chaos_topic.py", "ask"): "a call is tried again, and its last error is the finding",
    (
        "tests/chaos/chaos_writer.py",
        "run",
    ): "appends at a rate, and takes the late answers that come within a grace time",
    ("tests/fixtures/previous_data.py", "_wait_for_the_tier"): "a program of its own, beside the previous release",
    ("tests/integration/helpers/consensus_worker.py", "trap"): "the fault: a rename that takes time",
    ("tests/integration/test_consensus_crash.py", "test_kill_all_three_around_a_compaction"): "a moment that is drawn",
    (
        "tests/integration/test_healing.py",
        "test_a_server_that_stood_still_has_its_place_again",
    ): "a load of some seconds",
    ("tests/integration/test_many_followers.py", "stand_still"): "the fault: an event loop that stands still",
    ("tests/support/call_clock.py", "pause"): "stands for the client's pause between tries",
    ("tests/support/group_cluster.py", "call"): "stands for the client's calls, which end with their time-out",
    ("tests/support/left_running.py", "_nothing_is_left_running"): "what runs after the grace time is ended and named",
    (
        "tests/support/memory_server.py",
        "replies",
    ): "a connection in memory has no event to wait for",
    ("tests/support/table_cluster.py", "call"): "stands for the client's calls, which end with their time-out",
    (
        "tests/unit/workbench/bench/test_bench_java_driver.py",
        "test_acks_in_the_background_have_times_of_this_process",
    ): ("the order of readings of a clock, no bound"),
    ("tests/unit/workbench/bench/test_bench_workload.py", "append"): "the fault: an append that stalls",
    ("tests/unit/workbench/bench/test_bench_workload.py", "pump"): "a system that takes time",
    (
        "tests/unit/workbench/bench/test_bench_workload.py",
        "test_a_stall_is_charged_to_everything_that_was_due_meanwhile",
    ): "what was measured lies within the time of the test",
    ("tests/unit/core/net/test_pd_client.py", "test_nobody_answers"): "a lower bound: no slow machine breaks it",
    (
        "tests/unit/client/append/test_placement_calls.py",
        "open_writers",
    ): "a call that takes time: others gather meanwhile",
    (
        "tests/unit/pd/consensus/test_pysyncobj_consensus.py",
        "test_a_member_with_an_empty_disk_does_not_elect_a_stale_one",
    ): ("nothing may happen for some seconds: there is no state to wait for"),
}
"""Functions that must, and why."""

LEFT = {
    "tests/integration/test_chaos_short.py": 2,
    "tests/integration/test_quotas.py": 5,
    "tests/scale/storm.py": 1,
    "tests/security/rights.py": 1,
    "tests/unit/broker/rest/test_rest_server.py": 1,
    "tests/unit/broker/tables/test_table_service.py": 1,
    "tests/unit/broker/test_broker_runtime.py": 3,
    "tests/unit/broker/transactions/test_sealing_with_transactions.py": 1,
    "tests/unit/checkers/test_virtual_loop.py": 4,
    "tests/unit/client/consume/test_groups_of_deleted_topics.py": 1,
    "tests/unit/client/consume/test_topic_serializing.py": 1,
    "tests/unit/client/table/test_tables_over_grpc.py": 1,
    "tests/unit/core/net/test_tls.py": 1,
    "tests/unit/range_server/serving/test_pushed_fetches.py": 1,
    "tests/unit/range_server/tier/test_manifest_upkeep.py": 1,
}
"""File → places that are to go: bounds on times become measurements, unit tests over in-memory clusters get virtual time."""


def _dotted(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def _called(node: ast.AST) -> str:
    name = _dotted(node.func) if isinstance(node, ast.Call) else ""
    return "loop.time" if name.endswith((".time", "_loop.time")) and name != "time.time" else name


def _reads_clock(node: ast.AST) -> bool:
    return any(_called(each) in CLOCKS for each in ast.walk(node))


def _is_timed_sleep(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and _called(node) in SLEEPS and ast.unparse(node.args[0]) != "0"


def _sleeps_in(node: ast.AST) -> bool:
    return any(_is_timed_sleep(each) for each in ast.walk(node))


def _own(function: Function) -> Iterator[ast.AST]:
    """The nodes of a function, without those of functions in it."""
    todo: list[ast.AST] = list(function.body)
    while todo:
        node = todo.pop()
        yield node
        if not isinstance(node, Function):
            todo += ast.iter_child_nodes(node)


def polls(function: Function) -> Iterator[int]:
    """Lines of loops that wait: they sleep, and do nothing else, or compare a clock, or have a limit around them."""
    limited = {
        id(each)
        for node in _own(function)
        if isinstance(node, ast.AsyncWith) and any(_called(item.context_expr) in LIMITS for item in node.items)
        for each in node.body
    }
    for node in _own(function):
        if not (isinstance(node, ast.While | ast.For) and _sleeps_in(node)):
            continue
        only_sleeps = all(isinstance(each, ast.Expr) and _sleeps_in(each) for each in node.body)
        compares = any(isinstance(each, ast.Compare) and _reads_clock(each) for each in ast.walk(node))
        if only_sleeps or compares or id(node) in limited:
            yield node.lineno


def sleeps(function: Function, in_test: bool) -> Iterator[int]:
    """Lines of sleeps outside of loops. A loop waits (`polls`), or paces a load: in helpers, or by `while` and asyncio."""
    loops = ast.While if in_test else ast.While | ast.For | ast.AsyncFor
    paced = {id(each) for node in _own(function) if isinstance(node, loops) for each in ast.walk(node)}
    for node in _own(function):
        if _is_timed_sleep(node) and not (_called(node) == "asyncio.sleep" and id(node) in paced):
            yield getattr(node, "lineno", 0)


def _operands(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes that a value is computed of by arithmetic: not the arguments of calls that give something else."""
    yield node
    if not isinstance(node, ast.Call) or _called(node) in ARITHMETIC:
        for each in ast.iter_child_nodes(node):
            yield from _operands(each)


def clock_assertions(function: Function) -> Iterator[int]:
    """Lines of assertions that compare a time which was measured."""
    measured: set[str] = set()

    def is_time(node: ast.AST) -> bool:
        return any(
            _called(each) in CLOCKS or (isinstance(each, ast.Name) and each.id in measured) for each in _operands(node)
        )

    assignments = [node for node in _own(function) if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign)]
    for _ in range(DERIVED_MAX):
        for each in assignments:
            pairs = [
                (target, each.value) for target in (each.targets if isinstance(each, ast.Assign) else [each.target])
            ]
            for target, value in pairs:
                split = isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple)
                for one, of in zip(target.elts, value.elts, strict=False) if split else [(target, value)]:
                    if isinstance(one, ast.Name) and of is not None and is_time(of):
                        measured.add(one.id)
    for node in _own(function):
        compared = isinstance(node, ast.Assert) and [
            each for each in ast.walk(node.test) if isinstance(each, ast.Compare)
        ]
        if compared and any(is_time(side) for each in compared for side in (each.left, *each.comparators)):
            yield getattr(node, "lineno", 0)


def _has_its_own_time(path: Path, function: Function) -> bool:
    """Whether a file or a test is for `make measure` alone, or has virtual time, which no machine slows."""
    marks = [
        ast.unparse(node.value)
        for node in tree_of(path).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark"
    ]
    texts = (*marks, *map(ast.unparse, function.decorator_list))
    return any(mark in text for text in texts for mark in ("pytest.mark.measure", "pytest.mark.virtual"))


def _is_timed(function: Function) -> bool:
    return any(_called(each) in CLOCKS | SLEEPS for each in _own(function))


def found() -> dict[str, list[str]]:
    """File → places where a rule is broken, as people read them."""
    places: dict[str, list[str]] = {}
    for path in tracked("tests/*.py"):
        name = name_of(path)
        if name == WAITING or not TIMED.search(path.read_text()):
            continue
        test_of = {
            id(each): test
            for test in functions(tree_of(path))
            if test.name.startswith("test_")
            for each in functions(test)
        }
        for function in filter(_is_timed, functions(tree_of(path))):
            test = test_of.get(id(function))
            if (name, function.name) in PERMITTED or _has_its_own_time(path, test or function):
                continue
            if name.startswith(VIRTUAL) and test is None:
                continue
            for rule, lines in (
                ("a loop that waits", polls(function)),
                ("a timed sleep", sleeps(function, test is not None)),
                ("an assertion of a time", clock_assertions(function)),
            ):
                places.setdefault(name, []).extend(f"{name}:{line} {function.name}: {rule}" for line in lines)
    return {name: each for name, each in places.items() if each}


def test_tests_wait_in_one_way_and_assert_no_times() -> None:
    """No other polling loop, no timed sleep, no bound on a measured time, other than in `LEFT`, which only shrinks."""
    places = found()
    counts = {name: len(each) for name, each in places.items()}
    wrong = {name: places.get(name, []) for name in counts | LEFT if counts.get(name, 0) != LEFT.get(name, 0)}
    assert not wrong, f"LEFT says { ({name: LEFT.get(name, 0) for name in wrong}) }: {wrong}"


def test_what_is_permitted_is_needed() -> None:
    """Each permitted function is there and breaks a rule: else its row goes."""
    needless = set(PERMITTED)
    for path in {ROOT / name for name, _ in PERMITTED}:
        for function in functions(tree_of(path)):
            if any((*polls(function), *sleeps(function, True), *clock_assertions(function))):
                needless.discard((name_of(path), function.name))
    assert not needless, needless


BROKEN = """
async def polls_alone():
    while not done:
        await asyncio.sleep(0.01)

async def polls_under_a_limit():
    async with asyncio.timeout(5):
        while True:
            look()
            await asyncio.sleep(0.1)

def polls_by_a_clock():
    while not look():
        assert time.monotonic() < end_s
        time.sleep(0.1)

def turns():
    for _ in range(20):
        sleep(0.001)

async def sleeps():
    await asyncio.sleep(0.2)

def bounds():
    began = time.monotonic()
    took, other = max(time.monotonic() - began, 0), 3
    assert 1 < took < 5
"""

FINE = """
async def yields():
    await asyncio.sleep(0)
    while not done:
        await asyncio.sleep(0)

async def paces_a_load():
    while not stop.is_set():
        await append()
        await asyncio.sleep(0.01)

def measures():
    began = time.monotonic()
    took_s = time.monotonic() - began
    assert process.wait(10 - took_s) == 0
    print(took_s)
"""


def test_the_rules_find_what_they_are_for() -> None:
    """Each function of the first text breaks one, none of the second."""
    for text, broken in ((BROKEN, True), (FINE, False)):
        for function in functions(ast.parse(text)):
            lines = [*polls(function), *sleeps(function, False), *clock_assertions(function)]
            assert bool(lines) is broken, function.name
