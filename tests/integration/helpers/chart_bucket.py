"""An S3 server in a namespace of its own, over TLS, with one bucket; and what is in it. Run as a program there.

Prints `serving` once it listens. The tests beside it ask it over the bridge, as the pods do.
"""

from __future__ import annotations

import ssl
import sys

from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server


def main(address: str, port: str, cert: str, key: str) -> None:
    """Serve until killed."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(cert, key)
    application = DomainDispatcherApplication(create_backend_app)
    server = make_server(address, int(port), application, threaded=True, ssl_context=context)  # type: ignore[arg-type]
    print("serving", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
