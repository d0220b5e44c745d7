"""The overview names what needs attention, in a real browser."""

import copy
import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from taskmq.scheduler import Scheduler
from taskmq.server.examples import EXAMPLES
from tests.dashboard.examples import Case, show_examples
from tests.dashboard.kit import Served, a_job, answer, serving, violations, watching, working
from tests.servers import eventually

pytestmark = pytest.mark.timeout(120)


def _now(name: str) -> dict[str, object]:
    return {each: value for each, value in a_job(name).items() if each != "schedule_time"}


@pytest.mark.nightly("tests/dashboard/test_attention_journeys.py::test_an_alert_and_a_growing_queue_need_attention")
def test_the_overview_opens_with_what_needs_attention(browser: Browser, tmp_path: Path) -> None:
    with serving(tmp_path, development=True) as served, watching(browser, served) as eyes:
        # The worker makes the queues and ends.
        with working(served):
            attention = eyes.open().page.locator(".attention")
            expect(attention).to_contain_text("Nothing needs attention.")

        served.submit(_now("early"), _now("late"))
        expect(attention).to_contain_text("billing has no workers")
        expect(attention).to_contain_text("2 jobs wait")
        assert violations(eyes.page) == []
        served.api.post("/queues/billing/pause", json={}).raise_for_status()
        eyes.page.keyboard.press(".")

        expect(attention).to_contain_text("billing is paused")
        eyes.click("billing is paused")
        expect(eyes.page.locator("h1").first).to_have_text("billing")


@pytest.mark.nightly("tests/dashboard/test_attention_journeys.py::test_an_alert_and_a_growing_queue_need_attention")
def test_the_overview_lists_changes_of_settings(browser: Browser, tmp_path: Path) -> None:
    with serving(tmp_path, development=True) as served, watching(browser, served) as eyes:
        changes = eyes.open("?range=1h").page.get_by_text("What changed").locator("../..")
        expect(changes).to_contain_text("No changes in 1 hour.")
        served.api.put("/pools/acme", json={"weight": 2}).raise_for_status()
        served.api.put("/alerts/rules/declines", json={"metric": "failure_rate", "threshold": 0.1}).raise_for_status()
        served.api.post("/alerts/silences", json={"seconds": 60}).raise_for_status()
        served.submit(_now("ignored"))
        eyes.page.reload()

        expect(changes.get_by_role("listitem")).to_have_count(3)
        expect(changes).to_contain_text("Pool acme changed")
        expect(changes).to_contain_text("Alert declines saved")
        expect(changes).to_contain_text("Alert of every rule silenced")
        assert violations(eyes.page) == []
        changes.get_by_role("link", name="Pool acme").click()

        expect(eyes.page.locator("tbody tr")).to_contain_text(["pool.change"])


@pytest.mark.nightly("tests/dashboard/test_attention_journeys.py::test_an_alert_and_a_growing_queue_need_attention")
def test_a_release_is_a_change_and_every_tile_shows_its_trend(browser: Browser, site: Served) -> None:
    with show_examples(browser, site, Case("one")) as eyes:
        points = [{"at": f"2027-01-30T17:{minute}:00Z", "value": minute} for minute in range(10, 20)]
        figures: dict[str, Any] = {
            "items": [{"metric": name, "labels": {}, "points": points} for name in ("succeeded", "depth_in_hand")],
            "versions": [{"version": "2.1", "first": "2027-01-30T17:30:00Z", "last": "2027-01-30T17:31:00Z"}],
        }
        eyes.page.route(re.compile("/metrics/query"), lambda route: answer(route, figures))
        eyes.page.clock.set_fixed_time("2027-01-30T18:00:00Z")
        eyes.open("?range=6h")

        eyes.see("Version 2.1")
        expect(eyes.page.locator(".tile").filter(has=eyes.page.locator(".trend"))).to_contain_text(
            ["Running", "Succeeded, 24 h"]
        )
        eyes.click("Version 2.1")
        expect(eyes.page.locator("[aria-current=true]", has_text="By version")).to_be_visible()


@pytest.mark.nightly("tests/dashboard/test_attention_journeys.py::test_an_alert_and_a_growing_queue_need_attention")
def test_parts_that_are_down_come_first_and_lead_to_the_system_page(browser: Browser, tmp_path: Path) -> None:
    with serving(tmp_path, development=True) as served, watching(browser, served) as eyes:
        attention = eyes.open().page.locator(".attention")
        expect(attention.locator("li").first).to_contain_text("schedulers are down")
        expect(attention).to_contain_text("workers are down")
        assert violations(eyes.page) == []

        eyes.click("schedulers are down")

        expect(eyes.page.locator("h1").first).to_have_text("System")
        eyes.see("No scheduler runs.")
        eyes.see("start `taskmq scheduler`")
        assert violations(eyes.page) == []


@pytest.mark.nightly("tests/dashboard/test_attention_journeys.py::test_an_alert_and_a_growing_queue_need_attention")
def test_a_scheduler_that_is_gone_needs_attention_although_no_event_says_so(browser: Browser, tmp_path: Path) -> None:
    with serving(tmp_path, development=True) as served, watching(browser, served) as eyes:
        scheduler = Scheduler(served.twin())
        running = served.begin(scheduler.run())
        eventually(lambda: _status(served, "schedulers") == "works", "the scheduler holds the partitions")
        eyes.page.clock.install()
        attention = eyes.open().page.locator(".attention")
        expect(attention).to_contain_text("workers are down")
        expect(attention).not_to_contain_text("schedulers")
        expect(eyes.page.locator(".pill")).to_contain_text("live")

        served.call(scheduler.stop)
        running.result(30)
        eventually(lambda: _status(served, "schedulers") == "down", "the server knows")
        eyes.page.clock.fast_forward(10_000)
        eyes.page.clock.fast_forward(5_000)

        expect(attention).to_contain_text("schedulers are down")


