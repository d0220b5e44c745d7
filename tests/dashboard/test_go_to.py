"""The palette: pages, saved views, tasks, jobs and actions by some letters of their names."""

from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.dashboard.kit import Eyes, Served, a_job, violations
from tests.servers.waiting import eventually

pytestmark = pytest.mark.timeout(120)


def _knows_pauses(answer: Any, queue: str) -> bool:
    """Return whether a list of queues has the queue, and says whether it is paused."""
    return any(one["queue"] == queue and one["is_paused"] is not None for one in answer["queues"])


def _choose(page: Page, letters: str) -> None:
    """Choose the first match of these letters in the palette."""
    page.keyboard.press("Control+k")
    page.get_by_role("combobox", name="Go to").fill(letters)
    expect(page.locator("dialog [aria-selected=true]")).to_contain_text(letters, ignore_case=True)
    assert violations(page) == []
    page.keyboard.press("Enter")


@pytest.mark.nightly("tests/dashboard/test_journeys.py::test_a_user_signs_in_makes_a_change_and_signs_out")
def test_the_palette_opens_a_page_a_task_a_job_and_a_saved_view(eyes: Eyes, site: Served) -> None:
    (made,) = site.submit(a_job("palette"))
    page = eyes.open("jobs?filter=task%3Areport").page

    _choose(page, "save")
    page.get_by_label("Name", exact=True).fill("reports alone")
    eyes.click("Save")
    under_jobs = (
        page.get_by_role("navigation", name="Pages").get_by_role("listitem").filter(has=page.get_by_text("Jobs"))
    )
    expect(under_jobs.get_by_role("link", name="reports alone")).to_have_attribute(
        "href", "#/jobs?filter=task%3Areport"
    )

    for letters, title in (("charge", "billing.charge"), (made["id"], "palette"), ("overv", "Overview")):
        _choose(page, letters)
        expect(page.locator("h1").first).to_contain_text(title)
    page.reload()
    eyes.settle()
    _choose(page, "reports")

    expect(page.get_by_label("Filter", exact=True)).to_have_value("task:report")
    eyes.click("Remove the view reports alone")
    eyes.see_count(page.get_by_role("link", name="reports alone"), 0)


@pytest.mark.nightly("tests/dashboard/test_journeys.py::test_a_user_signs_in_makes_a_change_and_signs_out")
def test_the_palette_pauses_and_resumes_a_queue_and_retries_failed_jobs(eyes: Eyes, site: Served) -> None:
    site.run(site.app.sessions.current().declare(site.app.tasks.queues))
    # The palette accepts a list that another page has read, perhaps before the queue existed.
    eventually(lambda: _knows_pauses(site.api.get("/queues?max_age=3").json(), "billing"), "the queue is listed")
    page = eyes.open("queues").page
    row = page.get_by_role("row", name="billing").first

    _choose(page, "pause queue billing")
    page.get_by_label("Note").fill("the bank is closed")
    eyes.confirm("Pause")
    expect(row).to_contain_text("Paused")
    _choose(page, "resume queue billing")
    expect(row).not_to_contain_text("Paused")
    _choose(page, "retry failed")

    expect(page.get_by_role("dialog", name="Bulk operation")).to_contain_text("status:failed,expired,upstream_failed")
    expect(page.locator("[data-matched]")).to_have_text("0")
    assert violations(page) == []
