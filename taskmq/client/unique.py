"""Sending of unique jobs, of which only one per key exists.

    claim for a short time -> publish, wait for the confirm -> claim until the job starts or ends

If the producer dies in between, the key stays claimed only for that short time. A failed publish releases it; after
`PublishUnknown` it stays claimed for the short time, too. Sending again under the same job id is always possible. The
worker that runs the job reports its start or end (`taskmq.worker.guards.uniqueness`).
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final

import msgspec

from taskmq.contracts.stores import ClaimStore, Done, Granted, WaitingMessage
from taskmq.errors import BrokerUnavailable, DuplicateJob, PartlySent, PublishUnknown, SendError, StateUnavailable
from taskmq.middleware.chain import Sending
from taskmq.model.envelope import decode_envelope
from taskmq.model.keys import replaced_key
from taskmq.options.uniqueness import UNIQUE_META, UniqueCall

_log = logging.getLogger("taskmq")

WAITING: Final = "waiting"
RUNNING: Final = "running"
"""The owner's name in a unique job's claim."""

REMEMBERED: Final = 3600.0
"""Seconds for which the last token of a released key is remembered."""

_TRIES: Final = 10
_CHUNK: Final = 500
# How late a job may be and still learn that it was replaced, in seconds.
_LATE: Final = 86_400.0


async def send_unique(
    sending: Sending,
    call: UniqueCall,
    claims: ClaimStore,
    *,
    patience: float,
    publish: Callable[[Sending], Awaitable[None]],
    cancel: Callable[[str, str], Awaitable[object]] | None = None,
) -> None:
    """Send a job whose key is free; otherwise apply its policy.

    If the policy returns the existing job, `sending.envelope` has its id afterwards.

    Args:
        patience: the time limit of a publish, in seconds.
        cancel: cancels a replaced delayed job, by id and reason; without it the worker does.

    Raises:
        DuplicateJob: the key is claimed.
        SendError: the job was not sent or not confirmed.
    """
    try:
        claimed = await _claim(sending, call, claims, lease=patience + 5)
    except StateUnavailable as error:
        raise BrokerUnavailable(f"a unique job needs the state to check its key: {error}") from error
    if isinstance(claimed, str):
        sending.envelope = msgspec.structs.replace(sending.envelope, id=claimed)
        return
    token, replaced = claimed
    meta = {**(sending.envelope.meta or {}), UNIQUE_META: f"{token} {call.name}"}
    sending.envelope = msgspec.structs.replace(sending.envelope, meta=meta)
    try:
        await publish(sending)
    except PublishUnknown:
        raise
    except SendError:
        await _log_outage(claims.release(call.name, token=token), call.name)
        raise
    await _log_outage(claims.renew({call.name: token}, lease=call.rule.ttl), call.name)
    if replaced is not None:
        # Only now, because the replaced job must run if this one was not sent.
        await _log_outage(_record_replaced(claims, replaced, by=sending.envelope.id, ttl=call.rule.ttl), call.name)
        if cancel is not None:
            await _log_outage(cancel(replaced, f"replaced by job {sending.envelope.id}"), call.name)


async def _claim(
    sending: Sending, call: UniqueCall, claims: ClaimStore, *, lease: float
) -> tuple[int, str | None] | str:
    """Return the token and the id of the replaced job; or the id of the existing job, if the policy returns it."""
    job_id, over, replaced, held = sending.envelope.id, None, None, ""
    for _ in range(_TRIES):
        answer = await claims.claim(call.name, job_id=job_id, owner=WAITING, lease=lease, ttl=REMEMBERED, over=over)
        if isinstance(answer, Granted):
            return answer.token, replaced
        held = answer.job_id
        if isinstance(answer, Done):
            break
        if held == job_id:
            # The same job is sent again, after an unknown outcome.
            over, replaced = answer.token, None
        elif call.rule.replaces and answer.owner != RUNNING:
            over, replaced = answer.token, held
        elif call.rule.policy in ("existing", "throttle"):
            return held
        else:
            break
    raise DuplicateJob(sending.envelope.task, job_id=held)


async def send_all(send: Callable[[Sending], Awaitable[None]], sendings: Sequence[Sending]) -> list[SendError | None]:
    """Send many concurrently. Returns the outcome of each."""
    ended = await asyncio.gather(*(send(sending) for sending in sendings), return_exceptions=True)
    outcomes: list[SendError | None] = []
    for error in ended:
        if error is not None and not isinstance(error, SendError):
            raise error
        outcomes.append(error)
    return outcomes


def stream_one_by_one_sync(
    sendings: Iterable[Sending], send: Callable[[Sequence[Sending]], Sequence[SendError | None]]
) -> Iterator[str]:
    """Send many in chunks, and yield the id of each job, or of the existing job in its place.

    Raises:
        PartlySent: some of a chunk were not sent; no further chunk is sent.
    """
    taken, counted = iter(sendings), _StreamOutcomes()
    while chunk := list(islice(taken, _CHUNK)):
        yield from counted.settle(chunk, send(chunk))
        counted.check()


async def stream_one_by_one_async(
    sendings: Iterable[Sending] | AsyncIterable[Sending],
    send: Callable[[Sequence[Sending]], Awaitable[Sequence[SendError | None]]],
) -> AsyncGenerator[str, None]:
    """Do what `stream_one_by_one_sync` does, without blocking the event loop."""
    counted = _StreamOutcomes()
    async for chunk in _chunks(sendings):
        for job_id in counted.settle(chunk, await send(chunk)):
            yield job_id
        counted.check()


async def _chunks(sendings: Iterable[Sending] | AsyncIterable[Sending]) -> AsyncGenerator[list[Sending], None]:
    if not isinstance(sendings, AsyncIterable):
        taken = iter(sendings)
        while chunk := list(islice(taken, _CHUNK)):
            yield chunk
        return
    chunk = list[Sending]()
    async for sending in sendings:
        chunk.append(sending)
        if len(chunk) == _CHUNK:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


class _StreamOutcomes:
    """The outcomes of a stream's calls so far."""

    def __init__(self) -> None:
        self._retrieve_error = 0
        self._failures: dict[int, SendError] = {}

    def settle(self, sendings: Sequence[Sending], outcomes: Sequence[SendError | None]) -> list[str]:
        """Record outcomes. Returns the ids of the sent jobs."""
        job_ids = list[str]()
        for sending, error in zip(sendings, outcomes, strict=True):
            if error is None:
                job_ids.append(sending.envelope.id)
            else:
                self._failures[self._retrieve_error] = error
            self._retrieve_error += 1
        return job_ids

    def check(self) -> None:
        """Raise `PartlySent` if some were not sent."""
        if self._failures:
            raise PartlySent(self._failures, sent=self._retrieve_error - len(self._failures))


async def _record_replaced(claims: ClaimStore, job_id: str, *, by: str, ttl: float) -> None:
    name = replaced_key(job_id)
    await claims.complete(name, token=0, job_id=by, content_type="", value=b"", ttl=ttl + _LATE)


def unique_claim_of(meta: dict[str, str] | None) -> tuple[str, int] | None:
    """Return the key of a unique job and the token of its claim."""
    token, _, name = (meta or {}).get(UNIQUE_META, "").partition(" ")
    return (name, int(token)) if name and token.isdecimal() else None


async def release_waiting(claims: ClaimStore, message: WaitingMessage) -> None:
    """Release the key of a cancelled delayed job."""
    claim = unique_claim_of(decode_envelope(message.body, message.content_type).meta)
    if claim is not None:
        await claims.release(claim[0], token=claim[1])


async def _log_outage(call: Awaitable[object], name: str) -> None:
    try:
        await call
    except StateUnavailable as error:
        # The claim expires by itself; the outcome of the job does not change.
        _log.warning("updating unique key %s failed: %s", name, error)
