"""URLs of buckets: `s3://BUCKET/PREFIX?endpoint=URL&region=NAME&timeout=SECONDS`."""

from datetime import timedelta
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from taskmq.contracts.broker import BrokerOptions
from taskmq.errors import InvalidSetting
from taskmq.model.units import seconds_in
from taskmq_s3.blobs import S3Blobs

_TIMEOUT: Final = 30.0
_LONGEST_TIMEOUT: Final = 3600.0
_OPTIONS: Final = frozenset({"endpoint", "region", "timeout"})


def open_blobs(url: str, options: BrokerOptions) -> S3Blobs:
    """Return the bucket of the URL; it connects on the first put or get.

    Raises:
        InvalidSetting: the URL is malformed, or obstore is not installed.
    """
    parts = urlsplit(url)
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    if "@" in parts.netloc:
        raise InvalidSetting(
            "the URL of a bucket must not contain credentials: set $AWS_ACCESS_KEY_ID and $AWS_SECRET_ACCESS_KEY, or "
            "use the machine's own"
        )
    if not parts.netloc or parts.fragment:
        raise InvalidSetting(f"{url!r} names no bucket: use s3://bucket/results, for example")
    if unknown := sorted(given.keys() - _OPTIONS):
        raise InvalidSetting(f"{url!r}: unknown option {unknown[0]!r}; known: {', '.join(sorted(_OPTIONS))}")
    endpoint = given.get("endpoint", "")
    if endpoint and urlsplit(endpoint).scheme not in {"http", "https"}:
        raise InvalidSetting(f"{url!r}: endpoint={endpoint!r} is not an http:// or https:// URL")
    seconds = seconds_in(given.get("timeout", str(_TIMEOUT)))
    if seconds is None or not 0 < seconds <= _LONGEST_TIMEOUT:
        raise InvalidSetting(
            f"{url!r}: timeout={given['timeout']!r} must be a number of seconds up to 3600, or such as '30s'"
        )
    return S3Blobs(
        parts.netloc,
        parts.path.strip("/"),
        options.clock,
        endpoint=endpoint,
        region=given.get("region", ""),
        timeout=timedelta(seconds=seconds),
    )
