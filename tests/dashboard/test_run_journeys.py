"""Workflows are started, answered, redriven and cancelled in a real browser."""

import copy
import re
from collections.abc import Iterator
from typing import Final

import pytest
from playwright.sync_api import Browser, expect

from taskmq import TaskMQ
from taskmq.model.identity import Permission
from taskmq.server.examples import EXAMPLES
from tests.dashboard.examples import Case, show_examples
from tests.dashboard.kit import WIDE, Eyes, Served, answer, serving, violations, watching, working

pytestmark = pytest.mark.timeout(180)

_FILE: Final = """
workflow: NAME
params:
  album: {type: string}
  copies: {type: integer, default: 1}
steps:
  count: {task: photos.count, with: {album: "${params.album}"}}
  approve:
    wait: approval
    needs: [count]
    roles: [operator, admin]
    form: {type: object, properties: {ok: {type: boolean}, note: {type: string}}, required: [ok]}
  prints: {task: photos.print, needs: [approve], with: {album: "${params.album}"}}
  invoice: {task: photos.count, needs: [count, prints], with: {album: last}}
"""


class _Printer:
    """A printer whose jobs fail while it has no paper."""

    def __init__(self) -> None:
        self.has_paper = False

    def define(self, app: TaskMQ) -> None:
        @app.task(name="photos.count", retry=None)
        def count(album: str) -> int:
            return len(album)

        @app.task(name="photos.print", retry=None)
        def print_album(album: str) -> str:
            if not self.has_paper:
                raise ValueError(f"no paper for {album}")
            return album


@pytest.fixture(scope="module")
def printer() -> _Printer:
    return _Printer()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, printer: _Printer) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("site"), more=printer.define, development=True) as served:
        yield served


@pytest.fixture
def eyes(browser: Browser, site: Served) -> Iterator[Eyes]:
    with watching(browser, site) as watched:
        yield watched


def _store(site: Served, name: str, text: str = _FILE) -> str:
    answer = site.api.put(f"/workflows/{name}", json={"text": text.replace("NAME", name)})
    assert answer.status_code == 200, answer.text
    return str(answer.json()["version"])


def test_a_run_is_started_answered_and_redriven(eyes: Eyes, site: Served, printer: _Printer) -> None:
    _store(site, "albums")
    page = eyes.open("workflows").page
    eyes.click("albums")
    eyes.click("Start a run …")
    page.get_by_label("album (required)").fill("summer")
    assert violations(page) == []
    eyes.click("Start")
    expect(page.locator(".head .state")).to_contain_text("running")
    with working(site):
        eyes.see("approve waits for approval")
        eyes.see("Roles that may answer: operator, admin.")
        # A line from each step to its dependents; the one from the first to the last passes through two layers.
        eyes.see_count(page.locator(".graph g"), 4)
        eyes.see_count(page.locator(".graph path"), 3 + 3)
        rows = page.locator(".spans [data-step]")
        eyes.see_count(rows.locator("svg"), 2)
        steps = page.get_by_role("group", name="Steps", exact=True)
        for act, step in (
            (page.locator(".graph a").nth(0).hover, "count"),
            (page.get_by_role("link", name="approve: running").focus, "approve"),
        ):
            act()
            for places in (page.locator(".graph a"), rows, steps.get_by_role("row")):
                expect(places.and_(page.locator("[data-marked]"))).to_have_attribute("data-step", step)
            # The pointer marks what comes below it.
            page.mouse.move(0, 0)
        # Steps that have not started have a row in the order of the graph.
        expect(rows).to_have_text(
            [re.compile("count"), re.compile("approve"), "printsafter approve\u2013", "invoiceafter prints\u2013"]
        )
        expect(page.locator(".axis text")).to_contain_text([re.compile(r"\d\d:\d\d:\d\d"), "now"])
        # On a phone, each header has its cell, also if the cell is empty.
        page.set_viewport_size({"width": 360, "height": 800})
        expect(steps.get_by_role("columnheader")).to_have_text(["Step", "State", "Job or run", "Ran", "Error"])
        expect(steps.get_by_role("row", name="prints").get_by_role("cell")).to_have_text(
            ["prints", re.compile("waiting"), "", "\u2013", ""]
        )
        page.set_viewport_size(WIDE)
        page.get_by_label("ok (required)").select_option("true")
        assert violations(page) == []
        eyes.click("Send approval")

        expect(page.locator(".head .state")).to_contain_text("failed")
        expect(page.get_by_role("row", name="prints").first).to_contain_text("no paper for summer")
        printer.has_paper = True
        eyes.click("Redrive …")
        eyes.see("Runs again: prints, invoice.")
        assert violations(page) == []
        eyes.confirm("Redrive 2 steps")
        expect(page.locator(".head .state")).to_contain_text("succeeded")
        page.get_by_role("row", name="count").first.get_by_role("button", name="Redrive from").click()
        eyes.see("Runs again: count, approve, prints, invoice.")
        eyes.click("Keep")

    eyes.open("workflows/albums")
    eyes.see("4 of 4 ended")
    expect(page.get_by_role("group", name="Slowest steps").get_by_role("row")).to_have_count(1 + 4)
    page.get_by_role("link", name=re.compile("^prints: succeeded.*after a redrive")).click()
    page.mouse.move(0, 0)
    expect(page.locator(".graph a[data-marked]")).to_have_attribute("data-step", "prints")
    page.get_by_role("row", name="prints").first.get_by_role("link").click()
    expect(page.get_by_label("Result", exact=True)).to_contain_text("summer")


