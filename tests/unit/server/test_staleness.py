"""Lists from a replica of the store: which may be, how a response shows its age, how a caller gets newer data."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from taskmq.contracts.broker import BrokerOptions
from taskmq.contracts.jobs import accepted_age
from taskmq.http import Client
from taskmq.model.jobs.filters import EVERYTHING, JobFilter
from taskmq.server.application import HANDLERS
from taskmq.testing import FakeClock
from taskmq_sql.sqlite import SqliteJobStore
from tests.unit.server.kit import Site, open_site

_LATE = 7.2


class _LateStore(SqliteJobStore):
    """A store whose counts come from a replica that is late, for callers who accept that."""

    async def count_jobs(self, which: JobFilter = EVERYTHING, *, cap: int = 10_000) -> int:
        accepted = accepted_age()
        if accepted is not None and accepted.limit >= _LATE:
            accepted.note(_LATE)
        return await super().count_jobs(which, cap=cap)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def site(tmp_path: Path, clock: FakeClock) -> Iterator[Site]:
    def open_store(options: BrokerOptions) -> SqliteJobStore:
        return _LateStore("sqlite:///jobs.db", tmp_path / "jobs.db", clock=options.clock)

    with open_site(tmp_path, job_store=open_store, clock=clock) as opened:
        yield opened


def _age(site: Site, path: str, *control: str) -> str | None:
    answer = site("GET", path, headers=[("Cache-Control", each) for each in control])
    assert answer.status_code == 200, answer.text
    age: str | None = answer.headers.get("Age")
    return age


def test_nothing_but_lists_counts_and_history_may_be_stale() -> None:
    assert {handler.operation_id for handler in HANDLERS if handler.opt.get("may_be_stale")} == {
        "listJobs",
        "countJobs",
        "countJobsOfFilters",
        "listRuns",
        "listFailures",
        "listRollups",
        "getUsage",
        "queryMetrics",
        "getMetricsCompat",
        "searchLogs",
        "queryLogsCompat",
    }
    assert {handler.http_methods == {"GET"} for handler in HANDLERS if handler.opt.get("may_be_stale")} == {True}


def test_a_response_from_the_replica_has_its_age_in_whole_seconds(site: Site) -> None:
    job = site.submit()

    assert _age(site, "/jobs/count") == "8"
    assert _age(site, f"/jobs/{job}") is None


@pytest.mark.parametrize(
    ("control", "age"),
    [
        (["no-cache"], None),
        (["max-age=0"], None),
        (["max-age=7"], None),
        (["no-store, max-age=3"], None),
        (["max-age=30", "no-cache"], None),
        (["max-age=8"], "8"),
        (["max-age=soon"], "8"),
    ],
)
def test_a_caller_may_limit_the_age(site: Site, control: list[str], age: str | None) -> None:
    assert _age(site, "/jobs/count", *control) == age


def test_a_shared_response_gets_older_until_a_caller_demands_a_newer_one(site: Site, clock: FakeClock) -> None:
    path = "/jobs/counts?filter=&max_age=60"
    assert _age(site, path) == "8"

    clock.advance(2)

    assert _age(site, path) == "10"
    assert _age(site, path, "max-age=9") == "8"
    assert _age(site, path, "max-age=5") is None
    assert _age(site, path) is None


def test_a_client_reports_the_age_and_demands_data_newer_than_its_changes(site: Site) -> None:
    def client(**more: Any) -> Client:
        return Client("http://testserver", token="acme-admin", insecure=True, http=site.client, **more)

    ours = client()
    ours.jobs.count()
    assert ours.age == 8
    ours.server()
    assert ours.age == 0

    ours.for_tenant("acme").jobs.submit("data_processing", job_id="order-18")

    ours.jobs.count()
    assert ours.age == 0
    strict = client(max_age=0)
    strict.jobs.count()
    assert strict.age == 0
