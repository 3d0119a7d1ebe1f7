"""An S3 server on loopback, as a process of its own: moto's, which keeps everything in memory.

It serves the S3 protocol over HTTP, conditional writes included, which is all that the tier needs of a store.
"""

from __future__ import annotations

import os
import sys
import urllib.error
import urllib.request
from pathlib import Path

from rangelog_cli.local.lifeline import follow_parent
from rangelog_cli.local.ports import LOOPBACK, free_ports
from rangelog_cli.local.processes import Process, wait_until
from rangelog_core.errors import Unavailable

BUCKET = "rangelog-demo"
REGION = "us-east-1"
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "demo", "AWS_SECRET_ACCESS_KEY": "demo-secret", "AWS_DEFAULT_REGION": REGION}
_HTTP_TIMEOUT_S = 5.0


class S3Server:
    """The child process and its address."""

    def __init__(self, directory: Path) -> None:
        self.port = free_ports(1)[0]
        self.endpoint = f"http://{LOOPBACK}:{self.port}"
        arguments = ["-m", "rangelog_demo.s3_server", str(self.port)]
        self.process = Process("s3", arguments, log_path=directory / "logs" / "s3.log", env=CREDENTIALS)

    @property
    def tier_url(self) -> str:
        """The URL of the cluster's object store."""
        return f"s3://{BUCKET}/tier?endpoint={self.endpoint}&region={REGION}"

    def start(self, timeout_s: float = 30.0) -> None:
        """Start it and make the bucket; raises Unavailable or RequestTimeout."""
        self.process.start()
        wait_until(self._bucket_made, timeout_s, f"the S3 server does not answer: see {self.process.log_path}")

    def _bucket_made(self) -> bool:
        self.process.ready()  # raises when it has died
        request = urllib.request.Request(f"{self.endpoint}/{BUCKET}", method="PUT")  # noqa: S310 - our own http:// address
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=_HTTP_TIMEOUT_S):
                return True
        except urllib.error.HTTPError as error:
            raise Unavailable(f"the S3 server refused to make a bucket: HTTP {error.code}") from None
        except OSError:
            return False


def use_credentials() -> None:
    """Make this process and its children use the demo's S3 server's credentials, whatever the user's own are."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        del os.environ[name]
    os.environ.update(CREDENTIALS)
    os.environ["AWS_EC2_METADATA_DISABLED"] = "true"
    for name in ("NO_PROXY", "no_proxy"):
        os.environ[name] = ",".join(filter(None, [os.environ.get(name, ""), LOOPBACK]))


def main() -> None:
    """Entry point of the child process: serve on loopback until killed."""
    follow_parent()
    import logging

    from moto.server import main as serve

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    serve(["-H", LOOPBACK, "-p", sys.argv[1]])


if __name__ == "__main__":
    main()
