"""The hooks of builds: one compiles `rangelog_core._record_codec` when it is asked to, one fills in the project's URLs.

What holds: without RANGELOG_COMPILE=1 in the environment nothing is compiled, and the build needs neither Cython nor a C
compiler. Without RANGELOG_HOME_URL the package names no URL: a link that nobody serves would mislead.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

_SOURCE = Path("core/rangelog_core/_record_codec.pyx")
_COMPILE_TIMEOUT_S = 600
_URL_PATHS = {
    "Documentation": "blob/main/docs/ARCHITECTURE.md",
    "Changelog": "blob/main/CHANGELOG.md",
    "Issues": "issues",
}


class CustomBuildHook(BuildHookInterface):  # type: ignore[type-arg, misc]
    """Compile the optional module beside its source, and put it into the wheel."""

    def dependencies(self) -> list[str]:
        """Return what the build needs beyond hatchling."""
        return ["cython>=3.1,<4", "setuptools"] if _is_asked() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile before the files of the wheel are collected."""
        if not _is_asked() or self.target_name != "wheel":
            return
        built = compile_module(Path(self.root))
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        if version != "editable":
            build_data["force_include"][str(built)] = f"rangelog_core/{built.name}"

    def clean(self, versions: list[str]) -> None:
        """Remove what was compiled."""
        for built in (Path(self.root) / _SOURCE.parent).glob(f"{_SOURCE.stem}.*"):
            if built.suffix in (".so", ".pyd"):
                built.unlink()


class CustomMetadataHook(MetadataHookInterface):  # type: ignore[misc]
    """Name where the project lives, for an index and for `pip show`."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Fill in the URLs, which are all below the one of the repository."""
        metadata["urls"] = project_urls(os.environ.get("RANGELOG_HOME_URL", ""))


def project_urls(home: str) -> dict[str, str]:
    """Return the URLs by label. Raises ValueError for a home that is no https URL."""
    if not home:
        return {}
    if not home.startswith("https://"):
        raise ValueError(f"RANGELOG_HOME_URL is the repository's https URL, not {home!r}")
    home = home.rstrip("/")
    below = {label: f"{home}/{path}" for label, path in _URL_PATHS.items()}
    return {"Homepage": home, "Source": home, **below}


def _is_asked() -> bool:
    return os.environ.get("RANGELOG_COMPILE") == "1"


def compile_module(root: Path) -> Path:
    """Compile the module beside its source, and return its path. Raises CalledProcessError when a tool fails."""
    with tempfile.TemporaryDirectory() as directory:
        source = Path(directory) / _SOURCE.with_suffix(".c").name
        commands = (
            [sys.executable, "-m", "cython", "-3", str(root / _SOURCE), "-o", str(source)],
            [sys.executable, "-c", _BUILD, source.name],
        )
        for command in commands:
            subprocess.run(command, cwd=directory, check=True, timeout=_COMPILE_TIMEOUT_S)
        (built,) = (each for each in Path(directory).glob(f"{_SOURCE.stem}.*") if each.suffix in (".so", ".pyd"))
        target = (root / _SOURCE).with_name(built.name)
        fresh = target.with_suffix(".new")
        shutil.copyfile(built, fresh)
        fresh.replace(target)  # a process that has loaded the former one keeps it
    return target


_BUILD = f"""
import sys
from setuptools import Extension, setup
extension = Extension("{_SOURCE.stem}", [sys.argv.pop()])
setup(name="rangelog-record-codec", py_modules=[], ext_modules=[extension], script_args=["--quiet", "build_ext", "--inplace"])
"""
