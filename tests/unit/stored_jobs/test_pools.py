"""`app.pools`, and a submission beyond its quota."""

import pickle
from collections.abc import Callable, Coroutine

import pytest

from taskmq import QuotaExceeded, TaskMQ
from taskmq.errors import InvalidOption, PartlySent
from taskmq.model.jobs.pools import QueuePolicy, TenantPool
from tests.coroutines import run_by
from tests.unit.stored_jobs.kit import Shop, in_shop


def _in_shop(test: Callable[[Shop], Coroutine[None, None, None]]) -> None:
    in_shop(test, has_state=False)


@run_by(_in_shop)
async def test_pools_are_described_changed_and_deleted(shop: Shop, /) -> None:
    pools = shop.app.pools
    await pools.aset("acme", weight=5, min={"slots": 2})
    changed = await pools.aset("acme", max={"slots": 8})
    await pools.aset("acme-ml", parent="acme")
    with pytest.raises(InvalidOption, match="acme-ml"):
        await pools.aremove("acme")
    await pools.aremove("acme-ml")
    with pytest.raises(InvalidOption, match="there is no pool 'acmee'"):
        await pools.aremove("acmee")

    assert changed == TenantPool(name="acme", weight=5, min={"slots": 2}, max={"slots": 8})
    assert (await pools.aread()).pools == {"acme": changed}


@run_by(_in_shop)
async def test_amounts_of_unknown_resources_are_refused_by_name(shop: Shop, /) -> None:
    with pytest.raises(InvalidOption, match="pool 'acme': min: 'the CPU' is not the name of a resource"):
        await shop.app.pools.aset("acme", min={"slots": 1, "the CPU": 4})
    with pytest.raises(InvalidOption, match=r"pool 'acme': max: gpu=0\.5: must be a whole number of devices"):
        await shop.app.pools.aset("acme", max={"gpu": 0.5})

    assert (await shop.app.pools.aread()).pools == {}


@run_by(_in_shop)
async def test_a_queue_follows_a_policy_given_by_name_or_in_full(shop: Shop, /) -> None:
    pools = shop.app.pools
    await pools.aset_policy("work", "weighted")
    await pools.aset_policy("mail", QueuePolicy(policy="priority", strict=True))
    await pools.aset_policy("work", None)

    assert (await pools.aread()).queues == {"mail": QueuePolicy(policy="priority", strict=True)}


@run_by(_in_shop)
async def test_a_job_beyond_a_quota_is_refused_with_the_limit_and_the_time(shop: Shop, /) -> None:
    await shop.app.pools.aset_quota("acme", a_day=1, rate=1)
    await shop.jobs.asubmit("double", 1, tenant="acme", delay="1h")

    with pytest.raises(
        QuotaExceeded, match=r"task double: tenant 'acme' has reached its quota of 1 job per day"
    ) as caught:
        await shop.jobs.asubmit("double", 2, tenant="acme")
    with pytest.raises(QuotaExceeded):
        await shop.app.tasks["kept"].options(tenant="acme").asend(1)

    error = caught.value
    assert (error.tenant, error.user, error.limit, error.most) == ("acme", None, "a_day", 1)
    assert error.retry_after is not None
    assert 0 < error.retry_after <= 86_400
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.retry_after) == (str(error), error.retry_after)
    assert await shop.jobs.acount() == 1


@run_by(_in_shop)
async def test_jobs_of_a_batch_within_the_quota_are_accepted(shop: Shop, /) -> None:
    await shop.app.pools.aset_quota("acme", a_day=2)
    double = shop.app.tasks["double"].options(tenant="acme")

    with pytest.raises(PartlySent) as caught:
        await shop.jobs.asubmit_many(double, [(1,), (2,), (3,)])

    assert list(caught.value.failures) == [2]
    assert isinstance(caught.value.failures[2], QuotaExceeded)
    assert caught.value.sent == 2


@run_by(_in_shop)
async def test_quotas_of_an_owner_and_of_waiting_jobs_name_their_subject(shop: Shop, /) -> None:
    pools = shop.app.pools
    await pools.aset_quota("acme", "*", a_day=0)
    with pytest.raises(QuotaExceeded, match="user 'ann' of tenant 'acme' has reached its quota of 0 jobs per day"):
        await shop.jobs.asubmit("double", 1, tenant="acme", owner="ann")
    await pools.aset_quota("acme", queued=0)
    with pytest.raises(QuotaExceeded, match="when some of its jobs have started") as caught:
        await shop.jobs.asubmit("double", 1, tenant="acme")

    assert (caught.value.limit, caught.value.retry_after) == ("queued", None)


@run_by(_in_shop)
async def test_quotas_are_listed_with_the_usage_of_today_and_deleted(shop: Shop, /) -> None:
    pools = shop.app.pools
    await pools.aset_quota("acme", a_day=5)
    await pools.aset_quota("acme", "ann", bytes=10**6)
    await pools.aset_quota("*", rate=2.5, burst=10)
    await shop.jobs.asubmit("double", 1, tenant="acme", owner="ann")

    states = await pools.aquotas()
    assert [(state.quota.name, state.jobs, state.bytes > 0) for state in states] == [
        ("*", 0, False),
        ("acme", 1, True),
        ("acme/ann", 1, True),
    ]

    await pools.aremove_quota("acme", "ann")
    await pools.aremove_quota("acme")
    with pytest.raises(InvalidOption, match="there is no quota of 'acme/ann'"):
        await pools.aremove_quota("acme", "ann")
    assert [state.quota.name for state in await pools.aquotas()] == ["*"]


def test_synchronous_callers_have_the_same_methods(tmp_path_factory: pytest.TempPathFactory) -> None:
    with TaskMQ("memory://", store=f"sqlite:///{tmp_path_factory.mktemp('pools')}/jobs.db") as app:
        app.pools.set("acme", weight=2)
        app.pools.set_policy("work", "fifo")
        app.pools.set_quota("acme", a_day=3)

        said, quotas = app.pools.read(), app.pools.quotas()
        app.pools.remove("acme")
        app.pools.remove_quota("acme")

        assert (said.version, list(said.pools), list(said.queues)) == (2, ["acme"], ["work"])
        assert [state.quota.a_day for state in quotas] == [3]
        assert (app.pools.read().pools, app.pools.quotas()) == ({}, [])
