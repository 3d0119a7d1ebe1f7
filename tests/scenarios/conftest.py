"""The option `--rewrite`: write into the scenario files what they give now; then read the difference."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """See the module."""
    parser.addoption("--rewrite", action="store_true", help="rewrite the output in the scenario files")


@pytest.fixture
def rewrite(request: pytest.FixtureRequest) -> bool:
    """Whether the files are to be rewritten."""
    return bool(request.config.getoption("--rewrite", default=False))