@pytest.mark.nightly("tests/dashboard/test_run_journeys.py::test_a_run_is_started_answered_and_redriven")
def test_a_workflow_is_operated_and_its_versions_compared_on_its_page(eyes: Eyes, site: Served) -> None:
    file = f"{_FILE}schedule: {{cron: '0 3 * * *', params: {{album: x}}}}\n"
    first = _store(site, "prospects", file)
    _store(site, "prospects", file.replace("default: 1", "default: 2"))
    for _ in range(2):
        site.api.post("/workflows/prospects/start", json={"params": {"album": "x"}}).raise_for_status()
    newer, older = [run["run_id"] for run in site.api.get("/runs?filter=workflow:prospects").json()["items"]]
    page = eyes.open("workflows/prospects").page
    opens = page.get_by_role("link", name="Open the run")
    expect(opens).to_have_attribute("href", f"#/runs/{newer}")
    page.get_by_role("link", name="Run of").first.click()
    expect(opens).to_have_attribute("href", f"#/runs/{older}")

    eyes.open("workflows/prospects?run=older")
    eyes.see("That run is not among the last 30.")
    expect(opens).to_have_attribute("href", "#/runs/older")

    starts = page.get_by_role("group", name="Next starts of prospects")
    expect(starts.get_by_role("row")).to_have_count(1 + 4)
    eyes.click("Pause schedule")
    page.get_by_label("Note").fill("no paper")
    eyes.confirm("Pause")
    eyes.see("no paper")
    expect(starts).to_have_count(0)
    eyes.click("Resume schedule")
    expect(starts).to_be_visible()

    eyes.click("Backfill schedule …")
    expect(page.locator("dialog h2")).to_have_text("Backfill prospects")
    page.get_by_label("From", exact=True).fill("2026-11-20T00:00:00")
    page.get_by_label("To", exact=True).fill("2026-11-22T00:00:00")
    eyes.click("Preview")
    eyes.see("2 occurrences:")
    eyes.confirm("Start")
    eyes.see("2 occurrences started.")

    page.get_by_role("link", name=f"Compare with {first}").click()
    changes = page.get_by_label("Changes", exact=True)
    expect(changes).to_contain_text(re.compile(r'- +"default": 1,?\s+\+ +"default": 2'))
    page.set_viewport_size({"width": 360, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert violations(page) == []


@pytest.mark.nightly("tests/dashboard/test_run_journeys.py::test_a_run_is_started_answered_and_redriven")
def test_a_step_names_the_quota_that_it_waits_for(eyes: Eyes, site: Served) -> None:
    _store(site, "weddings")
    site.api.put("/quotas/acme", json={"a_day": 0}).raise_for_status()
    try:
        started = site.api.post(
            "/workflows/weddings/start", params={"tenant": "acme"}, json={"params": {"album": "x"}}
        )
        with working(site):
            page = eyes.open(f"runs/{started.json()['run_id']}").page

            expect(page.get_by_role("row", name="count").first).to_contain_text(re.compile("Waits: .*0 jobs per day"))
            assert violations(page) == []
    finally:
        site.api.delete("/quotas/acme").raise_for_status()


@pytest.mark.nightly("tests/dashboard/test_run_journeys.py::test_a_run_is_started_answered_and_redriven")
def test_the_steps_of_the_last_runs_are_compared_by_keyboard(eyes: Eyes, site: Served) -> None:
    _store(site, "proofs")
    first, second = [
        str(site.api.post("/workflows/proofs/start", json={"params": {"album": "x"}}).json()["run_id"])
        for _ in range(2)
    ]
    with working(site):
        site.api.post(f"/runs/{first}/cancel").raise_for_status()
        page = eyes.open("workflows/proofs").page
        eyes.see("Last 2 runs")
        grid = page.get_by_role("group", name="Steps of the last runs")
        expect(grid.get_by_role("link", name="approve: waiting for a signal")).to_be_visible()
        expect(grid.get_by_role("link", name="prints: cancelled")).to_be_visible()
        assert violations(page) == []

        # One link is in the tab order: the newest run.
        eyes.see_count(grid.locator("[tabindex='0']"), 1)
        grid.locator("[tabindex='0']").focus()
        for key in ("ArrowDown", "ArrowDown", "ArrowLeft", "ArrowLeft", "ArrowRight"):
            page.keyboard.press(key)
        expect(grid.get_by_role("link", name="approve: waiting for a signal")).to_be_focused()
        page.keyboard.press("Enter")
        expect(page.locator(".graph a[data-marked]")).to_have_attribute("data-step", "approve")
    assert f"runs/{second}?step=approve" in page.url


@pytest.mark.nightly("tests/dashboard/test_run_journeys.py::test_a_run_is_started_answered_and_redriven")
def test_the_last_runs_say_which_steps_they_contain_and_how_a_run_waits(browser: Browser, site: Served) -> None:
    found = copy.deepcopy(EXAMPLES["listRuns"].answers[200])
    (run,) = found["items"]
    run |= {"state": "queued", "steps": 300, "cancelled": "it rains", "tenant": "acme"}
    run |= {"scheduled_for": run["started"], "labels": {"schedule": "nightly"}}
    caller = EXAMPLES["getCaller"].answers[200] | {"permissions": sorted(Permission)}
    with show_examples(browser, site, Case("one")) as eyes:
        eyes.page.route(re.compile(r"/api/v1/runs\?"), lambda route: answer(route, found))
        eyes.page.route(re.compile("/auth/me"), lambda route: answer(route, caller))
        page = eyes.open("workflows/nightly").page

        eyes.see("Being cancelled: it rains")
        eyes.see("Without success, of the first 100 steps:")
        expect(page.get_by_text("of the first 100 steps", exact=True)).to_be_visible()
        expect(page.locator(".last-runs dt", has_text="Queued for")).to_be_visible()
        expect(page.locator(".last-runs").get_by_role("link", name="nightly")).to_be_visible()


@pytest.mark.nightly("tests/dashboard/test_run_journeys.py::test_a_run_is_started_answered_and_redriven")
def test_a_run_is_held_from_the_palette(eyes: Eyes, site: Served) -> None:
    _store(site, "leaflets")
    started = site.api.post("/workflows/leaflets/start", json={"params": {"album": "x"}}).raise_for_status().json()
    page = eyes.open("runs").page

    page.keyboard.press("Control+k")
    page.get_by_role("combobox", name="Go to").fill(f"hold run {started['run_id']}")
    expect(page.locator("dialog [aria-selected=true]")).to_contain_text("Hold run leaflets")
    page.keyboard.press("Enter")
    page.get_by_label("Note").fill("the paper is wet")
    with working(site):
        eyes.confirm("Hold run")
        eyes.see("Held.")
        eyes.open(f"runs/{started['run_id']}")
        eyes.see("Held: the paper is wet.")


@pytest.mark.nightly("tests/dashboard/test_run_journeys.py::test_a_run_is_started_answered_and_redriven")
def test_a_run_is_found_by_a_filter_and_cancelled(eyes: Eyes, site: Served) -> None:
    _store(site, "posters")
    site.api.post("/workflows/posters/start", json={"params": {"album": "x"}}).raise_for_status()
    page = eyes.open("runs").page

    page.keyboard.press("/")
    page.keyboard.type("workflow:post*")
    page.keyboard.press("Enter")
    eyes.see_count(page.locator("tbody tr"), 1)
    page.locator("tbody tr a").first.click()
    expect(page.locator("h1")).to_contain_text("posters")
    page.keyboard.press("c")
    page.get_by_label("Note").fill("it rains")
    with working(site):
        eyes.confirm("Cancel run")
        eyes.see("Cancelled: it rains")
        expect(page.locator(".head .state")).to_contain_text("cancelled")

    eyes.open("runs?filter=workflow%3Apost*")
    eyes.click("cancelled")
    expect(page.get_by_role("row", name="posters")).to_contain_text("it rains")
    assert violations(page) == []


@pytest.mark.nightly("tests/dashboard/test_run_journeys.py::test_a_run_is_started_answered_and_redriven")
def test_a_run_is_held_released_and_cloned_with_other_parameters(eyes: Eyes, site: Served) -> None:
    _store(site, "cards")
    run = site.api.post("/workflows/cards/start", json={"params": {"album": "x", "copies": 2}}).json()["run_id"]
    page = eyes.open(f"runs/{run}").page
    with working(site):
        eyes.see("approve waits for approval")
        eyes.see_count(page.locator(".spans [data-step] svg"), 2)
        eyes.click("Hold …")
        page.get_by_label("Note for the history").fill("no ink")
        eyes.confirm("Hold run")
        eyes.see("Held: no ink.")
        expect(page.locator(".head .state")).to_contain_text("held")
        assert violations(page) == []
        page.get_by_role("button", name="Release").click()
        expect(page.locator(".head .state")).to_contain_text("running")

        eyes.click("Clone …")
        expect(page.get_by_label("copies")).to_have_value("2")
        page.get_by_label("album").fill("winter")
        assert violations(page) == []
        page.get_by_role("button", name="Start").click()
        expect(page.get_by_label("Parameters")).to_contain_text("winter")

    (clone, first) = site.api.get("/runs", params={"filter": "workflow:cards"}).json()["items"]
    assert first["run_id"] == run
    assert site.api.get(f"/runs/{clone['run_id']}").json()["params"] == {"album": "winter", "copies": 2}


@pytest.mark.nightly("tests/dashboard/test_run_journeys.py::test_a_run_is_started_answered_and_redriven")
def test_a_queued_run_says_why_it_waits_and_begins_after_the_other(eyes: Eyes, site: Served) -> None:
    _store(site, "prints", f"{_FILE}max_active_runs: 1\n")
    body = {"params": {"album": "x", "copies": 2}}
    first, second = [site.api.post("/workflows/prints/start", json=body).json()["run_id"] for _ in range(2)]
    with working(site):
        page = eyes.open(f"runs/{second}").page
        eyes.see("Queued: 1 of 1 runs are active.")
        expect(page.locator(".head .state")).to_contain_text("queued")
        assert violations(page) == []
        page.get_by_role("link", name="1 of 1 runs are active").click()
        expect(page.get_by_role("link", name=f"Run {first}")).to_be_visible()
        site.api.post(f"/runs/{first}/cancel", json={})
        eyes.open(f"runs/{second}")
        expect(page.locator(".head .state")).to_contain_text("running")


@pytest.mark.nightly("tests/dashboard/test_run_journeys.py::test_a_run_is_started_answered_and_redriven")
def test_an_earlier_version_of_a_workflow_becomes_the_current_one(eyes: Eyes, site: Served) -> None:
    first = _store(site, "calendars")
    second = _store(site, "calendars", _FILE.replace("default: 1", "default: 2"))
    page = eyes.open("workflows/calendars").page

    eyes.see(f"Version {second[:12]}, current")
    page.get_by_role("link", name=f"Compare with {first}").click()
    expect(page.get_by_label("Changes", exact=True)).to_be_visible()
    page.get_by_role("button", name="Activate").click()
    eyes.confirm("Activate")

    eyes.see(f"Version {first[:12]}, current")
    expect(page.get_by_label("Content", exact=True)).to_be_visible()
    assert site.api.get("/workflows/calendars").json()["version"] == first
    assert violations(page) == []


@pytest.mark.nightly("tests/dashboard/test_run_journeys.py::test_a_run_is_started_answered_and_redriven")
def test_the_children_of_a_step_are_listed_with_their_jobs(eyes: Eyes, site: Served) -> None:
    _store(site, "frames", "steps: {frame: {each: [oak, ash, elm], task: photos.count, with: {album: '${item}'}}}")
    run = site.api.post("/workflows/frames/start", json={}).json()["run_id"]
    page = eyes.open(f"runs/{run}").page
    with working(site):
        page.get_by_text("3 of 3 children succeeded").click()
        rows = page.get_by_label("Children of frame").locator("tbody tr")
        eyes.see_count(rows, 3)
        assert violations(page) == []

    rows.nth(1).get_by_role("link").click()
    expect(page.get_by_label("Result", exact=True)).to_contain_text("3")
