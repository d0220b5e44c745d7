"""Large results beside the state: the state keeps a reference, the value is fetched when somebody awaits it.

put    value -> blob store, durable -> record with its name, size and hash -> state
wait   record -> blob store -> size and hash checked -> record with its value
"""

import asyncio
import hashlib
from typing import Final

from msgspec.structs import replace

from taskmq.errors import ResultDamaged, ResultExpired
from taskmq.stores import BlobReference, BlobStore, ResultRecord, ResultStore

__all__ = ["ClaimCheck", "digest"]

# A value is put before its record, which lives as long from a little later on.
_SPARE: Final = 600.0


class ClaimCheck:
    """A `ResultStore` that keeps the values of more than `inline` bytes in `blobs`.

    Fails closed, like the results themselves: what cannot be put is tried again by the worker, and `wait` raises
    what keeps it from the value.
    """

    def __init__(self, inner: ResultStore, blobs: BlobStore, *, inline: int) -> None:
        self._inner = inner
        self._blobs = blobs
        self._inline = inline

    async def put(self, record: ResultRecord, *, ttl: float) -> None:
        value = record.value
        if len(value) > self._inline:
            name = await self._blobs.put(record.job_id, value, ttl=ttl + _SPARE)
            blob = BlobReference(name=name, size=len(value), sha256=await asyncio.to_thread(digest, value))
            record = replace(record, value=b"", blob=blob)
        await self._inner.put(record, ttl=ttl)

    async def get(self, job_id: str) -> ResultRecord | None:
        return await self._redeem(await self._inner.get(job_id))

    async def wait(self, job_id: str, *, timeout: float | None) -> ResultRecord | None:
        return await self._redeem(await self._inner.wait(job_id, timeout=timeout))

    async def has_expired(self, job_id: str) -> bool:
        return await self._inner.has_expired(job_id)

    async def _redeem(self, record: ResultRecord | None) -> ResultRecord | None:
        """The record with its value.

        Raises:
            ResultExpired: the value is gone.
            ResultDamaged: it is another than the one that was put.
            StateUnavailable: the blob store could not be reached.
        """
        if record is None or (blob := record.blob) is None:
            return record
        value = await self._blobs.get(blob.name)
        if value is None:
            raise ResultExpired(record.job_id)
        if len(value) != blob.size or await asyncio.to_thread(digest, value) != blob.sha256:
            raise ResultDamaged(
                f"the result of job {record.job_id} in {self._blobs.address} is not what was stored: "
                f"{len(value):,} bytes instead of {blob.size:,}, or another hash"
            )
        return replace(record, value=value, blob=None)


def digest(value: bytes) -> str:
    """What `BlobReference.sha256` is to be."""
    return hashlib.sha256(value).hexdigest()
