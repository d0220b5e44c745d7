"""Callers cannot use ids derived from schedules, events and bulks: over HTTP, in both stores."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from taskmq import TaskMQ
from taskmq.errors import InvalidOption
from taskmq.model.jobs.filters import JobFilter
from taskmq.model.keys import reaction_job_id, scheduled_job_id
from taskmq.scheduler import Scheduler
from tests.servers.waiting import until
from tests.unit.app_kit import new_url
from tests.unit.server.kit import Site, define, open_site

_APP, _SCHEDULE = "taskmq", "@acme:charges"
_ROW = "0190e3c2-0000-7000-8000-000000000000"


@pytest.fixture(
    params=[pytest.param("sqlite", marks=pytest.mark.nightly("tests/integration/test_derived_ids.py")), "postgresql"]
)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/jobs.db"
    return str(request.getfixturevalue("job_store_url"))


@pytest.fixture
def site(tmp_path: Path, store: str) -> Iterator[Site]:
    with open_site(tmp_path, store=store) as opened:
        yield opened


@pytest.mark.nightly("tests/integration/test_derived_ids.py::test_no_derived_id_is_accepted_through_any_door")
def test_a_submitter_cannot_take_the_occurrence_of_a_schedule(tmp_path: Path, store: str) -> None:
    app = TaskMQ(new_url(), store=store)
    define(app)

    async def fire() -> list[str]:
        scheduler = Scheduler(app)
        running = asyncio.ensure_future(scheduler.run())
        found: list[str] = []

        async def has_charged() -> bool:
            page = await app.jobs.alist(JobFilter(tasks=("billing.charge",)))
            found[:] = [str(job.key) for job in page.jobs]
            return len(found) >= 2

        await until(has_charged, "two charges")
        scheduler.stop()
        await running
        status = await app.schedules.astatus(_SCHEDULE)
        assert (status.failed, status.missed) == (0, 0)
        await app.aclose()
        return found

    with open_site(tmp_path, store=store) as site:
        body = {"task": "billing.charge", "every": "1s", "kwargs": {"amount": 9}}
        assert site("PUT", "/schedules/charges", body).status_code in {200, 201}
        began = time.time_ns() // 10**9 * 1000
        ids = [scheduled_job_id(_APP, _SCHEDULE, began + second * 1000) for second in range(60)]
        mail = {"job_type": "data_processing", "schedule_time": "2099-01-31T09:00:00Z"}
        taken = site("POST", "/jobs", [{**mail, "job_id": each} for each in ids], by="importer").json()
        assert (taken["submitted"], taken["refused"]) == (0, 60)
        # Without their mark they are free to be chosen, and belong to no occurrence.
        plain = [{**mail, "job_id": each.rpartition(":")[2]} for each in ids]
        assert site("POST", "/jobs", plain, by="importer").json()["refused"] == 0

    fired = asyncio.run(fire())
    assert set(fired) <= set(ids)


@pytest.mark.parametrize(
    "job_id",
    [
        scheduled_job_id(_APP, _SCHEDULE, 1_800_000_000_000, "backfill"),
        reaction_job_id(_APP, "tidy", "1"),
        "taskmq:event:shop:order-99",
    ],
)
def test_no_derived_id_is_accepted_through_any_door(site: Site, job_id: str) -> None:
    call = {"job_type": "data_processing"}
    site.submit(job_id="first")
    one, several = {"Idempotency-Key": job_id}, f"/jobs/{site.submit(job_id='ended')}"
    assert site("DELETE", several).status_code == 200
    for answer in (
        site("POST", "/jobs", {**call, "job_id": job_id}),
        site("POST", "/jobs", call, headers=one),
        site("POST", "/jobs", {**call, "job_id": f"@acme:{job_id}"}, by="all-admin"),
        site("POST", "/jobs/first/clone", {"job_id": job_id}),
        site("POST", "/jobs/first/clone", {}, headers=one),
        site("POST", f"{several}/retry", {"mode": "new"}, headers=one),
    ):
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid_option"), answer.text
    many = site("POST", "/jobs", [{**call, "job_id": job_id}]).json()
    assert many["items"][0]["problem"]["code"] == "invalid_option"
    with pytest.raises(InvalidOption, match="taskmq:"):
        site.app.jobs.submit("data_processing", job_id=job_id, tenant="acme")
    with pytest.raises(InvalidOption, match="taskmq:"):
        site.app.tasks["data_processing"].options(job_id=job_id)
    with pytest.raises(InvalidOption, match="taskmq:"):
        site.app.tasks["data_processing"].options(idempotency_key=job_id)
    with pytest.raises(InvalidOption, match="taskmq:"):
        site.app.jobs.clone("@acme:first", new_id=job_id)
    assert sorted(site.ids()) == ["ended", "first"]


def test_a_call_without_a_tenant_takes_no_id_of_a_tenant(site: Site) -> None:
    answer = site("POST", "/jobs", {"job_type": "data_processing", "job_id": "@acme:order-17"}, by="all-admin")

    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_option")
    assert "pass tenant='acme'" in answer.json()["detail"]
    assert site.submit(job_id="order-17") == "order-17"
