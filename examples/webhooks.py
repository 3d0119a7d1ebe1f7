"""Take webhooks over HTTP and keep each as a record; 204 means that it is on two disks.

The topic is made by the REST interface for administration, which needs no rangelog client; the records go by the client.

python examples/webhooks.py --pd 127.0.0.1:7100 --rest http://127.0.0.1:7160 --port 8080
curl -d '{"event": "paid"}' http://127.0.0.1:8080/shop-7
"""

from __future__ import annotations

import argparse
import json
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import rangelog
import rangelog.sync

NAMESPACE, TOPIC = "hooks", "hooks/received"
BODY_MAX = 1 << 16


def create(rest: str, path: str, **body: object) -> None:
    """Create something over REST; that it is there already is fine."""
    request = urllib.request.Request(
        f"{rest}{path}", json.dumps(body).encode(), {"Content-Type": "application/json"}, method="POST"
    )
    try:
        urllib.request.urlopen(request, timeout=30).close()
    except urllib.error.HTTPError as error:
        if json.load(error)["code"] not in ("NAMESPACE_EXISTS", "TOPIC_EXISTS"):
            raise


def handler(producer: rangelog.sync.TopicProducer) -> type[BaseHTTPRequestHandler]:
    """Return the class that handles requests; the producer is shared by all threads."""

    class Webhook(BaseHTTPRequestHandler):
        """One request."""

        def do_POST(self) -> None:
            """Keep the body under the path as its key."""
            length = int(self.headers.get("Content-Length", "0"))
            if not 0 < length <= BODY_MAX:
                self.send_error(413)
                return
            try:
                producer.send(self.rfile.read(length), key=self.path.encode())
            except rangelog.RangelogError as error:
                self.send_error(503 if error.retriable else 500, error.code)  # the sender sends it again
                return
            self.send_response(204)
            self.end_headers()

    return Webhook


def main(addresses: str, rest: str, port: int) -> None:
    """Serve until Ctrl-C."""
    create(rest, "/v1/namespaces", name=NAMESPACE)
    create(rest, f"/v1/namespaces/{NAMESPACE}/topics", name=TOPIC.partition("/")[2], shards=2)
    with rangelog.sync.connect(addresses) as client, client.producer(TOPIC) as producer:
        server = ThreadingHTTPServer(("127.0.0.1", port), handler(producer))
        print(f"listening at http://127.0.0.1:{server.server_port}", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            server.server_close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pd", default="127.0.0.1:7100")
    parser.add_argument("--rest", default="http://127.0.0.1:7160")
    parser.add_argument("--port", type=int, default=8080)
    given = parser.parse_args()
    main(given.pd, given.rest, given.port)
