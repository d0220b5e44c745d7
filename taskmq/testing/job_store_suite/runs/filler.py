"""Submissions that fill the quota of a tenant while its runs go on."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from taskmq.testing.job_store_suite.runs.kit import RunDriver

LIMITED: Final = "acme"
"""The tenant with the quota."""

_QUEUE: Final = "other"
# Steps ask their quotas again within a minute; a place that one of them has claimed is free a second later.
_UNTIL_ASKED: Final = 120.0


@dataclass
class QuotaFiller:
    """Submissions that fill the tenant's quota of waiting jobs.

    Attributes:
        room: the quota.
        advance: moves the store's clock by seconds.
        is_full: whether the quota is used up.
    """

    driver: RunDriver
    room: int
    advance: Callable[[float], Awaitable[None]]
    is_full: bool = False

    async def fill(self) -> None:
        """Use up the quota while no job of a step waits."""
        jobs = [await self.driver.new(tenant=LIMITED, queue=_QUEUE) for _ in range(self.room)]
        assert all(each.is_new for each in await self.driver.store.submit(jobs))
        assert (await self.driver.try_submit(tenant=LIMITED, queue=_QUEUE)).exceeded is not None
        self.is_full = True

    async def free(self) -> None:
        """Give the quota room, and let the time pass until all steps that wait for it are due to ask again."""
        while await self.driver.try_dispatch(queue=_QUEUE) is not None:
            pass
        await self.advance(_UNTIL_ASKED)
        self.is_full = False
