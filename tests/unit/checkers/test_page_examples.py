"""The runner of a page's examples finds what does not run, or prints something else than the page shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.page_examples import PageRunner, page_examples

PAGE = """
```console
rangelog local
```

```python
import asyncio

await asyncio.sleep(0)
print("127.0.0.1:7100")
```

```text
host:1
```

```toml
a = 1
```

```python
print(asyncio.__name__)  # without await: on another thread, with the same names
```
"""


async def run(text: str, directory: Path) -> int:
    """The number of examples of a page that all hold."""
    page = directory / "page.md"
    page.write_text(text)
    return await PageRunner(page, "host:1", directory).run()


async def test_a_page_whose_examples_hold(tmp_path: Path) -> None:
    """Blocks share their names, the address is that of the cluster, and what is no example is passed over."""
    assert [(each.language, each.prints) for each in page_examples(PAGE)] == [("python", "host:1\n"), ("python", None)]
    assert await run(PAGE, tmp_path) == 2


async def test_other_output_is_found(tmp_path: Path) -> None:
    """The message names the page and the line of the block."""
    with pytest.raises(AssertionError, match=r"page\.md, line 7 prints host:1"):
        await run(PAGE.replace("host:1", "host:2"), tmp_path)


@pytest.mark.parametrize("code", ["await nothing", "nothing", "import nothing_of_this_name"])
async def test_a_block_that_fails_is_found(tmp_path: Path, code: str) -> None:
    """With or without await."""
    with pytest.raises((NameError, ImportError)):
        await run(f"```python\n{code}\n```\n", tmp_path)


async def test_a_command_that_fails_is_found(tmp_path: Path) -> None:
    """By its exit code; the message has what it wrote to stderr."""
    with pytest.raises(AssertionError, match="No such command"):
        await run("```console\npdctl nothing\n```\n", tmp_path)
    assert await run("```console\nrangelog local\npdctl --help\n```\n", tmp_path) == 1


def test_a_text_block_stands_behind_an_example() -> None:
    """Otherwise nobody could say what prints it."""
    with pytest.raises(AssertionError, match="follows no example"):
        page_examples("```python\npass\n```\n\nProse.\n\n```text\na\n```\n")
