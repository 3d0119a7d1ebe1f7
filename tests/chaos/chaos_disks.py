"""A small file system for each range server, so that one disk can be full while the others are not.

A sparse ext4 image on a loop device where the machine allows it, else tmpfs, else a plain directory (then no disk can be
filled). Everything is unmounted in `close`, whatever happened.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

SIZE_BYTES = 384 * 1024 * 1024
_BALLAST = "ballast"
_TIMEOUT_S = 60.0


class Disks:
    """Data directories by name of their server. `can_fill`: whether each is a file system of its own."""

    def __init__(self, directory: Path, homes: dict[str, Path], *, wanted: bool) -> None:
        self._directory = directory
        self._homes = homes
        self._mounted: list[Path] = []
        self.kind = "directory"
        try:
            for name, home in homes.items():
                home.mkdir(mode=0o700, parents=True, exist_ok=True)
                if wanted:
                    self._mount(name, home)
        except OSError:
            self.close()
            self.kind = "directory"

    @property
    def can_fill(self) -> bool:
        """See the class."""
        return len(self._mounted) == len(self._homes)

    def fill(self, name: str) -> int:
        """Take all room that is left on a server's disk; returns the bytes taken."""
        path, taken = self._homes[name] / _BALLAST, 0
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            step = SIZE_BYTES
            while step >= 4096:
                try:
                    os.posix_fallocate(descriptor, taken, step)
                    taken += step
                except OSError:
                    step //= 2
        finally:
            os.close(descriptor)
        return taken

    def relieve(self, name: str) -> None:
        """Give the room back."""
        (self._homes[name] / _BALLAST).unlink(missing_ok=True)

    def wipe(self, name: str) -> None:
        """Lose everything on a server's disk. The server must not run."""
        for entry in self._homes[name].iterdir():
            if entry.is_dir():
                shutil.rmtree(entry)
            else:
                entry.unlink()

    def copy_aside(self, name: str) -> Path:
        """Copy what is on a server's disk now. The server must not run."""
        target = self._directory / f"{name}.aside"
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(self._homes[name], target, ignore=shutil.ignore_patterns("lost+found"))
        return target

    def drop_set_aside(self, name: str) -> None:
        """Remove what a server set aside when it came back with an old disk, as an operator would."""
        for entry in self._homes[name].glob("set-aside-*"):
            shutil.rmtree(entry)

    def roll_back(self, name: str, aside: Path) -> None:
        """Put an earlier copy in place of what is there. The server must not run."""
        self.wipe(name)
        shutil.copytree(aside, self._homes[name], dirs_exist_ok=True)

    def keep(self, target: Path) -> None:
        """Copy all data directories to where they survive `close`."""
        for name, home in self._homes.items():
            if home in self._mounted:
                with suppress(OSError, shutil.Error):
                    shutil.copytree(home, target / name, ignore=shutil.ignore_patterns("lost+found", _BALLAST))

    def close(self) -> None:
        """Unmount. Idempotent."""
        for home in self._mounted:
            _run("umount", str(home), check=False)
        self._mounted.clear()
        for image in self._directory.glob("*.img"):
            image.unlink(missing_ok=True)

    def _mount(self, name: str, home: Path) -> None:
        if os.geteuid() != 0:
            raise PermissionError("only root mounts")
        image = self._directory / f"{name}.img"
        try:
            with image.open("wb") as file:
                file.truncate(SIZE_BYTES)
            _run("mkfs.ext4", "-q", "-F", "-m", "0", "-E", "lazy_itable_init=1,lazy_journal_init=1", str(image))
            _run("mount", "-o", "loop", str(image), str(home))
            self.kind = "ext4 on a loop device"
        except OSError:
            image.unlink(missing_ok=True)
            _run("mount", "-t", "tmpfs", "-o", f"size={SIZE_BYTES}", "tmpfs", str(home))
            self.kind = "tmpfs"
        self._mounted.append(home)
        home.chmod(0o700)
        with suppress(OSError):
            (home / "lost+found").rmdir()


def _run(*command: str, check: bool = True) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    if done.returncode and check:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")
