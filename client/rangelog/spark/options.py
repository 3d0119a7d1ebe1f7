"""The options of the data source, checked. A plain value, so that Spark can send it to the workers."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches

from rangelog._topics.cut import Cut
from rangelog.protocol.reading import ReadPreference
from rangelog.spark.where import parse_where
from rangelog_core.errors import ConfigInvalid, InvalidArgument
from rangelog_core.ids import check_name
from rangelog_core.limits import MIB
from rangelog_core.net.tls import TlsConfig
from rangelog_core.net.token_sources import Token, TokenFile
from rangelog_core.record import ms_of
from rangelog_core.topic_names import parse_topic_name
from rangelog_tier.encryption_keys import KeyProvider, key_provider
from rangelog_tier.opening import store_location

RECORDS_PER_PARTITION_DEFAULT = 1_000_000
BYTES_PER_PARTITION_DEFAULT = 64 * MIB
_NUMBER = re.compile(r"[0-9]{1,18}")  # of an offset; those of Spark are signed 64-bit integers
_KNOWN = (
    "pd", "stream", "topic", "start", "end", "token", "tier_url", "payload", "read_preference", "records_per_partition",
    "bytes_per_partition", "where", "pushdown", "tls_ca", "tls_cert", "tls_key", "token_file",
    "encryption_keys_dir", "encryption_kms_key_id",
)  # fmt: skip
TLS_OPTIONS = ("tls_ca", "tls_cert", "tls_key")
OF_STREAMING = ("startingOffsets", "maxRecordsPerTrigger", "maxBytesPerTrigger", "failOnDataLoss", "streamPattern")
"""What only `readStream` knows. At `load()` Spark does not say which of the two it is."""
_OF_TABLE = "option."
"""Spark begins names so that it has from CREATE TABLE."""
_AGO = re.compile(r"-([0-9]{1,9})(ms|s|m|h|d)")
_UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_SIZE = re.compile(r"([0-9]{1,12})([kmgt]?)b?")
_SIZES = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


Position = str | int | Cut | datetime
"""A word, a time; of a stream also an offset, of a topic a cut."""


@dataclass(frozen=True, slots=True)
class Options:
    """The options of one read.

    Attributes:
        pd: Addresses of the placement drivers; default: RANGELOG_PD.
        stream: The stream's name; "" where a topic is read.
        topic: The topic's name, "namespace/name"; "" where a stream is read.
        start: "earliest"; an offset, of a topic a cut as JSON; or a time: the first record (of each shard) at or after it. A
            time is ISO 8601, in UTC unless it names another offset, or "-1h": so long before `load()`, in ms, s, m, h or d.
        end: "latest"; or as `start`.
        token: Of the options token, and token_file: the path of a file that driver and executors can read, again whenever it
            changes. None: what RANGELOG_TOKEN or RANGELOG_TOKEN_FILE name there.
        tier_url: The object store's URL, where Spark reaches it by another URL than the cluster.
        payload: False: only the columns offset and timestamp.
        read_preference: "hot_first", "cold_first", "hot_only" or "cold_only".
        records_per_partition: Records of one input partition at most.
        where: Conditions that all rows fulfil, as `rangelog.spark.where` reads them: what they leave out is not fetched.
        pushdown: True: the filters of a query are taken from Spark as well. Use such a data frame for one query: until
            version 4.3 Spark takes the plan of its first filtered query for the following ones.
        bytes_per_partition: Bytes of one input partition, as stored, by estimate: "64m", in k, m, g or t.
        tls: Of the options tls_ca, tls_cert and tls_key: paths of PEM files that driver and executors can read. None: what
            RANGELOG_TLS_CA, RANGELOG_TLS_CERT and RANGELOG_TLS_KEY name there.
        encryption_keys: Of the option encryption_keys_dir, a directory of keys that the executors can read, or
            encryption_kms_key_id, a key of AWS KMS. None: what RANGELOG_ENCRYPTION_KEYS_DIR or RANGELOG_ENCRYPTION_KMS_KEY_ID
            names there.
    """

    pd: str
    stream: str
    topic: str
    start: Position
    end: Position
    token: Token | None
    tier_url: str | None
    payload: bool
    read_preference: str
    records_per_partition: int
    bytes_per_partition: int = BYTES_PER_PARTITION_DEFAULT
    where: str = ""
    pushdown: bool = False
    tls: TlsConfig | None = None
    encryption_keys: KeyProvider | None = None


def parse_options(given: Mapping[str, str]) -> Options:
    """Return the options of these strings.

    Raises ConfigInvalid, which names the option; InvalidArgument for a bad name; UnsupportedVersion for a cut's text of a later
    version.
    """
    options = by_lower_name(given)
    for name in options:
        if name not in _KNOWN and name != "path":
            raise unknown_option(name, "for format rangelog", _KNOWN, OF_STREAMING)
    pd = options.get("pd") or os.environ.get("RANGELOG_PD", "")
    if not pd:
        raise ConfigInvalid("no placement driver is given: .option('pd', 'host:port,…') or set RANGELOG_PD")
    stream = options.get("stream") or options.get("path", "")
    topic = options.get("topic", "")
    if not stream and not topic:
        raise ConfigInvalid("no stream is given: .option('stream', NAME), or .option('topic', NAME)")
    if stream and topic:
        raise ConfigInvalid(
            f"both a stream and a topic are given: {stream[:100]!r} and {topic[:100]!r}; give one of them"
        )
    now = datetime.now(UTC)
    where = options.get("where", "")
    parse_where(where, of_topic=bool(topic))
    tier_url = options.get("tier_url")
    if tier_url is not None:
        store_location(tier_url)
    preference = options.get("read_preference", "hot_first")
    return Options(
        pd=pd,
        stream=check_name("stream", stream) if stream else "",
        topic=str(parse_topic_name(topic)) if topic else "",
        start=position("start", options.get("start", "earliest"), "earliest", now, of_topic=bool(topic)),
        end=position("end", options.get("end", "latest"), "latest", now, of_topic=bool(topic)),
        token=token_of(options),
        tier_url=tier_url,
        payload=flag("payload", options.get("payload", "true")),
        read_preference=ReadPreference.parse(preference).value,
        records_per_partition=number("records_per_partition", options.get("records_per_partition")),
        where=where,
        pushdown=flag("pushdown", options.get("pushdown", "false")),
        bytes_per_partition=size("bytes_per_partition", options.get("bytes_per_partition")),
        tls=tls_files(options),
        encryption_keys=key_provider(options.get("encryption_keys_dir"), options.get("encryption_kms_key_id")),
    )


def tls_files(options: Mapping[str, str]) -> TlsConfig | None:
    """Return what the options for TLS name, None where there are none. Raises ConfigInvalid where only some are given."""
    return TlsConfig.of_paths(*(options.get(name) for name in TLS_OPTIONS))


def token_of(options: Mapping[str, str]) -> Token | None:
    """Return what the options token and token_file name. Raises ConfigInvalid where both are given."""
    token, path = options.get("token"), options.get("token_file")
    if token and path:
        raise ConfigInvalid("both options token and token_file are given: give one of them")
    return TokenFile(path) if path else token


def unknown_option(name: str, where: str, known: Sequence[str], of_streaming: Sequence[str] = ()) -> ConfigInvalid:
    """Return the error of an option that is not known: the one that it is like, else all there are."""
    by_name = {each.lower(): each for each in (*known, *of_streaming)}
    like = get_close_matches(name, by_name, n=1, cutoff=0.75)
    if like:
        return ConfigInvalid(f"unknown option {name[:100]!r} {where}: did you mean {by_name[like[0]]!r}?")
    more = f"; for spark.readStream also {', '.join(of_streaming)}" if of_streaming else ""
    return ConfigInvalid(f"unknown option {name[:100]!r} {where}: choose from {', '.join(known)}{more}")


def by_lower_name(given: Mapping[str, str]) -> dict[str, str]:
    """Return options by their names in lower case. Raises ConfigInvalid for those of a table that SQL makes."""
    found = {name.lower(): value for name, value in given.items()}
    if any(name.startswith(_OF_TABLE) for name in found):
        raise ConfigInvalid(
            "Spark's catalog does not keep the options of a table of this format: make a view, "
            "CREATE TEMPORARY VIEW NAME USING rangelog OPTIONS (pd '…', stream '…')"
        )
    return found


def position(name: str, text: str, word: str, now: datetime, *, of_topic: bool) -> Position:
    """Return the position that an option names; `word` is the one it may be by name. Raises ConfigInvalid."""
    if text == word:
        return word
    if not of_topic and _NUMBER.fullmatch(text):
        return int(text)
    ago = _AGO.fullmatch(text)
    try:
        if ago is not None:
            moment = now - timedelta(milliseconds=int(ago[1]) * _UNITS[ago[2]])
        elif of_topic and text.startswith("{"):
            return Cut.from_json(text)
        else:
            moment = datetime.fromisoformat(text)
            moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        ms_of(moment)
    except (InvalidArgument, ValueError, OverflowError) as error:
        place, whose = ("a cut as JSON", " of a topic") if of_topic else ("an offset", "")
        raise ConfigInvalid(
            f"option {name}{whose} is {word!r}, {place}, or a time such as 2026-01-31T12:00:00Z or -1h, "
            f"not {text[:100]!r}: {error}"
        ) from error
    return moment


def flag(name: str, text: str) -> bool:
    """Return what "true" and "false" mean. Raises ConfigInvalid."""
    if text.lower() not in ("true", "false"):
        raise ConfigInvalid(f"option {name} is true or false, not {text[:100]!r}")
    return text.lower() == "true"


def size(name: str, text: str | None) -> int:
    """Return a number of bytes. Raises ConfigInvalid."""
    if text is None:
        return BYTES_PER_PARTITION_DEFAULT
    found = _SIZE.fullmatch(text.strip().lower())
    if found is None or not int(found[1]):
        raise ConfigInvalid(f"option {name} is a number of bytes such as 67108864 or 64m, not {text[:100]!r}")
    return int(found[1]) * _SIZES[found[2]]


def number(name: str, text: str | None) -> int:
    """Return a number above 0. Raises ConfigInvalid."""
    if text is None:
        return RECORDS_PER_PARTITION_DEFAULT
    if _NUMBER.fullmatch(text) and int(text) > 0:
        return int(text)
    raise ConfigInvalid(f"option {name} is a number above 0, not {text[:100]!r}")
