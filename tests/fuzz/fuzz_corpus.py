"""The saved corpus: one file per target, an input a line in hex. Small, so that it is read and replayed each time.

What is there reached something that the seeds do not, or was once a crash. `# ` starts a remark.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

FOLDER = Path(__file__).resolve().parent / "corpus"
TARGET_BYTES_MAX = 24 * 1024
"""Of inputs, per target."""
INPUT_BYTES_MAX = 6 * 1024


def load(target: str) -> list[bytes]:
    """The saved inputs of a target."""
    path = FOLDER / f"{target}.hex"
    if not path.exists():
        return []
    lines = (line.strip() for line in path.read_text().split("\n"))
    return [bytes.fromhex(line) for line in lines if line and not line.startswith("#")]


def save(target: str, inputs: Iterable[bytes]) -> int:
    """Keep inputs, smallest first, within the bounds; return how many are saved now."""
    FOLDER.mkdir(exist_ok=True)
    chosen: dict[bytes, None] = {}
    size = 0
    for data in sorted(dict.fromkeys(inputs), key=lambda each: (len(each), each)):
        if not data or len(data) > INPUT_BYTES_MAX or size + len(data) > TARGET_BYTES_MAX:
            continue
        chosen[data] = None
        size += len(data)
    if chosen:
        (FOLDER / f"{target}.hex").write_text("".join(f"{each.hex()}\n" for each in chosen))
    return len(chosen)


def size_bytes() -> int:
    """Of the whole corpus, as files."""
    return sum(path.stat().st_size for path in FOLDER.glob("*.hex"))
