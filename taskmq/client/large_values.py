"""Large values, stored outside the state and broker, which hold references; values are loaded when used.

put    value -> blob store, durable -> record with its name, size and hash -> state
wait   record -> blob store -> size and hash checked -> record with its value
send   arguments -> blob store, durable -> message with their name, size and hash -> broker

Reports of stored jobs, the jobs themselves and the steps of runs also refer to their values.

The result of a job with an idempotency key is also in the key's claim. Both refer to one value, which is kept for the
longer of the two times.
"""

import asyncio
import hashlib
import sys
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
from taskmq.errors import InvalidArguments, ResultDamaged, ResultExpired, StateUnavailable
from taskmq.model.clock import Clock
from taskmq.model.envelope import Envelope
from taskmq.model.large_arguments import arguments_in, fill_arguments, put_back, refer
from taskmq.model.values.light_values import REFERENCE, ResultReference

# A value is stored shortly before its record, whose time to live starts later.
_SPARE: Final = 600.0
# The number of stored values to remember: a run's claim stores a value first, then its result does.
_KNOWN: Final = 1000


class LargeValues:
    """Stores values of more than `inline` bytes in `blobs`. Shared by all parts of one event loop."""

    def __init__(self, blobs: BlobStore, clock: Clock, *, inline: int) -> None:
        self._blobs = blobs
        self._clock = clock
        self._inline = inline
        self._known: dict[tuple[str, str], tuple[BlobReference, float]] = {}

    def is_large(self, value: bytes) -> bool:
        return len(value) > self._inline

    async def keep(self, job_id: str, value: bytes, *, ttl: float) -> BlobReference:
        """Store a job's value for at least `ttl` seconds; it is durable when this returns.

        Raises:
            StateUnavailable: the blob store is unreachable or full.
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
        """Return a job's value, checked against its size and hash.

        Raises:
            ResultExpired: the value no longer exists.
            ResultDamaged: the value differs from the stored one.
            StateUnavailable: the blob store is unreachable.
        """
        value = await self._blobs.get(blob.name)
        if value is None:
            raise ResultExpired(job_id)
        if len(value) != blob.size or await asyncio.to_thread(digest, value) != blob.sha256:
            raise ResultDamaged(
                f"the result of job {job_id} in {self._blobs.address} is damaged: "
                f"{len(value):,} bytes instead of {blob.size:,}, or another hash"
            )
        return value


class LargeResults:
    """A `ResultStore` that stores large values elsewhere.

    Fails closed, like the results themselves: the worker retries a failed `put`, and `wait` raises the errors of
    `LargeValues.fetch`.
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


class LargeClaims:
    """A `ClaimStore` that stores large values elsewhere, for as long as the claims that refer to them.

    `claim` and `find` also raise the errors of `LargeValues.fetch`; the key stays done.
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
            value, content_type = msgspec.msgpack.encode(ResultReference(content_type, blob)), REFERENCE
        return await self._inner.complete(
            key, token=token, job_id=job_id, content_type=content_type, value=value, ttl=ttl
        )

    async def release(self, key: str, *, token: int) -> bool:
        return await self._inner.release(key, token=token)

    async def _redeem(self, done: Done) -> Done:
        if done.content_type != REFERENCE:
            return done
        try:
            reference = msgspec.msgpack.decode(done.value, type=ResultReference)
        except msgspec.MsgspecError as error:
            raise ResultDamaged(f"the claim of job {done.job_id} refers to no result: {error}") from error
        value = await self._values.fetch(done.job_id, reference.blob)
        return Done(job_id=done.job_id, content_type=reference.content_type, value=value)


class LargeArguments:
    """Stores arguments of more than `inline` bytes in `blobs`; messages refer to them.

    Args:
        inline: the maximum size of encoded arguments in the message, in bytes; None for no limit.
        ttl: how long arguments are kept after the job is due, in seconds.
    """

    def __init__(self, blobs: BlobStore, clock: Clock, *, inline: int | None, ttl: float) -> None:
        self._address = blobs.address
        self._clock = clock
        self._inline = sys.maxsize if inline is None else inline
        self._values = LargeValues(blobs, clock, inline=self._inline)
        self._ttl = ttl

    def may_be_large(self, body: bytes) -> bool:
        """Whether a body may contain large arguments."""
        return len(body) > self._inline

    async def lighten(self, body: bytes, content_type: str | None, *, job_id: str, due: int | None) -> bytes:
        """Return the body, or one that refers to its arguments, which are durable when this returns.

        Args:
            due: when the job is due, in ms since the epoch; None for now.

        Raises:
            StateUnavailable: the blob store is unreachable or full.
        """
        if not self.may_be_large(body):
            return body
        arguments = arguments_in(body, content_type)
        if not self._values.is_large(arguments):
            return body
        waits = 0.0 if due is None else max(due - self._clock.now_ms(), 0) / 1000
        try:
            blob = await self._values.keep(job_id or "job", arguments, ttl=waits + self._ttl)
        except StateUnavailable as error:
            text = f"the arguments of job {job_id} are too large for its message (args_inline), and {error}"
            raise StateUnavailable(text) from error
        return refer(body, content_type, blob)

    async def load(self, envelope: Envelope, content_type: str | None) -> Envelope:
        """Return the envelope with the arguments, and the parts of them, that it refers to.

        Raises:
            InvalidArguments: they no longer exist, or differ from the sent ones.
            StateUnavailable: the blob store is unreachable.
        """
        if (blob := envelope.blob) is not None:
            arguments = await self._fetch(envelope.id, blob, "kept for args_ttl from when the job was due")
            envelope = put_back(envelope, arguments, content_type)
        if envelope.parts:
            kept = "values of steps, kept for 31 days from the end of their jobs"
            envelope = fill_arguments(
                envelope, [await self._fetch(envelope.id, part.blob, kept) for part in envelope.parts]
            )
        return envelope

    async def _fetch(self, job_id: str, blob: BlobReference, lifetime: str) -> bytes:
        try:
            return await self._values.fetch(job_id, blob)
        except ResultExpired:
            raise InvalidArguments(
                f"the arguments of job {job_id} are no longer in {self._address}: {blob.name}; they are {lifetime}"
            ) from None
        except ResultDamaged:
            raise InvalidArguments(
                f"the arguments of job {job_id} in {self._address} differ from the sent ones: {blob.name}"
            ) from None


def digest(value: bytes) -> str:
    """Return the hash of a value, as in `BlobReference.sha256`."""
    return hashlib.sha256(value).hexdigest()
