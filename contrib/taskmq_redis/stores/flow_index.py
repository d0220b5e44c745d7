"""The list of workflows."""

import asyncio
from typing import Final

from taskmq.contracts.stores.flows import FlowCursor
from taskmq_redis.keys import Keys
from taskmq_redis.link.call import Word
from taskmq_redis.link.replies import integer, texts
from taskmq_redis.link.server import Server
from taskmq_redis.scripts.script import Script

__all__ = ["RedisFlowIndex"]

_LIST_FLOW: Final = Script("flow_index/list_flow")
_SETTLE_FLOW: Final = Script("flow_index/settle_flow")

# A flow's keys live longer than promised by this factor.
_LONGER: Final = 1.0625


class RedisFlowIndex:
    """The workflows by creation, in one slot of a cluster."""

    def __init__(self, server: Server, keys: Keys) -> None:
        self._server = server
        self._keys = keys

    async def add(self, flow_id: str, *, started: int, kept: int) -> None:
        """List a flow that is about to be created, and remove a few expired ones.

        Args:
            kept: how long the flow is kept (ms).
        """
        arguments = (flow_id, started, round(kept * _LONGER))
        over = texts(await self._server.run(_LIST_FLOW, self._keys.flow_lists(flow_id), arguments))
        await self.settle([each.decode() for each in over])

    async def settle(self, flow_ids: list[str]) -> None:
        """Remove the flows that expired; check the others again when their time is over."""
        await asyncio.gather(*map(self._settle, flow_ids))

    async def page(
        self, *, tenant: str | None, since: int | None, before: int | None, after: FlowCursor | None, limit: int
    ) -> tuple[list[FlowCursor], bool]:
        """Return up to `limit` flows, newest first, and whether there are more; some may have expired."""
        name = self._keys.flow_places if tenant is None else self._keys.flow_places_of(tenant)
        first: Word = "-inf" if since is None else since
        last: Word = "+inf" if before is None else f"({before}"
        if after is not None and (before is None or after.started < before):
            last = after.started
        found: list[FlowCursor] = []
        offset = 0
        # Flows may be created in the same ms: skip those up to the end of the page before.
        while len(found) <= limit:
            words = ("ZREVRANGEBYSCORE", name, last, first, "WITHSCORES", "LIMIT", offset, limit + 1)
            reply = texts(await self._server.ask(*words, key=name))
            cursors = [
                FlowCursor(int(float(score)), key.decode())
                for key, score in zip(reply[::2], reply[1::2], strict=True)
            ]
            found += [cursor for cursor in cursors if after is None or cursor < after]
            if len(cursors) <= limit:
                break
            offset += len(cursors)
        return found[:limit], len(found) > limit

    async def _settle(self, flow_id: str) -> None:
        name = self._keys.flow(flow_id)
        left = integer(await self._server.ask("PTTL", name, key=name))
        await self._server.run(_SETTLE_FLOW, self._keys.flow_lists(flow_id), (flow_id, max(left, 0)))
