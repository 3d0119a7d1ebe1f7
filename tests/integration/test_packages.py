"""What is published: the source distribution, the wheel out of it, and each extra alone in an environment of its own."""

from __future__ import annotations

import tarfile
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest

from tools import package_sizes
from tools.package_sizes import BASE, TRIES

pytestmark = [pytest.mark.integration, pytest.mark.release, pytest.mark.timeout(1_200)]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The source distribution and the wheel."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RANGELOG_HOME_URL", "https://example.org/rangelog/")
        return package_sizes.build(tmp_path_factory.mktemp("dist"))


def test_the_wheel_names_its_project(built: tuple[Path, Path]) -> None:
    """Author, license, URLs and classifiers; and the packages have their marker of types."""
    sdist, wheel = built
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (path,) = [name for name in names if name.endswith(".dist-info/METADATA")]
        told = message_from_bytes(archive.read(path))
    assert (
        told["Author"]
        and told["License-Expression"] == "Apache-2.0"
        and "Typing :: Typed" in told.get_all("Classifier", [])
    )
    urls = dict(each.split(", ") for each in told.get_all("Project-URL", []))
    assert urls["Homepage"] == "https://example.org/rangelog"
    assert urls["Changelog"] == "https://example.org/rangelog/blob/main/CHANGELOG.md"
    assert "rangelog/py.typed" in names and not any("/tests/" in name or name.startswith("tests/") for name in names)
    with tarfile.open(sdist) as archive:
        assert any(name.endswith("/LICENSE") for name in archive.getnames())


@pytest.mark.parametrize("extra", TRIES)
def test_an_extra_alone(built: tuple[Path, Path], extra: str, tmp_path: Path) -> None:
    """What it is for runs, with what it brings; the base depends on gRPC, its messages, checksums and compression."""
    python = package_sizes.install(built[1], extra, package_sizes.constraints(tmp_path), tmp_path)
    measured = package_sizes.measure(python, extra)
    if extra == BASE:
        assert measured.package_count < 10 and measured.size_bytes < 75_000_000
