"""Forms of the dashboard that offer every option of a request."""

import re

import pytest
from playwright.sync_api import Locator, Page, expect

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


@pytest.mark.nightly("tests/dashboard/test_journeys.py::test_a_user_signs_in_makes_a_change_and_signs_out")
def test_a_job_is_submitted_with_options_and_the_form_offers_all(eyes: Eyes, site: Served) -> None:
    page = eyes.open("tasks/report").page
    # The hint is no part of the name.
    delay = page.get_by_role("textbox", name="Delay", exact=True)
    expect(delay).to_have_accessible_description("Such as 10m. Leave empty to run now.")
    page.get_by_text("More options").click()
    _see_fields(page, {*SubmitBody.__struct_fields__} - _OF_THE_JOB_FORM)

    _field(page, "timeout").fill("90s")
    _field(page, "max_attempts").fill("2")
    _field(page, "retry").fill('{"backoff": "constant", "base": "10s"}')
    _field(page, "priority").fill("8")
    _field(page, "labels").fill('{"team": "ops"}')
    _field(page, "held").select_option("true")
    eyes.click("Run")
    expect(page.locator("h1 .id")).to_have_text(re.compile("^[0-9a-f-]{36}$"))

    record = _read(site, page.locator("h1 .id").inner_text())
    run = RunOptions(timeout=90_000, max_attempts=2, backoff="constant", base=10_000)
    assert (decode_envelope(record.body).run, record.priority, record.state) == (run, 8, "held")
    assert record.detail is not None
    assert record.detail.labels == {"team": "ops"}


@pytest.mark.nightly("tests/dashboard/test_journeys.py::test_a_user_signs_in_makes_a_change_and_signs_out")
def test_a_schedule_is_added_with_options_and_the_form_offers_all(eyes: Eyes, site: Served) -> None:
    page = eyes.open("schedules").page
    eyes.click("Add a schedule")
    page.get_by_label("Name", exact=True).fill("workdays")
    page.get_by_label("Starts").fill("report")
    page.get_by_label("When").fill("0 9 1 * *")
    page.get_by_text("More options").click()
    _see_fields(page, {*PutScheduleBody.__struct_fields__} - _OF_THE_SCHEDULE_FORM)

    _field(page, "exclude").fill('["sat", "12-25"]')
    _field(page, "end").fill("2099-01-31T09:00:00Z")
    _field(page, "late_after").fill("2m")
    _field(page, "job").fill('{"timeout": "5m"}')
    eyes.confirm("Add")

    eyes.see("sat, 12-25")
    found = site.api.get("/schedules/workdays").json()
    assert (found["exclude"], found["end"], found["late_after"], found["job"]) == (
        ["sat", "12-25"],
        "2099-01-31T09:00:00.000Z",
        120.0,
        {"timeout": "5m"},
    )


def _field(page: Page, name: str) -> Locator:
    # The label of a choice also has the choices.
    label = page.locator(".field label", has=page.get_by_text(name, exact=True))
    return label.locator("input, select, textarea")


def _see_fields(page: Page, names: set[str]) -> None:
    for name in sorted(names):
        expect(_field(page, name)).to_be_visible()


def _read(site: Served, job: str) -> JobRecord:
    found: list[JobRecord] = []

    async def read() -> None:
        found.append(await site.app.jobs.aget(job))

    site.run(read())
    return found[0]
