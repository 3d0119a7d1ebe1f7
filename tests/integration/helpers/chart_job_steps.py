"""What a person and a program do to the release with tokens and keys. Run in a namespace of the test: STEP arguments.

Each prints one line of JSON. `bucket URL`: makes it. `objects URL`: how each Parquet file in it begins. `page HOST PORT`:
what a browser with a certificate is shown. `write ADDRESSES`: appends and reads with a token.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import ssl
import sys
from typing import Any

BUCKET = "rangelog"


def _s3(url: str) -> Any:
    import boto3
    from botocore.config import Config

    style = Config(s3={"addressing_style": "path"})
    return boto3.client("s3", endpoint_url=url, region_name="us-east-1", config=style)


def bucket(url: str) -> object:
    """Make the bucket."""
    _s3(url).create_bucket(Bucket=BUCKET)
    return {}


def objects(url: str) -> object:
    """The key of each object, and how a Parquet file begins: PAR1 in clear, PARE encrypted."""
    store = _s3(url)
    keys = [each["Key"] for each in store.list_objects_v2(Bucket=BUCKET).get("Contents", [])]
    parquet = [key for key in keys if key.endswith(".parquet")]
    heads = {key: store.get_object(Bucket=BUCKET, Key=key)["Body"].read(4).decode() for key in parquet}
    return {"heads": heads, "keys": keys}


def page(host: str, port: str) -> object:
    """Ask for the page as a browser does: the host's name is checked."""
    context = ssl.create_default_context(cafile=os.environ["RANGELOG_TLS_CA"])
    context.load_cert_chain(os.environ["RANGELOG_TLS_CERT"], os.environ["RANGELOG_TLS_KEY"])
    connection = http.client.HTTPSConnection(host, int(port), timeout=20, context=context)
    connection.request("GET", "/")
    response = connection.getresponse()
    return {"status": response.status, "text": response.read().decode()[:20_000]}


async def _write(addresses: str) -> object:
    import rangelog

    tls = rangelog.TlsConfig(os.environ["RANGELOG_TLS_CA"])
    token = rangelog.TokenFile(os.environ["TOKEN_FILE"])
    async with await rangelog.connect(addresses, tls=tls, token=token) as client:
        await client.create_stream("kept")
        async with client.writer("kept") as writer:
            for number in range(100):
                await writer.append(b"%d" % number)
        found = [record.value async for record in client.reader("kept", start="earliest", follow=False)]
    return {"read": len(found)}


def write(addresses: str) -> object:
    """Append and read with a token alone, no certificate."""
    return asyncio.run(_write(addresses))


if __name__ == "__main__":
    step, *arguments = sys.argv[1:]
    print(json.dumps({"bucket": bucket, "objects": objects, "page": page, "write": write}[step](*arguments)))
