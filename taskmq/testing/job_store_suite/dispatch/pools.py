"""Tests of pools and policies, and of the first jobs of lanes."""

from taskmq.contracts.jobs import Lane, LaneHead
from taskmq.model.jobs.pools import QueuePolicy, Sharing, TenantPool
from taskmq.testing.job_store_suite.case import JobStoreCase
from taskmq.testing.job_store_suite.driver import HOUR, QUEUE
from taskmq.testing.runner import case

_POOLS = {
    "acme": TenantPool(name="acme", weight=5.0, min={"slots": 2.0}, max={"slots": 8.0}),
    "acme ml": TenantPool(name="acme ml", parent="acme"),
    "": TenantPool(name="", weight=0.5),
}


class PoolCases(JobStoreCase):
    """Every guarantee of `sharing`, `share` and `heads`."""

    @case
    async def test_sharing_rules_are_empty_by_default(self) -> None:
        assert await self.store().sharing() == Sharing()

    @case
    async def test_sharing_rules_are_visible_to_every_process(self) -> None:
        store, other = self.store(), self.store()
        queues = {"work": QueuePolicy(policy="priority", ageing=5.0), "strict": QueuePolicy(strict=True)}
        rules = Sharing(version=1, queues=queues, pools=_POOLS)

        assert await store.share(rules)
        assert await other.sharing() == rules
        assert await other.share(Sharing(version=2))
        assert await store.sharing() == Sharing(version=2)

    @case
    async def test_sharing_rules_for_an_old_version_are_rejected(self) -> None:
        store = self.store()
        assert not await store.share(Sharing(version=2))
        assert await store.share(Sharing(version=1, pools=_POOLS))

        for version in (0, 1, 3):
            assert not await store.share(Sharing(version=version)), version

        assert await store.sharing() == Sharing(version=1, pools=_POOLS)

    @case
    async def test_the_head_of_a_lane_is_its_first_ready_job(self) -> None:
        driver = self.driver()
        first = await driver.submit(tenant="acme", priority=7, expires=HOUR)
        await driver.submit(tenant="acme", priority=7)
        other = await driver.submit(queue="other")
        await driver.submit(tenant="later", due=HOUR)

        found = await driver.schedulers.heads([QUEUE, "nobody knows it"])

        assert found == {Lane(QUEUE, 7, "acme"): LaneHead(first.due, first.expires)}
        assert await driver.schedulers.heads(["other"]) == {
            Lane("other", other.priority, ""): LaneHead(other.due, None)
        }
        assert await driver.schedulers.heads([]) == {}
