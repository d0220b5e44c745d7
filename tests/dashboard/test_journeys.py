"""Signing in, keys, links, updates: behaviour shared by all pages of the dashboard, in a real browser."""

import gzip
import re
from collections import Counter
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Route, expect

from taskmq.server.dashboard.files import dashboard_files
from tests.dashboard.kit import PASSWORD, Eyes, Served, a_job, serving, violations, watching
from tests.servers.waiting import eventually

pytestmark = pytest.mark.timeout(120)


_FIRST_LOAD = 120 * 1024
_ALL_FILES = 130_000


def test_the_first_load_is_within_its_budget(eyes: Eyes) -> None:
    sizes: dict[str, int] = {}
    eyes.page.on("response", lambda answer: sizes.update({answer.url: len(gzip.compress(answer.body()))}))

    eyes.open()

    assert any("/ui/static/" in url for url in sizes)
    assert sum(sizes.values()) <= _FIRST_LOAD, sizes


def test_the_overview_sends_one_request_for_each_kind_of_object(browser: Browser, tmp_path: Path) -> None:
    asked: list[str] = []
    # This server has answered no caller yet: a used one may return a count that is a second old.
    with serving(tmp_path, development=True) as served, watching(browser, served) as eyes:
        served.submit(a_job("seen"))
        eyes.page.on("request", lambda request: asked.append(urlsplit(request.url).path.partition("/api/v1/")[2]))
        # Some seconds after its stream of events opens, a page reads everything again.
        eyes.page.clock.install()
        eyes.page.clock.pause_at(eyes.page.evaluate("Date.now()") / 1_000 + 60)
        eyes.open()
        expect(eyes.page.locator("a.tile", has_text="Scheduled or held")).to_contain_text(re.compile(r"[1-9]"))

        calls = Counter(asked) - Counter({"": len(asked)})

    # The lists of failed and of running jobs are requested only if there are any.
    assert {path: count for path, count in calls.items() if count > 1} == {}
    assert calls.total() <= 10


def test_all_files_of_the_dashboard_together_are_within_their_budget() -> None:
    assert sum(len(file.compressed) for file in dashboard_files().by_path.values()) <= _ALL_FILES


def test_a_user_signs_in_makes_a_change_and_signs_out(browser: Browser, tmp_path: Path) -> None:
    with serving(tmp_path) as served, watching(browser, served) as eyes:
        page = eyes.page
        eyes.forgiven.append("401")
        eyes.open("jobs?filter=task%3Areport")
        page.get_by_label("Name").fill("root")
        page.get_by_label("Password").fill("a wrong password")
        eyes.click("Sign in")
        expect(page.get_by_role("alert")).to_be_visible()
        assert violations(page) == []

        page.get_by_label("Password").fill(PASSWORD)
        eyes.click("Sign in")
        eyes.see("No matching jobs")
        # A change needs the session's CSRF token, even after the page was reloaded.
        page.reload()
        eyes.open("tasks/billing.charge")
        page.get_by_label("account (required)").fill("ann")
        page.get_by_label("cents (required)").fill("250")
        eyes.click("Run")
        expect(page.locator("h1 .id")).to_have_text(re.compile("^[0-9a-f-]{36}$"))
        eyes.see('"cents": 250')

        eyes.click("Sign out")
        expect(page.get_by_label("Password")).to_be_visible()
        page.reload()
        expect(page.get_by_label("Password")).to_be_visible()


@pytest.mark.nightly("tests/dashboard/test_journeys.py::test_a_user_signs_in_makes_a_change_and_signs_out")
def test_a_viewer_of_a_tenant_sees_only_permitted_buttons(browser: Browser, tmp_path: Path) -> None:
    with serving(tmp_path) as served, watching(browser, served) as eyes:
        eyes.forgiven.append("401")
        eyes.open()
        eyes.page.get_by_label("Name").fill("vera")
        eyes.page.get_by_label("Password").fill(PASSWORD)
        eyes.click("Sign in")
        eyes.see("No jobs yet")

        pages = eyes.page.locator("nav a").all_inner_texts()
        eyes.open("jobs")

        assert pages == [
            "Overview",
            "Jobs",
            "Workflows",
            "Schedules",
            "Failures",
            "Metrics",
            "Logs",
            "Alerts",
        ]
        eyes.see_count(eyes.page.get_by_role("button", name="Select all"), 0)


