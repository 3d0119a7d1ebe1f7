"""The time-outs of a test are those that its marker asks for, whatever tests ran before it in the same process."""

from __future__ import annotations

import os

import pytest

from rangelog._lag_settings import chosen_lag_limits
from rangelog.protocol.lag_limits import LAG_LIMITS
from tests.support.calm import CALM_WRITERS, set_patience


@pytest.mark.parametrize("earlier_hasty", [True, False])
def test_a_hasty_test_has_the_limits_of_production(monkeypatch: pytest.MonkeyPatch, earlier_hasty: bool) -> None:
    """Spark's tests set patient limits for the rest of their session: not for a hasty test among them."""
    set_patience(monkeypatch, hasty=earlier_hasty)
    before = {name: os.environ.get(name) for name in CALM_WRITERS}
    with pytest.MonkeyPatch.context() as patch:
        set_patience(patch, hasty=True)
        assert chosen_lag_limits(None, None) == LAG_LIMITS
    assert {name: os.environ.get(name) for name in CALM_WRITERS} == before


def test_other_tests_are_patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A replica may hold their writers up for a minute."""
    set_patience(monkeypatch, hasty=True)
    set_patience(monkeypatch, hasty=False)
    assert chosen_lag_limits(None, None).allowed_ms(1.0) == 60_000.0
