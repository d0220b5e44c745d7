"""Leases on keys, timed by the server's clock."""

import asyncio
import uuid
from typing import Final

from taskmq.contracts.stores import Lease, group_of
from taskmq_redis.keys import Keys
from taskmq_redis.link.replies import flag, texts
from taskmq_redis.link.server import Server
from taskmq_redis.scripts.script import Script
from taskmq_redis.stores.results import milliseconds

_LOOK_LEASE: Final = Script("leases/look_lease")
_MEMBERS: Final = Script("leases/members")
_RELEASE_LEASE: Final = Script("leases/release_lease")
_RENEW_LEASE: Final = Script("leases/renew_lease")
_TAKE_LEASE: Final = Script("leases/take_lease")


class RedisLeases:
    """A `taskmq.contracts.stores.Coordinator`."""

    def __init__(self, server: Server, keys: Keys) -> None:
        self._server = server
        self._keys = keys

    async def acquire(self, key: str, *, owner: str, seconds: float, note: str = "") -> int | Lease:
        arguments = (owner, milliseconds(seconds), note, uuid.uuid4().hex)
        reply = texts(await self._server.run(_TAKE_LEASE, self._member_keys(key), arguments))
        return int(reply[0]) if len(reply) == 1 else _lease(reply)

    async def renew(self, key: str, *, token: int, seconds: float, note: str | None = None) -> bool:
        arguments = (str(token), milliseconds(seconds), *(() if note is None else (note,)))
        return flag(await self._server.run(_RENEW_LEASE, self._member_keys(key), arguments))

    async def release(self, key: str, *, token: int) -> None:
        await self._server.run(_RELEASE_LEASE, [self._keys.lease(key)], (str(token),))

    async def find(self, key: str) -> Lease | None:
        reply = texts(await self._server.run(_LOOK_LEASE, [self._keys.lease(key)], ()))
        return _lease(reply) if reply else None

    async def members(self, group: str) -> dict[str, Lease]:
        members = texts(await self._server.run(_MEMBERS, [self._keys.members(group)], ()))
        places = [place.decode() for place in members]
        replies = await asyncio.gather(*(self._server.run(_LOOK_LEASE, [place], ()) for place in places))
        found = {
            self._keys.member_of(group, place): _lease(lease)
            for place, reply in zip(places, replies, strict=True)
            if (lease := texts(reply))
        }
        return dict(sorted(found.items()))

    def _member_keys(self, key: str) -> list[str]:
        group = group_of(key)
        return [self._keys.lease(key), *(() if group is None else (self._keys.members(group),))]


def _lease(reply: list[bytes]) -> Lease:
    owner, token, left, note = reply
    return Lease(
        owner=owner.decode(errors="replace"),
        token=int(token),
        left=int(left) / 1000,
        note=note.decode(errors="replace"),
    )
