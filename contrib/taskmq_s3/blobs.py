"""Large results as objects of a bucket."""

import asyncio
import hashlib
import logging
import re
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from taskmq.errors import InvalidSetting, StateUnavailable
from taskmq.model.clock import Clock
from taskmq.model.units import to_datetime

if TYPE_CHECKING:
    from obstore.store import ClientConfig, S3Config, S3Store

_log = logging.getLogger("taskmq")

_HOUR: Final = "%Y%m%d%H"
_NAME: Final = re.compile(r"\d{10}/[0-9a-f]{32}-[0-9a-f]{32}")
_DIRECTORY: Final = re.compile(r"\d{10}")
_BETWEEN_SWEEPS: Final = 600_000
_REPEATS: Final = 2


class S3Blobs:
    """A `BlobStore` in a bucket.

    Args:
        prefix: of all names; may be empty.
        endpoint: of the server; "": Amazon's.
        region: "": the environment's, or Amazon's default.
        timeout: of each request.

    Raises:
        InvalidSetting: obstore is not installed.
    """

    def __init__(
        self, bucket: str, prefix: str, clock: Clock, *, endpoint: str, region: str, timeout: timedelta
    ) -> None:
        self.address = f"s3://{bucket}/{prefix}"
        self._clock = clock
        self._store = _open(bucket, prefix, endpoint=endpoint, region=region, timeout=timeout)
        self._swept = 0
        self._sweeping: asyncio.Task[None] | None = None

    async def put(self, label: str, data: bytes, *, ttl: float) -> str:
        now = self._clock.now_ms()
        name = f"{_hour(now + round(ttl * 1000))}/{_hash(label.encode(errors='surrogatepass'))}-{_hash(data)}"
        try:
            await self._store.put_async(name, data)
        except Exception as error:
            # The client's errors, and the built-in ones that it raises.
            raise StateUnavailable(
                f"a result of {len(data):,} bytes cannot be stored at {self.address}: {_first_line(error)}"
            ) from error
        if now - self._swept >= _BETWEEN_SWEEPS and self._sweeping is None:
            self._swept = now
            self._sweeping = asyncio.create_task(self._sweep(_hour(now)), name="taskmq sweeps large results")
        return name

    async def get(self, name: str) -> bytes | None:
        # A name from the state is not trusted as a path.
        if not _NAME.fullmatch(name):
            return None
        try:
            found = await self._store.get_async(name)
            return bytes(await found.bytes_async())
        except FileNotFoundError:
            return None
        except Exception as error:
            raise StateUnavailable(f"a result at {self.address} cannot be read: {_first_line(error)}") from error

    async def aclose(self) -> None:
        sweeping, self._sweeping = self._sweeping, None
        if sweeping is not None:
            sweeping.cancel()
            await asyncio.wait((sweeping,))

    async def _sweep(self, hour: str) -> None:
        """Delete expired objects; several processes may do so at once."""
        try:
            found = await self._store.list_with_delimiter_async()  # pyright: ignore[reportUnknownMemberType]
            for entry in found["common_prefixes"]:
                directory = entry.rpartition("/")[2]
                if _DIRECTORY.fullmatch(directory) and directory < hour:
                    objects = self._store.list(f"{directory}/")  # pyright: ignore[reportUnknownMemberType]
                    async for chunk in objects:
                        await self._store.delete_async([one["path"] for one in chunk])
        except Exception as error:  # noqa: BLE001 - as above; the next sweep retries
            _log.warning("deleting expired results at %s failed, will retry: %s", self.address, _first_line(error))
        finally:
            self._sweeping = None


def _open(bucket: str, prefix: str, *, endpoint: str, region: str, timeout: timedelta) -> "S3Store":
    try:
        from obstore.store import S3Store
    except ImportError as error:
        raise InvalidSetting("results_at='s3://...' needs obstore: pip install 'taskmq[s3]'") from error
    client: ClientConfig = {"timeout": timeout, "allow_http": endpoint.startswith("http://")}
    config: S3Config = {}
    if endpoint:
        config["endpoint"] = endpoint
    if region:
        config["region"] = region
    return S3Store(
        bucket,
        config=config,
        prefix=prefix or None,
        client_options=client,
        retry_config={"max_retries": _REPEATS, "retry_timeout": timeout},
    )


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).partition("\n")[0][:300]


def _hour(instant: int) -> str:
    # Instants up to the end of 9999, as in envelopes.
    return to_datetime(instant).strftime(_HOUR).rjust(10, "0")


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:32]
