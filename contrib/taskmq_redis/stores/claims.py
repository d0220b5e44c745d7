"""Keys whose work is done once, by the server's clock."""

import asyncio
import uuid
from collections.abc import Mapping
from typing import Final

from taskmq.contracts.stores import Claimed, Done, Granted, Held
from taskmq_redis.keys import Keys
from taskmq_redis.link.replies import flag, texts
from taskmq_redis.link.server import Server
from taskmq_redis.scripts.script import Script
from taskmq_redis.stores.results import milliseconds

_CLAIM_KEY: Final = Script("claims/claim_key")
_COMPLETE_KEY: Final = Script("claims/complete_key")
_FIND_KEY: Final = Script("claims/find_key")
_RELEASE_KEY: Final = Script("claims/release_key")
_RENEW_KEY: Final = Script("claims/renew_key")


class RedisClaims:
    """A `taskmq.contracts.stores.ClaimStore`."""

    def __init__(self, server: Server, keys: Keys) -> None:
        self._server = server
        self._keys = keys

    async def claim(
        self, key: str, *, job_id: str, owner: str, lease: float, ttl: float, over: int | None = None
    ) -> Claimed:
        known = "" if over is None else str(over)
        arguments = (owner, job_id, milliseconds(lease), milliseconds(ttl), known, uuid.uuid4().hex)
        reply = texts(await self._server.run(_CLAIM_KEY, [self._keys.claim(key)], arguments))
        return Granted(int(reply[0])) if len(reply) == 1 else _to_status(reply)

    async def find(self, key: str) -> Held | Done | None:
        reply = texts(await self._server.run(_FIND_KEY, [self._keys.claim(key)], ()))
        return _to_status(reply) if reply else None

    async def renew(self, claims: Mapping[str, int], *, lease: float) -> frozenset[str]:
        # Sent together; each key may be on another node.
        answers = await asyncio.gather(*(self._renew(key, token, lease) for key, token in claims.items()))
        return frozenset(key for key, is_held in zip(claims, answers, strict=True) if not is_held)

    async def _renew(self, key: str, token: int, lease: float) -> bool:
        return flag(await self._server.run(_RENEW_KEY, [self._keys.claim(key)], (str(token), milliseconds(lease))))

    async def complete(
        self, key: str, *, token: int, job_id: str, content_type: str, value: bytes, ttl: float
    ) -> bool:
        arguments = (str(token), job_id, content_type, value, milliseconds(ttl))
        return flag(await self._server.run(_COMPLETE_KEY, [self._keys.claim(key)], arguments))

    async def release(self, key: str, *, token: int) -> bool:
        return flag(await self._server.run(_RELEASE_KEY, [self._keys.claim(key)], (str(token),)))


def _to_status(reply: list[bytes]) -> Held | Done:
    if len(reply) == 3:
        job, content_type, value = reply
        return Done(job_id=_text(job), content_type=_text(content_type), value=value)
    owner, job, token, left = reply
    return Held(owner=_text(owner), job_id=_text(job), token=int(token), left=int(left) / 1000)


def _text(data: bytes) -> str:
    return data.decode(errors="replace")
