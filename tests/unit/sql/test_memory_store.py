"""A job store in memory: its clock and its lifetime. Its operations on jobs are those of a file."""

import threading
from uuid import uuid4

import pytest

from taskmq import TaskMQ
from taskmq.contracts.broker import BrokerOptions
from taskmq.contracts.jobs import JobStore, NewJob
from taskmq.contracts.stores import Lease
from taskmq.errors import InvalidSetting, StateUnavailable, StoreRefused, StoreUnavailable, UnsupportedFeature
from taskmq.model.envelope import new_job_id
from taskmq.model.states import JobState
from taskmq.testing import FakeClock
from taskmq_sql import open_job_store
from tests.unit.store_kit import StagedStore, at_once


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def store(clock: FakeClock) -> StagedStore:
    return StagedStore(clock=clock)


def _job(number: int = 0, *, due: int = 0) -> NewJob:
    return NewJob(id=new_job_id(1_000, number.to_bytes(10)), task="t", queue="q", due=due, body=b"{}")


def _open_store(url: str) -> JobStore:
    return open_job_store(url, BrokerOptions(name="test"))


def _key(store: JobStore) -> str:
    (key,) = at_once(store.dispatching.report_keys())
    return key.id


def test_the_clock_of_the_test_sets_the_time_and_no_call_waits(store: StagedStore, clock: FakeClock) -> None:
    at_once(store.submit([_job(due=clock.now_ms() + 5_000)]))
    taken = at_once(store.dispatching.leases.acquire("key", owner="s", seconds=5))

    (job,) = at_once(store.list_jobs()).jobs
    assert (job.state, job.due) == (JobState.SCHEDULED, clock.now_ms() + 5_000)
    assert isinstance(at_once(store.dispatching.leases.acquire("key", owner="r", seconds=5)), Lease)
    clock.advance("5s")
    assert at_once(store.now_ms()) == clock.now_ms()
    assert at_once(store.dispatching.leases.acquire("key", owner="r", seconds=5)) != taken


def test_an_outage_lasts_as_long_as_the_test_says_and_loses_nothing(store: StagedStore, clock: FakeClock) -> None:
    other = StagedStore(store.database, clock=clock)
    job = _job()
    at_once(store.submit([job]))

    store.is_reachable = False
    for call in (store.get(job.id), store.submit([_job(1)]), store.check()):
        with pytest.raises(StoreUnavailable, match="not reachable"):
            at_once(call)
    with pytest.raises(StateUnavailable, match="not reachable"):
        at_once(store.dispatching.leases.find("key"))
    assert at_once(other.get(job.id)) is not None
    store.is_reachable = True

    assert at_once(store.get(job.id)) is not None


def test_writes_of_a_refused_call_are_rolled_back(store: StagedStore) -> None:
    with pytest.raises(StoreRefused):
        at_once(store.submit([_job(1), _job(2, due=2**80)]))

    assert at_once(store.count_jobs()) == 0
    assert len(at_once(store.submit([_job(1)]))) == 1


def test_each_database_is_empty_at_first_and_has_a_unique_key(store: StagedStore) -> None:
    at_once(store.submit([_job()]))
    other = StagedStore()

    assert at_once(other.count_jobs()) == 0
    assert _key(other) != _key(store)


def test_a_connection_without_commit_reports_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedFeature, match="connection=object"):
        at_once(_open_store(f"sqlite://:memory:{uuid4().hex}").submit([_job()], connection=object()))


def test_only_the_memory_store_names_the_replaced_store() -> None:
    _open_store(f"sqlite://:memory:{uuid4().hex}?of=postgresql")

    with pytest.raises(InvalidSetting, match="unknown parameter 'of'"):
        _open_store("sqlite:///jobs.db?of=postgresql")


def test_a_name_is_one_database_while_a_store_uses_it() -> None:
    url = f"sqlite://:memory:{uuid4().hex}"
    first, second = _open_store(url), _open_store(f"{url}?of=postgresql")
    at_once(first.submit([_job()]))

    del first
    assert at_once(second.count_jobs()) == 1
    assert at_once(_open_store(f"{url}-2").count_jobs()) == 0
    del second

    assert at_once(_open_store(url).count_jobs()) == 0


def test_loops_of_several_threads_may_use_one_store(store: StagedStore) -> None:
    def submit(first: int) -> None:
        for number in range(first, first + 100):
            at_once(store.submit([_job(number)]))

    threads = [threading.Thread(target=submit, args=(first,)) for first in (0, 1_000, 2_000)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert store.database.live == 300


def test_an_app_may_use_a_memory_store() -> None:
    name = uuid4().hex
    with TaskMQ(f"memory://{name}", store=f"sqlite://:memory:{name}") as app:
        app.task(name="t", queue="q")(lambda: None)
        app.jobs.submit("t", job_id="mine")

        assert app.jobs.get("mine").state is JobState.QUEUED