@pytest.mark.nightly("tests/dashboard/test_journeys.py::test_a_user_signs_in_makes_a_change_and_signs_out")
def test_the_keys_open_every_page_and_can_be_disabled(eyes: Eyes) -> None:
    page = eyes.open().page
    for key, title in (
        ("j", "Jobs"),
        ("t", "Tasks"),
        ("s", "Schedules"),
        ("a", "Alerts"),
        ("m", "Metrics"),
        ("o", "Overview"),
    ):
        # In one go: the key after a g has a second and a half.
        page.keyboard.type(f"g{key}")
        expect(page.locator("h1").first).to_have_text(title)
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    assert violations(page) == []
    page.get_by_label("Enable single-letter shortcuts").uncheck()
    page.keyboard.press("Escape")

    page.keyboard.type("gj")

    expect(page.locator("h1").first).to_have_text("Overview")


@pytest.mark.nightly("tests/dashboard/test_journeys.py::test_a_user_signs_in_makes_a_change_and_signs_out")
def test_a_g_waits_for_its_letter_even_if_typed_quickly(eyes: Eyes) -> None:
    page = eyes.page
    page.clock.install()
    eyes.open()
    # From here on the test controls time.
    page.clock.pause_at(page.evaluate("Date.now()") / 1_000 + 60)
    page.keyboard.type("gj")
    expect(page.locator("h1").first).to_have_text("Jobs")
    page.clock.run_for(1_400)
    page.keyboard.press("g")
    page.clock.run_for(200)

    page.keyboard.press("t")

    expect(page.locator("h1").first).to_have_text("Tasks")


@pytest.mark.nightly("tests/dashboard/test_journeys.py::test_a_user_signs_in_makes_a_change_and_signs_out")
def test_a_link_followed_as_soon_as_a_page_is_shown_works(eyes: Eyes, site: Served) -> None:
    page = eyes.page
    # Callbacks of the next frame wait for the test.
    page.clock.install()
    page.clock.pause_at(page.evaluate("Date.now()") / 1_000 + 60)
    page.goto(f"{site.url}/ui/")
    expect(page.locator("h1").first).to_have_text("Overview")

    page.evaluate("location.hash = '#/tasks'")
    page.clock.run_for(1_000)

    expect(page.locator("h1").first).to_have_text("Tasks")


@pytest.mark.nightly("tests/unit/server/test_dashboard.py")
def test_the_dashboard_works_below_any_prefix_and_read_only_mode_changes_nothing(
    browser: Browser, tmp_path: Path
) -> None:
    with (
        serving(tmp_path, development=True, root_path="/deep/taskmq", read_only=True) as served,
        watching(browser, served) as eyes,
    ):
        eyes.page.goto(served.url)
        eyes.settle()
        assert eyes.page.url.startswith(f"{served.url}/ui/")
        eyes.see("read-only")
        eyes.open("tasks/billing.charge")

        eyes.see("Charge an account.")
        eyes.see_count(eyes.page.get_by_role("button", name="Run"), 0)


@pytest.mark.nightly("tests/dashboard/test_attention_journeys.py::test_a_source_that_does_not_answer_is_named")
def test_a_lost_network_is_reported_and_the_page_resumes_when_it_returns(eyes: Eyes, site: Served) -> None:
    site.submit(a_job("kept"))
    page = eyes.open("jobs").page
    eyes.forgiven += ["ERR_INTERNET_DISCONNECTED", "request:"]

    page.context.set_offline(True)
    page.keyboard.press(".")
    expect(page.get_by_role("alert")).to_contain_text("Outdated")
    page.context.set_offline(False)
    page.keyboard.press(".")

    eyes.see_count(page.get_by_role("alert"), 0)


@pytest.mark.nightly("tests/dashboard/test_attention_journeys.py::test_a_source_that_does_not_answer_is_named")
def test_data_without_answers_for_25_seconds_is_stale_with_its_age(eyes: Eyes) -> None:
    page = eyes.page
    eyes.forgiven += ["ERR_INTERNET_DISCONNECTED", "request:"]
    page.clock.install()
    eyes.open("jobs")
    pill = page.locator(".top .pill")
    expect(pill).to_contain_text("live")

    page.context.set_offline(True)
    page.clock.run_for(20_000)
    expect(pill).not_to_contain_text("stale")
    page.clock.run_for(12_000)

    expect(pill).to_contain_text(re.compile("stale (2[5-9]|3[0-9]) s"))
    page.context.set_offline(False)
    page.keyboard.press(".")
    page.clock.run_for(6_000)
    expect(pill).not_to_contain_text("stale")


