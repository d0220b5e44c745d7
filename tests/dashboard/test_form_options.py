"""Forms of the dashboard that offer every option of a request."""

import re

import pytest
from playwright.sync_api import Page, expect

from taskmq.api.job_requests import SubmitBody
from taskmq.api.schedules import PutScheduleBody
from taskmq.contracts.jobs import JobRecord
from taskmq.model.envelope import decode_envelope
from taskmq.model.retry import RunOptions
from tests.dashboard.kit import Eyes, Served

pytestmark = pytest.mark.timeout(120)

# Fields that a form has under a name for people, or that repeat others.
_OF_THE_JOB_FORM = {"job_type", "task", "payload", "kwargs", "args", "delay", "node_labels"}
_OF_THE_SCHEDULE_FORM = {"task", "args", "kwargs", "cron", "every", "at", "tz", "catchup", "overlap"}


def test_a_job_is_submitted_with_options_and_the_form_offers_all(eyes: Eyes, site: Served) -> None:
    page = eyes.open("tasks/report").page
    page.get_by_text("More options").click()
    _see_fields(page, {*SubmitBody.__struct_fields__} - _OF_THE_JOB_FORM)

    page.get_by_label("timeout", exact=True).fill("90s")
    page.get_by_label("max_attempts", exact=True).fill("2")
    page.get_by_label("retry", exact=True).fill('{"backoff": "constant", "base": "10s"}')
    page.get_by_label("priority", exact=True).fill("8")
    page.get_by_label("labels", exact=True).fill('{"team": "ops"}')
    page.get_by_label("held", exact=True).select_option("true")
    eyes.click("Run")
    expect(page.locator("h1")).to_have_text(re.compile("^[0-9a-f-]{36}$"))

    record = _read(site, page.locator("h1").inner_text())
    run = RunOptions(timeout=90_000, max_attempts=2, backoff="constant", base=10_000)
    assert (decode_envelope(record.body).run, record.priority, record.state) == (run, 8, "held")
    assert record.detail is not None
    assert record.detail.labels == {"team": "ops"}


def test_a_schedule_is_added_with_options_and_the_form_offers_all(eyes: Eyes, site: Served) -> None:
    page = eyes.open("schedules").page
    eyes.click("Add a schedule")
    page.get_by_label("Name", exact=True).fill("workdays")
    page.get_by_label("Starts").fill("report")
    page.get_by_label("When").fill("0 9 1 * *")
    page.get_by_text("More options").click()
    _see_fields(page, {*PutScheduleBody.__struct_fields__} - _OF_THE_SCHEDULE_FORM)

    page.get_by_label("exclude", exact=True).fill('["sat", "12-25"]')
    page.get_by_label("end", exact=True).fill("2099-01-31T09:00:00Z")
    page.get_by_label("late_after", exact=True).fill("2m")
    page.get_by_label("job", exact=True).fill('{"timeout": "5m"}')
    eyes.confirm("Add")

    eyes.see("sat, 12-25")
    found = site.api.get("/schedules/workdays").json()
    assert (found["exclude"], found["end"], found["late_after"], found["job"]) == (
        ["sat", "12-25"],
        "2099-01-31T09:00:00.000Z",
        120.0,
        {"timeout": "5m"},
    )


def _see_fields(page: Page, names: set[str]) -> None:
    for name in sorted(names):
        expect(page.get_by_label(name, exact=True)).to_be_visible()


def _read(site: Served, job: str) -> JobRecord:
    found: list[JobRecord] = []

    async def read() -> None:
        found.append(await site.app.jobs.aget(job))

    site.run(read())
    return found[0]
