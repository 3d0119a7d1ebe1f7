"""Generate the protobuf and gRPC stubs, or with --check compare them with what is committed.

Deterministic for the pinned grpcio-tools, which is the oldest supported one: stubs of an older generator load under a
newer runtime, never the other way round.
"""

from __future__ import annotations

import pathlib
import sys
import tempfile

from grpc_tools import protoc

ROOT = pathlib.Path(__file__).resolve().parent.parent
SOURCE = ROOT / "proto"
PACKAGE = pathlib.PurePath("rangelog_proto/v1")


def generate(target: pathlib.Path) -> None:
    """Write the stubs of every .proto below `target`; exits with protoc's message when one does not compile."""
    protos = sorted(str(path.relative_to(SOURCE)) for path in (SOURCE / PACKAGE).glob("*.proto"))
    arguments = [
        "protoc",
        f"-I{SOURCE}",
        f"--python_out={target}",
        f"--pyi_out={target}",
        f"--grpc_python_out={target}",
    ]
    if protoc.main([*arguments, *protos]) != 0:
        raise SystemExit("generate_stubs: protoc refused a .proto; see above")
    for path in (target / PACKAGE).glob("*_pb2_grpc.py"):
        if path.name.removesuffix("_pb2_grpc.py") not in {
            "broker", "group_service", "members", "pd", "range_server", "table_service", "transaction_service", "topic",
            "watermark_service",
        }:  # fmt: skip
            path.unlink()  # no service in it


def main() -> int:
    """Return 0 when the committed stubs are those that the .proto files make."""
    if "--check" not in sys.argv:
        generate(SOURCE)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        target = pathlib.Path(folder)
        generate(target)
        made = {path.name: path.read_bytes() for path in (target / PACKAGE).glob("*_pb2*.py*")}
    committed = {path.name: path.read_bytes() for path in (SOURCE / PACKAGE).glob("*_pb2*.py*")}
    stale = sorted(name for name in made.keys() | committed.keys() if made.get(name) != committed.get(name))
    for name in stale:
        print(f"generate_stubs: {PACKAGE / name} is not what its .proto makes; run `make proto`")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