@pytest.mark.nightly("tests/dashboard/test_journeys.py::test_a_user_signs_in_makes_a_change_and_signs_out")
def test_a_stream_refused_by_a_proxy_is_opened_again(eyes: Eyes) -> None:
    page = eyes.page
    eyes.forgiven.append("status of 502")
    page.clock.install()
    page.route("**/api/v1/events*", lambda route: route.fulfill(status=502, body="no server behind this"))
    eyes.open()
    expect(page.locator(".pill")).to_contain_text("every 10 s")

    page.unroute("**/api/v1/events*")
    page.clock.fast_forward(20_000)

    expect(page.locator(".pill")).to_contain_text("live")


@pytest.mark.nightly("tests/dashboard/test_journeys.py::test_a_user_signs_in_makes_a_change_and_signs_out")
def test_events_during_a_read_of_a_page_are_shown_too(eyes: Eyes, site: Served) -> None:
    (made,) = site.submit(a_job("meanwhile"))
    page = eyes.page
    page.clock.install()
    eyes.open(f"jobs/{made['id']}")
    before = site.api.get(f"/jobs/{made['id']}", params={"expand": "payload,result"}).json()
    held: list[Route] = []
    job = re.compile(f"/jobs/{made['id']}[?]")
    page.route(job, lambda route: route.continue_() if held else held.append(route))
    page.keyboard.press(".")
    page.clock.fast_forward(4_000)
    # The page may already have been reading, for the event of the job's submission.
    eventually(lambda: page.evaluate("true") and held, "the reading", within=timedelta(seconds=60))

    site.api.post("/jobs/meanwhile/hold", json={}).raise_for_status()
    # Like another tab that reports an event; then the time at which the page would read again.
    page.evaluate(
        """() => new Promise(heard => {
            new BroadcastChannel("taskmq").onmessage = heard;
            new BroadcastChannel("taskmq").postMessage({ of: "", kinds: ["job"] });
        })"""
    )
    page.clock.fast_forward(10_000)
    page.clock.fast_forward(10_000)
    held[0].fulfill(json=before)
    page.clock.fast_forward(10_000)

    expect(page.locator(".head .state")).to_contain_text("held")


@pytest.mark.nightly("tests/dashboard/test_journeys.py::test_a_user_signs_in_makes_a_change_and_signs_out")
def test_data_read_before_an_event_is_read_again(eyes: Eyes) -> None:
    page = eyes.page
    page.clock.install()
    eyes.open("queues")
    looks = re.compile("/api/v1/queues")

    with page.expect_request(looks):
        page.keyboard.press(".")
        page.clock.fast_forward(3_500)

    with page.expect_request(looks, timeout=5_000):
        page.clock.fast_forward(3_500)


@pytest.mark.nightly("tests/dashboard/test_journeys.py::test_the_overview_sends_one_request_for_each_kind_of_object")
def test_two_tabs_share_one_stream_of_events(eyes: Eyes, site: Served) -> None:
    first = eyes.open().page
    expect(first.locator(".pill")).to_contain_text("live")
    second = first.context.new_page()
    streams: list[str] = []
    second.on("request", lambda request: streams.append(request.url) if "/events" in request.url else None)

    second.goto(f"{site.url}/ui/")

    expect(second.locator(".pill")).to_contain_text("live")
    assert streams == []


@pytest.mark.nightly("tests/dashboard/test_attention_journeys.py::test_a_source_that_does_not_answer_is_named")
def test_a_list_from_a_late_replica_is_stale_until_the_user_changes_something(eyes: Eyes, site: Served) -> None:
    """The server's replica is 42 s behind."""
    page = eyes.page
    asked: list[str] = []

    def add_age(route: Route) -> None:
        control = route.request.headers.get("cache-control", "")
        asked.append(control)
        answer = route.fetch()
        route.fulfill(response=answer, headers={**answer.headers, **({} if "max-age" in control else {"age": "42"})})

    (made,) = site.submit(a_job("late-list"))
    page.route(re.compile(r"/api/v1/jobs\?"), add_age)
    eyes.open("jobs")
    pill = page.locator(".top .pill")
    expect(pill).to_contain_text("stale 42 s")
    expect(pill).to_have_attribute("title", re.compile("replica"))
    assert not any("max-age" in control for control in asked)

    eyes.open(f"jobs/{made['id']}")
    expect(pill).not_to_contain_text("stale")
    page.keyboard.press("h")
    eyes.click("Hold")
    expect(page.locator(".head .state")).to_contain_text("held")
    eyes.open("jobs")

    expect(page.get_by_role("row", name="late-list")).to_contain_text("held")
    expect(pill).not_to_contain_text("stale")
    assert re.fullmatch(r"max-age=\d+", asked[-1])
