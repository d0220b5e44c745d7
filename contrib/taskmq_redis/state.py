"""The state at `redis://`, as used by one event loop of one process."""

import asyncio

from taskmq.contracts.broker import BrokerOptions
from taskmq.contracts.finding import Finding
from taskmq_redis.doctor import diagnose, parse_info
from taskmq_redis.keys import Keys
from taskmq_redis.link.pubsub import PubSub
from taskmq_redis.link.replies import text, texts
from taskmq_redis.link.server import Server
from taskmq_redis.stores.checkpoints import RedisCheckpoints
from taskmq_redis.stores.claims import RedisClaims
from taskmq_redis.stores.crash_counts import RedisStarts
from taskmq_redis.stores.delays import RedisDelays
from taskmq_redis.stores.leases import RedisLeases
from taskmq_redis.stores.limits import RedisLimits
from taskmq_redis.stores.progress import RedisProgress
from taskmq_redis.stores.results import RedisResults
from taskmq_redis.stores.revocations import RedisRevocations
from taskmq_redis.stores.schedules import RedisSchedules
from taskmq_redis.url import parse_url


def open_state(url: str, options: BrokerOptions) -> "RedisState":
    """Return a state at the Redis of `redis://`, `rediss://` or `unix://`; it connects on first use.

    Raises:
        InvalidSetting: the URL is malformed.
    """
    return RedisState(url, options)


class RedisState:
    """A Redis state with one connection for commands and one for channels."""

    def __init__(self, url: str, options: BrokerOptions) -> None:
        endpoint = parse_url(url)
        keys = Keys(endpoint.prefix)
        self.address = endpoint.address
        self._server = Server(endpoint, name=options.name)
        self._pubsub = PubSub(self._server.new_connection, timeout=endpoint.timeout)
        self.results = RedisResults(self._server, self._pubsub, keys)
        self.starts = RedisStarts(self._server, keys)
        self.delays = RedisDelays(self._server, self._pubsub, keys)
        self.schedules = RedisSchedules(self._server, self._pubsub, keys)
        self.leases = RedisLeases(self._server, keys)
        self.limits = RedisLimits(self._server, keys)
        self.claims = RedisClaims(self._server, keys)
        self.progress = RedisProgress(self._server, keys)
        self.checkpoints = RedisCheckpoints(self._server, keys)
        self.revocations = RedisRevocations(self._server, keys)
        self._closing: asyncio.Task[None] | None = None

    async def diagnose(self) -> list[Finding]:
        """Return findings about the server: level, subject, what was found, and the remedy.

        Raises:
            StateUnavailable: the server could not be reached.
        """
        answer = await self._server.ask("INFO", key="")
        return diagnose(parse_info(text(answer)))

    async def server_now_ms(self) -> int:
        """See `taskmq.contracts.stores.Timekeeper`."""
        reply = texts(await self._server.ask("TIME", key=""))
        seconds, microseconds = map(int, reply)
        return seconds * 1000 + microseconds // 1000

    async def aclose(self) -> None:
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._close())
        # A cancelled close continues and may be awaited again.
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        try:
            await self._server.aclose()
        finally:
            await self.results.aclose()
            await self._pubsub.aclose()