def _status(served: Served, part: str) -> str:
    parts = served.api.get("/health").json()["parts"]
    return next(str(each["status"]) for each in parts if each["part"] == part)


def test_an_alert_and_a_growing_queue_need_attention(browser: Browser, site: Served) -> None:
    with show_examples(browser, site, Case("one")) as eyes:
        page = eyes.open().page

        expect(page.locator(".attention li")).to_contain_text(
            [
                "charges-fail is firing",
                "3 jobs failed",
                "3 jobs are overdue",
                "images grows by 162 jobs a minute: add 1 worker",
            ]
        )
        # The queue's page has the same words.
        page.evaluate("location.hash = '#/queues'")
        row = page.get_by_role("row", name="images")
        expect(row).to_contain_text("Growing")
        expect(row).to_contain_text("never")
        expect(page.locator(".reason")).to_contain_text("images grows by 162 jobs a minute: add 1 worker.")
        page.evaluate("location.hash = '#/queues/images'")
        helps = page.locator(".brief li")
        expect(helps).to_have_text(
            ["Add 1 workerKeeps up. Empty in 1 h 6 min", "Or add 2 workersEmpty in 12 min 56 s"]
        )
        expect(page.locator("dd", has_text="globex")).to_have_text("globex: 3,100, acme: 300")
        expect(page.locator("dd", has_text="9: 12")).to_have_text("9: 12, 4: 3,388")
        assert violations(page) == []


@pytest.mark.nightly("tests/dashboard/test_attention_journeys.py::test_an_alert_and_a_growing_queue_need_attention")
def test_queues_of_lost_messages_are_listed_without_a_page_once_they_have_any(browser: Browser, site: Served) -> None:
    with show_examples(browser, site, Case("one")) as eyes:
        found: dict[str, Any] = copy.deepcopy(EXAMPLES["listQueues"].answers[200])
        empty = found["queues"][0] | {"queue": "taskmq.parking", "stored": 0, "ready": 0, "in_hand": 0, "dead": 0}
        found["queues"] += [empty, empty | {"queue": "taskmq.unroutable", "ready": 2}]
        eyes.page.route(re.compile(r"/api/v1/queues\?"), lambda route: answer(route, found))

        page = eyes.open("queues").page

        expect(page.get_by_role("row", name="taskmq.unroutable")).to_be_visible()
        expect(page.get_by_role("link", name="taskmq.unroutable")).to_have_count(0)
        expect(page.get_by_role("row", name="taskmq.parking")).to_have_count(0)


@pytest.mark.nightly("tests/dashboard/test_attention_journeys.py::test_an_alert_and_a_growing_queue_need_attention")
def test_the_navigation_counts_running_jobs_failures_and_alerts(browser: Browser, site: Served) -> None:
    with show_examples(browser, site, Case("one")) as eyes:
        counts = eyes.open("queues").page.locator("nav .count")

        expect(counts).to_have_text(["3", "1", "1"])


@pytest.mark.nightly("tests/dashboard/test_pages.py::test_the_main_pages_have_no_accessibility_barriers")
def test_the_pages_are_in_a_drawer_below_a_thousand_pixels(browser: Browser, site: Served) -> None:
    with show_examples(browser, site, Case("one", width=768)) as eyes:
        page = eyes.open("queues").page
        button, pages = page.get_by_role("button", name="Pages"), page.get_by_role("navigation", name="Pages")
        expect(pages).to_be_hidden()

        button.press("Enter")
        expect(pages).to_be_visible()
        assert violations(page) == []
        page.keyboard.press("Tab")
        expect(pages.get_by_role("link", name="Overview")).to_be_focused()
        page.keyboard.press("Escape")
        expect(pages).to_be_hidden()
        expect(button).to_be_focused()
        button.press("Enter")
        pages.get_by_role("link", name="Queues").click()
        expect(pages).to_be_hidden()
        button.press("Enter")
        page.keyboard.press("Tab")
        page.keyboard.press("Shift+Tab")
        expect(pages).to_be_hidden()
        button.press("Enter")
        pages.get_by_role("link", name="Workers").click()

        expect(page.locator("h1").first).to_have_text("Workers")
        expect(pages).to_be_hidden()


def test_a_source_that_does_not_answer_is_named(browser: Browser, site: Served) -> None:
    with show_examples(browser, site, Case("error")) as eyes:
        attention = eyes.open().page.locator(".attention")

        expect(attention).to_contain_text("Not available: jobs, alerts, queues, health.")
        expect(attention).not_to_contain_text("Nothing needs attention.")


@pytest.mark.nightly("tests/dashboard/test_attention_journeys.py::test_an_alert_and_a_growing_queue_need_attention")
def test_the_system_page_runs_all_checks_and_copies_a_command(browser: Browser, site: Served) -> None:
    with show_examples(browser, site, Case("one")) as eyes:
        eyes.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        page = eyes.open("system").page
        cells = page.get_by_role("list", name="Health").get_by_role("listitem")
        expect(cells).to_contain_text([re.compile("store.*Works.*since"), re.compile("clocks.*Works.*up to 2 ms")])

        with page.expect_request(re.compile(r"/health/system\?max_age=0")):
            eyes.click("Run all checks")

        page.get_by_role("button", name="Copy taskmq dlq groups images").click()
        eyes.see("Copied.")
        assert page.evaluate("navigator.clipboard.readText()") == "taskmq dlq groups images"
