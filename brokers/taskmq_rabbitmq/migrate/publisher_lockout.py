"""Lockout of publishers from a virtual host for a moment.

A limit of 0 refuses new connections, and those that may publish are closed. Connections of taskmq that only consume
are left alone. The owner of a closed connection publishes unconfirmed messages again; taskmq's publishers return by
themselves as soon as the limit is gone.

The list of connections may be seconds old, so in the end the broker itself is asked, by its limit: if it admits one
more than are listed to stay, no other client was there. But it counts a connection a moment after admitting it, and a
publisher that retries just then may get in, too. So the limit is set to 0 again immediately, and a list that contains
this process must show no publisher.

A policy that applies to nothing records that the limit is taskmq's and the limit before, so that the next run after a
crash can restore it.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any, Final

from taskmq.errors import AccessDenied, BrokerUnavailable, TopologyMismatch
from taskmq_rabbitmq.admin.http_api import Management, ManagementNotFound, segment

_NOTE: Final = "taskmq.migration.connections"
_LIMIT: Final = "max-connections"
_ROUNDS: Final = 10
_LOOKS: Final = 5
_PAUSE: Final = 0.2


class PublisherLockout:
    """Keeps publishers out of the virtual host of `management`, whose user must be an administrator.

    Args:
        management: the HTTP API.
        ours: part of the names of this process's connections.
        open_another: opens one more connection of this process, which closes at the end of its block.
        settle: seconds after which a connection is certainly listed.
        report: called with each step.
    """

    def __init__(
        self,
        management: Management,
        *,
        ours: str,
        open_another: Callable[[], AbstractAsyncContextManager[object]],
        settle: float,
        report: Callable[[str], None],
    ) -> None:
        self._management = management
        self._ours = ours
        self._open_another = open_another
        self._settle = settle
        self._report = report

    async def check(self) -> None:
        """Check that a lockout is possible.

        Raises:
            AccessDenied: the user is not an administrator.
            BrokerUnavailable: the HTTP API does not answer.
        """
        tags = (await self._management.get("whoami"))["tags"]
        if "administrator" not in (tags.split(",") if isinstance(tags, str) else tags):
            raise AccessDenied(
                "a classic queue can be made anew only while no client publishes to it, because RabbitMQ confirms "
                "what comes while it deletes one: run this as an administrator, who may close the connections of all "
                "publishers to this virtual host for a moment, or stop all producers of the queue and say "
                "--producers-stopped"
            )

    @asynccontextmanager
    async def hold(self) -> AsyncGenerator[None]:
        """Open a block in which only this process publishes.

        Raises:
            TopologyMismatch: a client's connection cannot be closed.
        """
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self.end)
            await self._begin()
            closed: set[str] = set()
            for _ in range(_ROUNDS):
                await asyncio.sleep(self._settle)
                staying = await self._close_publishers(closed)
                if await self._gets_in(stack, staying) and await self._is_alone(staying, closed):
                    break
            else:
                raise TopologyMismatch("new connections keep arriving although the virtual host's limit is 0")
            self._report(f"{len(closed)} publishing connections closed")
            yield

    async def end(self) -> None:
        """End a lockout of taskmq's, even one from before a crash."""
        api = self._management
        policy = f"policies/{api.vhost}/{segment(_NOTE)}"
        try:
            note = await api.get(policy)
        except ManagementNotFound:
            return
        before = note["definition"].get("max-length")
        if before is None:
            await api.delete(f"vhost-limits/{api.vhost}/{_LIMIT}")
        else:
            await self._set_limit(before)
        await api.delete(policy)
        self._report("connections are let in again")

    async def _begin(self) -> None:
        api = self._management
        limits: list[dict[str, Any]] = await api.get(f"vhost-limits/{api.vhost}")
        before = next((each["value"][_LIMIT] for each in limits if _LIMIT in each["value"]), None)
        note = {"overflow": "reject-publish"} if before is None else {"max-length": before}
        # It applies to no queue: none can have that name.
        await api.put(
            f"policies/{api.vhost}/{segment(_NOTE)}",
            {
                "pattern": "^taskmq\\.migration\\.connections$",
                "definition": note,
                "priority": 0,
                "apply-to": "queues",
            },
        )
        await self._set_limit(0)
        self._report("new connections to the virtual host are refused for a moment")

    async def _close_publishers(self, closed: set[str]) -> int:
        """Close the listed publishers that are not in `closed` yet, and add them; return how many stay."""
        before: set[str] | None = None
        while True:
            began = time.monotonic()
            listed = await self._connections()
            # RabbitMQ caches a list for five times as long as it took to build.
            pause = max(_PAUSE, 6 * (time.monotonic() - began))
            staying = {str(each["name"]) for each in listed if self._stays(each)}
            fresh = {str(each["name"]) for each in listed} - staying - closed
            for name in fresh:
                # It may have gone by itself; such a connection stays listed for a while.
                with contextlib.suppress(ManagementNotFound):
                    await self._management.delete(f"connections/{segment(name)}")
            closed |= fresh
            if not fresh and staying == before:
                return len(staying)
            before = staying
            await asyncio.sleep(pause)

    async def _gets_in(self, stack: AsyncExitStack, staying: int) -> bool:
        """Return whether one more connection of this process is admitted, given room; none is left then."""
        await self._set_limit(staying + 1)
        try:
            await stack.enter_async_context(self._open_another())
        except BrokerUnavailable:
            return False
        finally:
            await self._set_limit(0)
        return True

    async def _is_alone(self, staying: int, closed: set[str]) -> bool:
        """Return whether no publisher got in with the newest connection, once that is listed; close one that did."""
        before = len(closed)
        for _ in range(_LOOKS):
            await asyncio.sleep(self._settle)
            if await self._close_publishers(closed) > staying:
                return len(closed) == before
        return False

    async def _set_limit(self, most: int) -> None:
        await self._management.put(f"vhost-limits/{self._management.vhost}/{_LIMIT}", {"value": most})

    async def _connections(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = await self._management.get(f"vhosts/{self._management.vhost}/connections")
        return found

    def _stays(self, connection: dict[str, Any]) -> bool:
        properties: dict[str, Any] = connection.get("client_properties") or {}
        name = str(properties.get("connection_name", ""))
        return self._ours in name or (properties.get("product") == "taskmq" and name.endswith(" consume"))
