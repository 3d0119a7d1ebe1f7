"""What is said of settings that do not fit: one line that names the key which is wrong."""

from __future__ import annotations

import pytest

from rangelog_core.errors import ConfigInvalid
from rangelog_server.settings import RangeServerSettings
from rangelog_server_common.settings import load_settings


def test_a_misspelt_key_is_named_rather_than_the_one_that_it_leaves_missing() -> None:
    """`datadir` leaves `data_dir` missing: the typo is what the reader has to correct."""
    with pytest.raises(ConfigInvalid, match=r"^unknown key 'datadir' in the configuration: correct or remove it"):
        load_settings(RangeServerSettings, {"name": "rs1", "datadir": "/srv/rs1"})


def test_a_missing_key_is_named_with_its_flag_and_variable() -> None:
    """All three places where it may be given."""
    with pytest.raises(
        ConfigInvalid, match="data_dir is missing: give --data-dir, RANGELOG_SERVER_DATA_DIR or the key in"
    ):
        load_settings(RangeServerSettings, {"name": "rs1"})
