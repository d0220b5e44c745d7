"""Large results beside the state: the state keeps a reference, the value is fetched when somebody awaits it.

put    value -> blob store, durable -> record with its name, size and hash -> state
wait   record -> blob store -> size and hash checked -> record with its value

The result of a job with an idempotency key stands in the key's claim as well: both refer to one value, as long as
the claim is kept for the longer time.
"""

import asyncio
import hashlib
from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec.structs import replace

from taskmq.contracts.stores import (
    BlobReference,
    BlobStore,
    Claimed,
    ClaimStore,
    Done,
    Granted,
    Held,
    ResultRecord,
    ResultStore,
)
from taskmq.errors import ResultDamaged, ResultExpired
from taskmq.model.clock import Clock

__all__ = ["REFERENCE", "LargeClaims", "LargeResults", "LargeValues", "digest"]

# A value is put before its record, which lives as long from a little later on.
_SPARE: Final = 600.0
# Of these it is known that they are kept: of runs that end at the same time, a claim is told first, then a result.
_KNOWN: Final = 1000
REFERENCE: Final = "taskmq/reference"
"""The content type of what stands in a claim in place of a large value."""


class LargeValues:
    """The values of more than `inline` bytes, in `blobs`. One for all that refer to them from one event loop."""

    def __init__(self, blobs: BlobStore, clock: Clock, *, inline: int) -> None:
        self._blobs = blobs
        self._clock = clock
        self._inline = inline
        self._known: dict[tuple[str, str], tuple[BlobReference, float]] = {}

    def is_large(self, value: bytes) -> bool:
        return len(value) > self._inline

    async def keep(self, job_id: str, value: bytes, *, ttl: float) -> BlobReference:
        """Keep a job's value for at least `ttl` seconds; durable when this returns.

        Raises:
            StateUnavailable: the blob store could not be reached, or is full.
        """
        sha256 = await asyncio.to_thread(digest, value)
        until = self._clock.now_ms() / 1000 + ttl
        known = self._known.pop((job_id, sha256), None)
        if known is not None and known[1] >= until:
            return known[0]
        name = await self._blobs.put(job_id, value, ttl=ttl + _SPARE)
        blob = BlobReference(name=name, size=len(value), sha256=sha256)
        while len(self._known) >= _KNOWN:
            del self._known[next(iter(self._known))]
        self._known[job_id, sha256] = (blob, until + _SPARE)
        return blob

    async def fetch(self, job_id: str, blob: BlobReference) -> bytes:
        """A job's value.

        Raises:
            ResultExpired: it is gone.
            ResultDamaged: it is another than the one that was put.
            StateUnavailable: the blob store could not be reached.
        """
        value = await self._blobs.get(blob.name)
        if value is None:
            raise ResultExpired(job_id)
        if len(value) != blob.size or await asyncio.to_thread(digest, value) != blob.sha256:
            raise ResultDamaged(
                f"the result of job {job_id} in {self._blobs.address} is not what was stored: "
                f"{len(value):,} bytes instead of {blob.size:,}, or another hash"
            )
        return value


class LargeResults:
    """A `ResultStore` that keeps large values elsewhere.

    Fails closed, like the results themselves: what cannot be put is tried again by the worker, and `wait` raises
    what keeps it from the value, as `LargeValues.fetch` does.
    """

    def __init__(self, inner: ResultStore, values: LargeValues) -> None:
        self._inner = inner
        self._values = values

    async def put(self, record: ResultRecord, *, ttl: float) -> None:
        if self._values.is_large(record.value):
            blob = await self._values.keep(record.job_id, record.value, ttl=ttl)
            record = replace(record, value=b"", blob=blob)
        await self._inner.put(record, ttl=ttl)

    async def get(self, job_id: str) -> ResultRecord | None:
        return await self._redeem(await self._inner.get(job_id))

    async def wait(self, job_id: str, *, timeout: float | None) -> ResultRecord | None:
        return await self._redeem(await self._inner.wait(job_id, timeout=timeout))

    async def has_expired(self, job_id: str) -> bool:
        return await self._inner.has_expired(job_id)

    async def _redeem(self, record: ResultRecord | None) -> ResultRecord | None:
        if record is None or (blob := record.blob) is None:
            return record
        return replace(record, value=await self._values.fetch(record.job_id, blob), blob=None)


class _Reference(msgspec.Struct, frozen=True):
    """What stands in a claim in place of a large value."""

    content_type: str
    blob: BlobReference


class LargeClaims:
    """A `ClaimStore` that keeps large values elsewhere, as long as the claims that refer to them.

    `claim` and `find` raise as `LargeValues.fetch` does as well; the key is done all the same.
    """

    def __init__(self, inner: ClaimStore, values: LargeValues) -> None:
        self._inner = inner
        self._values = values

    async def claim(
        self, key: str, *, job_id: str, owner: str, lease: float, ttl: float, over: int | None = None
    ) -> Claimed:
        claimed = await self._inner.claim(key, job_id=job_id, owner=owner, lease=lease, ttl=ttl, over=over)
        return claimed if isinstance(claimed, Granted | Held) else await self._redeem(claimed)

    async def find(self, key: str) -> Held | Done | None:
        found = await self._inner.find(key)
        return await self._redeem(found) if isinstance(found, Done) else found

    async def renew(self, claims: Mapping[str, int], *, lease: float) -> frozenset[str]:
        return await self._inner.renew(claims, lease=lease)

    async def complete(
        self, key: str, *, token: int, job_id: str, content_type: str, value: bytes, ttl: float
    ) -> bool:
        if self._values.is_large(value):
            blob = await self._values.keep(job_id, value, ttl=ttl)
            value, content_type = msgspec.msgpack.encode(_Reference(content_type, blob)), REFERENCE
        return await self._inner.complete(
            key, token=token, job_id=job_id, content_type=content_type, value=value, ttl=ttl
        )

    async def release(self, key: str, *, token: int) -> bool:
        return await self._inner.release(key, token=token)

    async def _redeem(self, done: Done) -> Done:
        if done.content_type != REFERENCE:
            return done
        try:
            reference = msgspec.msgpack.decode(done.value, type=_Reference)
        except msgspec.MsgspecError as error:
            raise ResultDamaged(f"the claim of job {done.job_id} refers to no result: {error}") from error
        value = await self._values.fetch(done.job_id, reference.blob)
        return Done(job_id=done.job_id, content_type=reference.content_type, value=value)


def digest(value: bytes) -> str:
    """What `BlobReference.sha256` is to be."""
    return hashlib.sha256(value).hexdigest()
