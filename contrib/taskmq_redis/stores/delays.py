"""Messages that wait for their time."""

import logging
import secrets
from collections.abc import Callable, Collection, Sequence
from typing import Final

import msgspec

from taskmq.contracts.stores import TakenMessage, WaitingMessage
from taskmq.errors import StateUnavailable
from taskmq_redis.keys import Keys
from taskmq_redis.link.call import Word
from taskmq_redis.link.pubsub import PubSub
from taskmq_redis.link.replies import decode, flag, integer, texts, texts_or_none
from taskmq_redis.link.server import Server
from taskmq_redis.scripts.script import Script
from taskmq_redis.stores.results import milliseconds

_CANCEL: Final = Script("delays/cancel")
_DONE: Final = Script("delays/done")
_GIVE_BACK: Final = Script("delays/give_back")
_NEXT_DUE: Final = Script("delays/next_due")
_PUT_MESSAGE: Final = Script("delays/put_message")
_SWAP: Final = Script("delays/swap")
_TAKE: Final = Script("delays/take")
_TOKEN_LENGTH: Final = 16
_DUE_LENGTH: Final = 16

_log = logging.getLogger("taskmq.redis")

# Limit per script, which blocks the server while it runs.
_MOST: Final = 1_000
_PAGE: Final = 500

_encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(WaitingMessage)


class RedisDelays:
    """Delayed messages, one per job. Leases end by the server's clock; the taker's clock decides what is due."""

    def __init__(self, server: Server, pubsub: PubSub, keys: Keys) -> None:
        self._server = server
        self._pubsub = pubsub
        self._keys: list[str] = list(keys.delays)
        self._messages, self._due, self._taken = keys.delays

    async def put(self, message: WaitingMessage) -> None:
        await self._server.run(_PUT_MESSAGE, self._keys, (message.job_id, _encode_message(message)))

    async def take(self, *, now: int, limit: int, lease: float) -> list[TakenMessage]:
        arguments = (now, min(limit, _MOST), milliseconds(lease))
        # Not repeated if the reply is lost: those messages go to the next taker after their lease.
        kept = texts(await self._server.run(_TAKE, self._keys, arguments, can_repeat=False))
        return [TakenMessage(message, _token(one)) for one in kept if (message := _read(one)) is not None]

    async def mark_done(self, taken: Sequence[TakenMessage]) -> None:
        for start in range(0, len(taken), _MOST):
            await self._server.run(_DONE, self._keys, _tokens(taken[start : start + _MOST]))

    async def give_back(self, taken: Sequence[TakenMessage]) -> None:
        for start in range(0, len(taken), _MOST):
            await self._server.run(_GIVE_BACK, self._keys, _tokens(taken[start : start + _MOST]))

    async def next_due(self) -> int | None:
        first = texts(await self._server.run(_NEXT_DUE, self._keys, ()))
        return int(float(first[1])) if first else None

    def listen(self, heard: Callable[[], None]) -> Callable[[], None]:
        return self._pubsub.listen(self._due, lambda _: heard())

    async def count(self) -> int:
        return integer(await self._server.ask("HLEN", self._messages, key=self._messages))

    async def find(self, job_id: str) -> WaitingMessage | None:
        kept = await self._server.ask("HMGET", self._messages, job_id, key=self._messages)
        return next((_read(one) for one in texts_or_none(kept) if one is not None), None)

    async def list(
        self, *, limit: int, task: str | None = None, queues: Collection[str] | None = None
    ) -> list[WaitingMessage]:
        """Read in pages; messages put, taken or moved meanwhile may be missing."""

        def is_wanted(message: WaitingMessage) -> bool:
            return task in (None, message.task) and (queues is None or message.queue in queues)

        taken = texts(await self._server.ask("ZRANGE", self._taken, 0, -1, key=self._taken))
        found = {message.job_id: message for message in await self._read(taken) if is_wanted(message)}
        matches, at, beyond = 0, "-inf", 0
        while matches < limit:
            span: tuple[Word, ...] = ("ZRANGEBYSCORE", self._due, at, "+inf", "WITHSCORES", "LIMIT", beyond, _PAGE)
            page = texts(await self._server.ask(*span, key=self._due))
            jobs, scores = page[::2], page[1::2]
            wanted = [message for message in await self._read(jobs) if is_wanted(message)]
            found.update((message.job_id, message) for message in wanted)
            matches += len(wanted)
            if len(jobs) < _PAGE:
                break
            # Continue after the last instant of this page and the jobs already read there.
            last = scores[-1].decode()
            beyond = scores.count(scores[-1]) + (beyond if last == at else 0)
            at = last
        return sorted(found.values(), key=lambda message: (message.due, message.job_id))[:limit]

    async def cancel(self, job_id: str) -> bool:
        # Not repeated if the reply is lost: the second answer would be that nothing waits.
        return flag(await self._server.run(_CANCEL, self._keys, (job_id,), can_repeat=False))

    async def swap(self, found: WaitingMessage, changed: WaitingMessage) -> bool:
        arguments = (found.job_id, _encode(found), _encode_message(changed))
        return flag(await self._server.run(_SWAP, self._keys, arguments))

    async def _read(self, jobs: Sequence[bytes]) -> Sequence[WaitingMessage]:
        if not jobs:
            return ()
        kept = texts_or_none(await self._server.ask("HMGET", self._messages, *jobs, key=self._messages))
        found = [_read(one) for one in kept if one is not None]
        return [message for message in found if message is not None]


def _encode_message(message: WaitingMessage) -> bytes:
    """Encode a message for storage, under a new token."""
    token = secrets.token_hex(_TOKEN_LENGTH // 2)
    return f"{token}{message.due:0{_DUE_LENGTH}d}".encode() + _encode(message)


def _read(kept: bytes) -> WaitingMessage | None:
    """Decode a message; None if it is unreadable, which must not affect others."""
    try:
        return decode(kept[_TOKEN_LENGTH + _DUE_LENGTH :], _decoder)
    except StateUnavailable as error:
        _log.error("skipped an unreadable delayed job: %s", error)
        return None


def _token(kept: bytes) -> str:
    return kept[:_TOKEN_LENGTH].decode(errors="replace")


def _tokens(taken: Sequence[TakenMessage]) -> list[str]:
    return [word for one in taken for word in (one.message.job_id, one.token)]
